//! What `wheel.rs` promises, and its invariants after every kind of step.

use super::*;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

const TICK: u64 = 1 << TICK_SHIFT;
const MS: u64 = 1_000_000;

/// A wheel, nodes that outlive it, and no need for `unsafe` in the tests.
struct Bench {
    wheel: Wheel,
    nodes: Box<[TimerNode]>,
}

impl Bench {
    fn new(now_ns: u64, count: usize) -> Bench {
        Bench {
            wheel: Wheel::new(now_ns),
            nodes: (0..count)
                .map(|i| TimerNode::new(ptr::without_provenance(i)))
                .collect(),
        }
    }

    fn insert(&mut self, node: usize, deadline_ns: u64) {
        assert!(!self.nodes[node].is_armed());
        // SAFETY: it is not armed, and the box keeps it where it is, shared,
        // until `drop` has disarmed it.
        unsafe { (self.wheel).insert(NonNull::from(&self.nodes[node]), deadline_ns) };
    }

    fn cancel(&mut self, node: usize) -> bool {
        // SAFETY: only `insert` arms it, in this wheel.
        unsafe { self.wheel.cancel(NonNull::from(&self.nodes[node])) }
    }

    fn expire(&mut self, now_ns: u64) -> Option<usize> {
        let node = self.wheel.expire(now_ns)?;
        // SAFETY: it is one of `nodes`.
        let node = unsafe { node.as_ref() };
        assert!(!node.is_armed());
        assert!(node.deadline() <= self.wheel.now_ns, "early");
        Some(node.owner().addr())
    }

    /// Everything that is due, however many pieces its cascades have.
    fn expire_all(&mut self, now_ns: u64) -> Vec<usize> {
        let mut fired = Vec::new();
        loop {
            while let Some(node) = self.expire(now_ns) {
                fired.push(node);
            }
            if self.wheel.next_wake().is_none_or(|wake| wake > now_ns) {
                return fired;
            }
        }
    }

    /// Invariants 1 to 4.
    fn check(&self) {
        let wheel = &self.wheel;
        let mut len = 0;
        for index in 0..LEVELS * SLOTS {
            let head = wheel.head(index);
            let mut at = head;
            let mut here = 0;
            loop {
                // SAFETY: links lead to heads and to `nodes` (invariant 1,
                // which is what we check).
                unsafe {
                    let next = (*at).next.get();
                    assert_eq!((*next).prev.get(), at);
                    at = next;
                    if ptr::eq(at, head) {
                        break;
                    }
                    let deadline = (*at.cast::<TimerNode>()).deadline();
                    if index != wheel.draining && index >= SLOTS {
                        assert_eq!(wheel.slot_of(deadline), index);
                    }
                    here += 1;
                }
            }
            let bit = wheel.occupied[index / SLOTS] >> (index % SLOTS) & 1;
            assert_eq!(bit == 1, here > 0);
            assert!(index != wheel.draining || index == 0 || here > 0);
            if here > 0 && index != wheel.draining {
                assert!(wheel.start_of(index) >= wheel.cur);
            }
            len += here;
        }
        for level in 0..LEVELS {
            let bit = wheel.levels >> level & 1;
            assert_eq!(bit == 1, wheel.occupied[level] != 0);
        }
        assert_eq!(len, wheel.len());
        assert!(wheel.cur <= wheel.now_ns >> TICK_SHIFT);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for node in 0..self.nodes.len() {
            self.cancel(node);
        }
    }
}

struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Any number of bits is as likely as any other.
    fn of_any_size(&mut self) -> u64 {
        let bits = self.below(64);
        self.next() >> bits
    }
}

/// `SINEW_SEED`, or a new one; printed in either case.
fn rng() -> XorShift {
    let seed = match std::env::var("SINEW_SEED") {
        Ok(seed) => seed.parse().expect("SINEW_SEED is a number"),
        Err(_) => RandomState::new().hash_one(0) | 1,
    };
    println!("SINEW_SEED={seed}");
    XorShift(seed)
}

#[test]
fn a_short_timer_inserted_after_a_long_one_fires_first() {
    let mut b = Bench::new(5 * MS, 2);
    b.insert(0, 205 * MS);
    b.insert(1, 25 * MS);
    assert!(b.wheel.next_wake().unwrap() <= 25 * MS + TICK);
    assert_eq!(b.expire_all(24 * MS), []);
    assert_eq!(b.expire_all(26 * MS), [1]);
    assert_eq!(b.expire_all(204 * MS), []);
    assert_eq!(b.expire_all(206 * MS), [0]);
}

#[test]
fn a_timer_fires_at_the_first_tick_after_its_deadline_and_never_before() {
    for deadline in [
        1,
        TICK - 1,
        TICK,
        TICK + 1,
        64 * TICK,
        64 * TICK + 1,
        77 * MS,
    ] {
        let due = deadline.div_ceil(TICK) * TICK;
        let mut b = Bench::new(0, 1);
        b.insert(0, deadline);
        assert_eq!(b.wheel.next_wake(), Some(due), "alone, so it is exact");
        assert_eq!(b.expire(deadline - 1), None);
        assert_eq!(b.expire(due - 1), None);
        assert_eq!(b.expire(due), Some(0));
        assert_eq!(b.expire(due), None);
    }
}

#[test]
fn a_timer_cancelled_around_its_deadline_either_fires_or_is_cancelled() {
    let deadline = 100 * MS;
    for now in (deadline - 2 * TICK..deadline + 2 * TICK).step_by(997) {
        for cancel_first in [false, true] {
            let mut b = Bench::new(0, 1);
            b.insert(0, deadline);
            let early = cancel_first && b.cancel(0);
            let fired = b.expire(now) == Some(0);
            let late = b.cancel(0);
            assert_eq!(u8::from(early) + u8::from(fired) + u8::from(late), 1);
            assert!(!b.cancel(0));
            assert_eq!(b.expire(u64::MAX), None);
            assert_eq!((b.wheel.len(), b.wheel.next_wake()), (0, None));
        }
    }
}

#[test]
fn a_timer_that_was_never_inserted_is_not_cancelled() {
    let mut b = Bench::new(0, 1);
    assert!(!b.cancel(0));
    assert_eq!(b.wheel.len(), 0);
}

#[test]
fn a_deadline_in_the_past_fires_at_the_next_expire() {
    // In the middle of a tick: the deadline's own tick has not ended yet.
    let now = 1000 * TICK + 30;
    let mut b = Bench::new(now, 4);
    for (node, deadline) in [now, now - 1, 0, 999 * TICK].into_iter().enumerate() {
        b.insert(node, deadline);
        assert!(b.wheel.next_wake().unwrap() <= now);
    }
    assert_eq!(b.expire_all(now), [0, 1, 2, 3]);
    b.insert(0, now + 1);
    assert_eq!(b.expire_all(now), []);
}

#[test]
fn a_clock_that_goes_back_is_taken_to_stand_still() {
    let mut b = Bench::new(100 * TICK, 2);
    b.insert(0, 150 * TICK);
    b.insert(1, 250 * TICK);
    assert_eq!(b.expire_all(200 * TICK), [0]);
    assert_eq!(b.expire_all(3), []);
    b.check();
    b.insert(0, 180 * TICK);
    assert_eq!(b.expire_all(0), [0]);
    assert_eq!(b.expire_all(250 * TICK), [1]);
}

#[test]
fn a_timer_at_the_end_of_time_never_fires_but_can_be_cancelled() {
    let mut b = Bench::new(0, 3);
    b.insert(0, u64::MAX);
    b.insert(1, u64::MAX - TICK + 2);
    assert_eq!(b.wheel.next_wake(), None);
    b.insert(2, u64::MAX - TICK + 1); // the last tick there is
    assert_eq!(b.wheel.next_wake(), Some(u64::MAX - TICK + 1));
    assert_eq!(b.expire_all(u64::MAX - TICK), []);
    assert_eq!(b.expire_all(u64::MAX - 1), [2]);
    assert_eq!(b.wheel.next_wake(), None);
    b.check();
    assert!(b.cancel(0) && b.cancel(1));
    assert_eq!(b.wheel.len(), 0);
    b.insert(0, u64::MAX - 1); // has passed by now
    assert_eq!(b.expire_all(u64::MAX), [0]);
}

#[test]
fn timers_of_one_tick_fire_in_the_order_of_insertion() {
    let mut b = Bench::new(0, 60);
    for node in 0..30 {
        b.insert(node, 5000 * TICK - node as u64); // three levels up
    }
    assert_eq!(b.expire(4096 * TICK), None); // a cascade in pieces
    assert_ne!(b.wheel.draining, 0);
    for node in 30..45 {
        b.insert(node, 5000 * TICK - node as u64);
    }
    assert_eq!(b.expire_all(4999 * TICK), []);
    for node in 45..60 {
        b.insert(node, 5000 * TICK);
    }
    b.check();
    assert_eq!(b.expire_all(5000 * TICK), (0..60).collect::<Vec<_>>());
}

#[test]
fn a_cascade_in_pieces_asks_to_be_called_again() {
    let mut b = Bench::new(0, 100);
    for node in 0..100 {
        b.insert(node, 70 * TICK);
    }
    let (now, mut turns) = (70 * TICK, 0);
    while b.expire(now).is_none() {
        assert!(b.wheel.next_wake().unwrap() <= now);
        b.check();
        turns += 1;
    }
    assert_eq!(turns, 100 / (CASCADE_BUDGET + 1));
    assert_eq!(b.expire_all(now).len(), 99);
}

#[test]
fn a_timer_can_be_cancelled_on_every_level() {
    for level in 0..LEVELS as u32 - 1 {
        let place = TICK << (level * DIGIT_BITS);
        for digit in [1, 2, 63] {
            let mut b = Bench::new(0, 3);
            for node in 0..3 {
                b.insert(node, place * digit);
            }
            assert_eq!(b.wheel.levels, 1 << level);
            for (left, node) in [(2, 1), (1, 0), (0, 2)] {
                assert!(b.cancel(node));
                assert_eq!(b.wheel.len(), left);
                b.check();
            }
            assert_eq!((b.wheel.levels, b.wheel.next_wake()), (0, None));
            assert_eq!(b.expire(u64::MAX), None);
        }
    }
}

#[test]
fn a_timer_can_be_cancelled_and_inserted_while_its_slot_is_handed_out() {
    let mut b = Bench::new(0, 8);
    for node in 0..6 {
        b.insert(node, 10 * TICK);
    }
    b.insert(6, 12 * TICK);
    let now = 20 * TICK;
    assert_eq!(b.expire(now), Some(0));
    assert!(b.cancel(1), "the first of the rest");
    assert!(b.cancel(3), "one in the middle");
    assert!(b.cancel(5), "the last");
    assert!(!b.cancel(0), "it fired");
    b.insert(0, 11 * TICK); // overdue, but after those of tick 10
    b.insert(7, 3 * TICK); // counts as tick 10
    b.check();
    assert_eq!(b.expire(now), Some(2));
    assert_eq!(b.expire(now), Some(4));
    assert!(b.cancel(6));
    assert_eq!(b.expire_all(now), [7, 0]);
}

#[test]
fn a_timer_can_be_cancelled_while_its_slot_cascades() {
    let mut b = Bench::new(0, 40);
    for node in 0..40 {
        b.insert(node, (64 + node as u64 % 3) * TICK);
    }
    assert_eq!(b.expire(64 * TICK), None);
    assert_eq!(b.wheel.draining, SLOTS + 1);
    for node in 1..40 {
        assert!(b.cancel(node)); // those moved already, and those still to be
        b.check();
    }
    assert_eq!(b.wheel.draining, 0, "nothing is left to move");
    b.insert(1, 65 * TICK);
    assert_eq!(b.expire_all(64 * TICK), [0]);
    assert_eq!(b.expire_all(65 * TICK), [1]);
}

#[test]
fn a_node_is_not_touched_after_it_was_handed_out() {
    let mut b = Bench::new(0, 3);
    for node in 0..3 {
        b.insert(node, 7 * TICK);
    }
    while let Some(node) = b.expire(7 * TICK) {
        // As if its stack had been used for something else since.
        b.nodes[node].links.prev.set(ptr::dangling());
        b.nodes[node].deadline.set(u64::MAX);
        b.check();
    }
    assert!(b.nodes.iter().all(|node| node.deadline() == u64::MAX));
}

#[test]
fn a_jump_over_all_of_time_fires_everything_in_order() {
    // To walk the empty slots between would take years.
    let deadlines = || (0..64).map(|bits| 1u64 << bits);
    for start in [0, 63 * TICK, 12_345_678_901] {
        let mut b = Bench::new(start, 64);
        for (node, deadline) in deadlines().enumerate() {
            b.insert(63 - node, start.saturating_add(deadline));
        }
        b.check();
        let fired = b.expire_all(u64::MAX);
        assert_eq!(fired.len(), 64);
        // Those below a tick are rounded up to the same one.
        let distinct = 63 - TICK_SHIFT as usize;
        let rest: Vec<_> = (fired.into_iter())
            .skip_while(|&node| node >= distinct)
            .collect();
        assert_eq!(rest, (0..distinct).rev().collect::<Vec<_>>());
    }
}

#[test]
fn timers_across_the_end_of_a_level_fire_in_order() {
    for level in 1..LEVELS as u32 - 1 {
        // The last ticks before a digit of this level carries.
        let edge = TICK << (level * DIGIT_BITS);
        let mut b = Bench::new(edge - 3 * TICK, 7);
        for node in (0..7).rev() {
            b.insert(node, edge - 2 * TICK + node as u64 * TICK);
        }
        for node in 0..7 {
            let due = edge - 2 * TICK + node as u64 * TICK;
            assert!(b.wheel.next_wake().unwrap() <= due);
            assert_eq!(b.expire_all(due - 1), []);
            assert_eq!(b.expire_all(due), [node]);
            b.check();
        }
    }
}

#[test]
fn a_wheel_can_be_moved_while_timers_hang_in_it() {
    let mut b = Bench::new(0, 2);
    b.insert(0, TICK);
    b.insert(1, 1 << 40);
    let mut moved = Box::new(std::mem::replace(&mut b.wheel, Wheel::new(0)));
    std::mem::swap(&mut b.wheel, &mut moved);
    b.check();
    assert!(b.cancel(0));
    assert_eq!(b.expire_all(1 << 41), [1]);
}

#[test]
fn a_wheel_agrees_with_an_ordered_map() {
    let mut rng = rng();
    let rounds = if cfg!(miri) { 2 } else { 150 };
    for _ in 0..rounds {
        one_round(&mut rng);
    }
}

fn one_round(rng: &mut XorShift) {
    const NODES: usize = 96;
    let mut now = rng.of_any_size() / 2;
    let mut seen = now; // by the wheel
    let mut b = Bench::new(now, NODES);
    // (tick, number of the insertion) → node; and the key of each node.
    let mut model = BTreeMap::new();
    let mut keys = [None; NODES];
    for seq in 0..3000 {
        let node = rng.below(NODES as u64) as usize;
        match rng.below(8) {
            0..=3 if keys[node].is_none() => {
                let deadline = match rng.below(8) {
                    0 => now.saturating_sub(rng.of_any_size()),
                    1 => now.saturating_add(rng.of_any_size()),
                    2 => now.saturating_add(rng.below(100 * TICK)),
                    3 => (now | (64 * TICK - 1)).saturating_add(rng.below(3)),
                    _ => now.saturating_add(rng.below(10_000 * TICK)),
                };
                let mut tick = u128::from(deadline).div_ceil(TICK.into()) as u64;
                if deadline <= seen {
                    tick = tick.min(seen / TICK);
                }
                let key = (tick.max(b.wheel.cur), seq);
                b.insert(node, deadline);
                keys[node] = Some(key);
                model.insert(key, node);
            }
            0..=4 => {
                let armed = keys[node].take();
                assert_eq!(b.cancel(node), armed.is_some());
                armed.map(|key| model.remove(&key));
            }
            5 => {
                now = match rng.below(16) {
                    0 => now.saturating_add(rng.of_any_size() / 256),
                    1..=4 => b.wheel.next_wake().unwrap_or(now).max(now),
                    5..=8 => now.saturating_add(rng.below(200 * TICK)),
                    _ => now.saturating_add(rng.below(3 * TICK)),
                };
            }
            _ => {
                seen = now;
                for _ in 0..=rng.below(6) {
                    let fired = b.expire(now);
                    let first = model.first_key_value().map(|(&key, &node)| (key, node));
                    if let Some(node) = fired {
                        let (key, expected) = first.expect("nothing is armed");
                        assert_eq!(node, expected);
                        assert!(key.0 <= now / TICK);
                        model.remove(&key);
                        keys[node] = None;
                    } else if b.wheel.next_wake().is_none_or(|wake| wake > now) {
                        assert!(first.is_none_or(|(key, _)| key.0 > now / TICK));
                    }
                }
            }
        }
        assert_eq!(b.wheel.len(), model.len());
        let due = model.first_key_value().map_or(NEVER, |(key, _)| key.0);
        match b.wheel.next_wake() {
            Some(wake) => assert!(due < NEVER && wake <= due * TICK),
            None => assert_eq!(due, NEVER),
        }
        if seq % 16 == 0 {
            b.check();
        }
    }
    let expected: Vec<_> = (model.range(..(NEVER, 0))).map(|(_, &node)| node).collect();
    assert_eq!(b.expire_all(u64::MAX), expected);
    b.check();
}

#[test]
fn a_million_timers_all_fire_or_are_cancelled() {
    let count = if cfg!(miri) { 1000 } else { 1_000_000 };
    let mut rng = rng();
    let mut b = Bench::new(0, count);
    for node in 0..count {
        b.insert(node, rng.below(60_000 * MS));
    }
    assert_eq!(b.wheel.len(), count);
    let mut cancelled = 0;
    for _ in 0..count / 2 {
        cancelled += usize::from(b.cancel(rng.below(count as u64) as usize));
    }
    let (mut fired, mut now) = (0, 0);
    while let Some(wake) = b.wheel.next_wake() {
        now = wake.max(now);
        while b.expire(now).is_some() {
            fired += 1;
        }
    }
    assert_eq!(cancelled + fired, count);
    assert_eq!(b.wheel.len(), 0);
    b.check();
}
