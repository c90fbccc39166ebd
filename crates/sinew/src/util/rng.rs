//! A small, fast random number generator for choices that need no secrecy.
//!
//! xorshift64*: one word of state, three shifts and a multiplication. It picks
//! steal victims, placement candidates and the arms of a select; with a given seed it
//! repeats itself. The seeds come from the operating system ([`os_seed`]), so that no
//! two processes make the same choices, unless a simulation gives one.

use crate::primitive::MODELLED;
use std::hash::{BuildHasher, RandomState};

/// A seed that is another one in each process, and for each call. In a model always
/// the same: a model must be able to repeat a run.
pub(crate) fn os_seed() -> u64 {
    if MODELLED {
        return 0x5eed;
    }
    // The keys come from the operating system, once for each thread, and change with
    // each `new`.
    RandomState::new().hash_one(0)
}

/// Deterministic generator; never yields the all-zero state.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // splitmix64, so that neighbouring seeds give unrelated streams.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        let mut x = self.0;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0);
        // The high half of a product maps the full range onto `bound` without a
        // division; the bias is below 2^-32 for every bound we use.
        (((self.next() >> 32) * bound as u64) >> 32) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Rng, os_seed};

    #[test]
    fn seeds_from_the_system_differ() {
        let mut seeds: Vec<u64> = (0..8).map(|_| os_seed()).collect();
        seeds.extend(std::thread::scope(|s| {
            let others = [(); 8].map(|()| s.spawn(os_seed));
            others.map(|other| other.join().unwrap())
        }));
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 16);
    }

    #[test]
    fn the_same_seed_repeats_and_every_value_below_the_bound_appears() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        let mut seen = [false; 5];
        for _ in 0..1000 {
            let value = a.below(5);
            assert_eq!(value, b.below(5));
            seen[value] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
