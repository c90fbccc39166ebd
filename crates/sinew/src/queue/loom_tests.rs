//! Models of the inbox, with a futex driver for its owner to sleep on.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                             | caught by |
//! |--------------------------------------|-----------|
//! | `Inbox::push` Release → Relaxed      | all three |
//! | `Inbox::take_all` Acquire → Relaxed  | all three |
//!
//! The rest of the inbox is Relaxed already.

use super::inbox::{Inbox, Pushed};
use crate::fiber::Block;
use crate::primitive::{AtomicUsize, Ordering};
use crate::sched::seam::{Driver, FutexDriver};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::ptr::NonNull;

const BLOCKS: usize = 3;

struct Mail {
    inbox: Inbox,
    driver: FutexDriver,
    blocks: [Block; BLOCKS],
    /// Written by the pusher of each block, read and overwritten by the owner.
    payload: [UnsafeCell<u32>; BLOCKS],
    /// How often a pusher was told to wake the owner.
    wakes: AtomicUsize,
}

// SAFETY: loom checks every access to a payload; the rest is shareable.
unsafe impl Sync for Mail {}
// SAFETY: as above.
unsafe impl Send for Mail {}

impl Mail {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inbox: Inbox::new(),
            driver: FutexDriver::new(),
            blocks: std::array::from_fn(|_| Block::vacant()),
            payload: std::array::from_fn(|_| UnsafeCell::new(0)),
            wakes: AtomicUsize::new(0),
        })
    }

    /// Pushes block number `which`, as `submit::mail` does.
    fn push(&self, which: usize) {
        // SAFETY: loom checks that nobody else uses the cell now.
        self.payload[which].with_mut(|at| unsafe { *at = 1 });
        // SAFETY: each block is pushed by one thread, once.
        if unsafe { self.inbox.push(NonNull::from(&self.blocks[which])) } == Pushed::WakeOwner {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.driver.unpark();
        }
    }

    fn number(&self, block: NonNull<Block>) -> usize {
        let at = |own: &Block| NonNull::from(own) == block;
        self.blocks.iter().position(at).expect("a block of ours")
    }

    /// What the owner takes, in order.
    fn take(&self, into: &mut Vec<usize>) {
        self.inbox.take_all(|block| {
            let number = self.number(block);
            // SAFETY: loom checks that nobody else uses the cell now.
            self.payload[number].with_mut(|at| unsafe {
                assert_eq!(*at, 1, "taken without what its pusher wrote");
                *at = 2;
            });
            into.push(number);
        });
    }

    /// Takes and sleeps, as a worker does, until `count` blocks have come;
    /// answers them, and how often it went to sleep.
    fn own(&self, count: usize) -> (Vec<usize>, usize) {
        let (mut taken, mut sleeps) = (Vec::new(), 0);
        loop {
            if !self.inbox.is_empty() {
                self.take(&mut taken);
            }
            if taken.len() == count {
                return (taken, sleeps);
            }
            if self.inbox.try_sleep() {
                sleeps += 1;
                self.driver.park(None);
            }
            self.take(&mut taken);
        }
    }
}

#[test]
fn nothing_pushed_is_lost_and_a_burst_wakes_a_sleeping_owner_once() {
    // Three threads and a loop with a sleep: bounded to stay within seconds.
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let mail = Mail::new();
        let one = thread::spawn({
            let mail = mail.clone();
            move || {
                mail.push(0);
                mail.push(1);
            }
        });
        let other = thread::spawn({
            let mail = mail.clone();
            move || mail.push(2)
        });
        let (taken, sleeps) = mail.own(BLOCKS);
        one.join().unwrap();
        other.join().unwrap();
        let place = |number| taken.iter().position(|&taken| taken == number);
        assert!(place(0) < place(1), "overtaken: {taken:?}");
        let wakes = mail.wakes.load(Ordering::Relaxed);
        assert!(wakes <= sleeps, "{wakes} wakes for {sleeps} sleeps");
    });
}

#[test]
fn an_owner_that_goes_to_sleep_is_woken_or_sees_the_push() {
    loom::model(|| {
        let mail = Mail::new();
        let pusher = thread::spawn({
            let mail = mail.clone();
            move || mail.push(0)
        });
        let (taken, sleeps) = mail.own(1);
        pusher.join().unwrap();
        assert_eq!(taken, [0]);
        assert!(mail.wakes.load(Ordering::Relaxed) <= sleeps);
    });
}

#[test]
fn a_block_may_be_pushed_again_by_who_got_it() {
    loom::model(|| {
        let mail = Mail::new();
        mail.push(0);
        let other = thread::spawn({
            let mail = mail.clone();
            move || mail.push(1)
        });
        let mut taken = Vec::new();
        mail.take(&mut taken);
        assert_eq!(taken[0], 0);
        // Its link is ours now; the other block may stand above or below it.
        mail.push(0);
        other.join().unwrap();
        mail.take(&mut taken);
        taken.sort_unstable();
        assert_eq!(taken, [0, 0, 1]);
    });
}
