//! How often which latency was seen.
//!
//! Buckets grow with what they hold: 64 to each power of two, so that what is
//! read off is at most 1/64 too high, from a nanosecond to an hour.

/// Buckets to each power of two.
const FINE: u64 = 64;
const FINE_BITS: u32 = FINE.ilog2();
/// Values with so many bits or more share the last bucket: 73 minutes.
const BITS: u32 = 42;

/// Counts of nanoseconds.
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram {
            buckets: vec![0; (index((1 << BITS) - 1) + 1) as usize],
            count: 0,
        }
    }

    #[inline]
    pub fn add(&mut self, nanos: u64) {
        self.buckets[index(nanos.min((1 << BITS) - 1)) as usize] += 1;
        self.count += 1;
    }

    pub fn clear(&mut self) {
        self.buckets.fill(0);
        self.count = 0;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least nanoseconds that `part` of all values are not above; 0 if
    /// there are none.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, &n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return highest(bucket as u64);
            }
        }
        0
    }
}

/// The bucket of `value`: values below 64 have one each; above, the highest
/// seven bits count.
#[inline]
fn index(value: u64) -> u64 {
    if value < FINE {
        return value;
    }
    let shift = value.ilog2() - FINE_BITS;
    u64::from(shift) * FINE + (value >> shift)
}

/// The largest value of a bucket.
fn highest(bucket: u64) -> u64 {
    if bucket < 2 * FINE {
        return bucket;
    }
    let shift = bucket / FINE - 1;
    let top = bucket % FINE + FINE;
    (top << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bucket_that_ends_just_above_it() {
        let mut value = 0_u64;
        while value < 1 << BITS {
            let top = highest(index(value));
            assert!(top >= value, "{value}: {top}");
            assert!(top - value <= value / FINE, "{value}: {top}");
            assert_eq!(index(top), index(value));
            assert_eq!(index(top + 1), index(value) + 1);
            value += value / 100 + 1;
        }
    }

    #[test]
    fn quantiles_of_even_values_are_where_they_should_be() {
        let mut histogram = Histogram::new();
        for i in 1..=1000 {
            histogram.add(i * 1000);
        }
        assert_eq!(histogram.count(), 1000);
        for (part, exact) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let got = histogram.quantile(part);
            assert!(
                (exact..=exact + exact / FINE).contains(&got),
                "{part}: {got}"
            );
        }
    }

    #[test]
    fn an_empty_histogram_says_nothing_and_the_longest_wait_has_a_bucket() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.99), 0);
        histogram.add(u64::MAX);
        assert!(histogram.quantile(0.5) >= 1 << (BITS - 1));
        histogram.clear();
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (0, 0));
    }
}
