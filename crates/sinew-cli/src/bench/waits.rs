//! What the workloads share in which tasks wait for each other: their sizes,
//! the dice, and a stopwatch for work of a fixed size.
//!
//! `sinew-rivals` compiles this file too, as it does `child.rs`.

use std::time::Duration;

use super::child::{Job, each};

/// Producers of both queues, and consumers of the second.
pub const PRODUCERS: u64 = 4;
pub const CONSUMERS: u64 = 4;
/// Room in the queue with one consumer.
pub const NARROW: usize = 100;
/// Room in the queue with several.
pub const WIDE: usize = 1_000;
/// Room in the channel that is only ever tried.
pub const TRIED: usize = 16;
/// Tasks that want one mutex.
pub const LOCKERS: u64 = 100;
/// How often each of them takes it.
pub const LOCKS: u64 = 10_000;
/// Who wants the lock of readers and writers.
pub const READERS: u64 = 4;
pub const WRITERS: u64 = 2;
/// Tasks that want one of so many permits.
pub const ACQUIRERS: u64 = 8;
pub const PERMITS: usize = 2;

impl Job {
    /// Room in the channels of a ping-pong.
    pub fn room(&self) -> usize {
        usize::from(!self.name.ends_with("_0"))
    }
}

/// Runs `work`, which does `ops` operations and answers how long they took:
/// once to warm up, then until `target` has passed. Answers nanoseconds per
/// operation.
pub fn repeated(target: Duration, ops: u64, mut work: impl FnMut() -> Duration) -> f64 {
    work();
    let (mut took, mut runs) = (Duration::ZERO, 0);
    while took < target {
        took += work();
        runs += 1;
    }
    each(took, runs * ops)
}

/// Which arm gets the next message: the same sequence for everybody.
pub struct Dice(u64);

impl Dice {
    pub fn new() -> Dice {
        Dice(0x9E37_79B9_7F4A_7C15)
    }

    /// A number below `sides`, which is a power of two.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize & (sides - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_read_from_the_name() {
        let job = |name: &str| Job::parse([name.to_owned()]).unwrap();
        assert_eq!(job("pingpong_0").room(), 0);
        assert_eq!(job("apart_1").room(), 1);
        assert_eq!(job("pingpong_1m").room(), 1);
    }

    #[test]
    fn the_first_run_of_a_fixed_size_is_not_counted() {
        let mut runs = 0;
        let ns = repeated(Duration::from_millis(10), 1_000, || {
            runs += 1;
            Duration::from_millis(if runs == 1 { 500 } else { 4 })
        });
        assert_eq!((runs, ns), (4, 4_000.0));
    }

    #[test]
    fn the_dice_show_every_side() {
        let mut dice = Dice::new();
        let mut seen = [0; 32];
        for _ in 0..3_200 {
            seen[dice.roll(32)] += 1;
        }
        assert!(seen.iter().all(|&n| n > 50), "{seen:?}");
    }
}
