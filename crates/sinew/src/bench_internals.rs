//! Measured by `sinew bench`; not an API.

use crate::timer::{TimerNode, Wheel};
use crate::util::list::{Links, List};
use crate::util::rng::Rng;
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Instant;

/// A timer, and a bare list node at (nearly) the same address.
struct Spot {
    timer: TimerNode,
    links: Links,
}

/// Sets and cancels `count` timers in random order: nanoseconds per insert, per
/// cancel, and per push and remove of a bare doubly linked list whose nodes lie
/// at the same addresses and are visited in the same orders.
pub fn timers(count: usize) -> (f64, f64, f64) {
    let mut rng = Rng::new(1);
    let spots: Vec<Spot> = (0..count)
        .map(|_| Spot {
            timer: TimerNode::new(std::ptr::null()),
            links: Links::new(),
        })
        .collect();
    let mut first: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        first.swap(at, rng.below(at + 1));
    }
    let mut second = first.clone();
    for at in (1..count).rev() {
        second.swap(at, rng.below(at + 1));
    }
    let deadlines: Vec<u64> = (0..count).map(|_| rng.next() % 60_000_000_000).collect();
    let per = |since: Instant| since.elapsed().as_nanos() as f64 / count as f64;

    let mut list = List::new();
    let start = Instant::now();
    for &at in &first {
        // SAFETY: `spots` stays put, and each node is linked once.
        unsafe { list.push_back(NonNull::from(&spots[at].links)) };
    }
    for &at in &second {
        // SAFETY: linked above.
        unsafe { list.remove(NonNull::from(&spots[at].links)) };
    }
    let list_ns = per(start) / 2.0;
    black_box(&list);

    let mut wheel = Wheel::new(0);
    let start = Instant::now();
    for (&at, &deadline) in first.iter().zip(&deadlines) {
        // SAFETY: `spots` stays put, and each node is armed once.
        unsafe { wheel.insert(NonNull::from(&spots[at].timer), deadline) };
    }
    let insert_ns = per(start);
    let start = Instant::now();
    for &at in &second {
        // SAFETY: armed above, in this wheel.
        unsafe { wheel.cancel(NonNull::from(&spots[at].timer)) };
    }
    let cancel_ns = per(start);
    assert_eq!(wheel.len(), 0);
    (insert_ns, cancel_ns, list_ns)
}
