//! Medians and spreads.

pub use super::child::median;

/// What several rounds said.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// In the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Summary {
    /// None if there are no samples.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        if samples.is_empty() {
            return None;
        }
        Some(Summary {
            median: median(&mut samples.to_vec()),
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            samples: samples.to_vec(),
        })
    }
}

/// `a / b`, if that means anything.
pub fn ratio(a: f64, b: f64) -> Option<f64> {
    let ratio = a / b;
    (a >= 0.0 && b > 0.0 && ratio.is_finite()).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&mut [7.0]), 7.0);
        assert_eq!(median(&mut []), 0.0);
    }

    #[test]
    fn a_summary_keeps_the_order_of_its_samples() {
        let summary = Summary::of(&[5.0, 1.0, 9.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (5.0, 1.0, 9.0));
        assert_eq!(summary.samples, [5.0, 1.0, 9.0]);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn a_ratio_to_nothing_is_none() {
        assert_eq!(ratio(1.0, 4.0), Some(0.25));
        assert_eq!(ratio(0.0, 4.0), Some(0.0));
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(-1.0, 2.0), None);
        assert_eq!(ratio(f64::NAN, 2.0), None);
    }
}
