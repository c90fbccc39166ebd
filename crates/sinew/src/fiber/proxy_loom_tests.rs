//! Models of a thread's proxy that sleeps in `poll(2)`; descriptors and bells are those of
//! `primitive::poll`. That it sleeps on its word is in `fiber::loom_tests`.
//!
//! Every ordering below was weakened once by hand, every step changed; the model named
//! caught it.
//!
//! | weakened or changed                              | caught by |
//! |--------------------------------------------------|-----------|
//! | `wake_by` Release → Relaxed                      | all, `reactor::a_thread_that_polls…` |
//! | `take_wakes` Acquire → Relaxed                   | the three that are notified, `reactor::a_thread_that_polls…` |
//! | `take_token` Acquire → Relaxed                   | `a_thread_in_poll_that_takes…`, `a_thread_that_sleeps…` |
//! | `sleep_in_poll` sets `SLEEPING`, then the number | all but `a_descriptor_that_is_ready…`, `reactor::a_thread_that_polls…` |
//! | `sleep_in_poll` polls though it was woken        | the same |
//! | `sleep_in_poll` leaves the number in the word    | `a_thread_that_sleeps…` |

use super::proxy::ThreadProxy;
use crate::primitive::model::Plain;
use crate::primitive::{AtomicUsize, Ordering};
use crate::sys::poll::{self, PollFor};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::os::fd::RawFd;

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

/// A thread, what it waits for, and what others hand to it.
struct Thread {
    proxy: std::sync::Arc<ThreadProxy>,
    fd: RawFd,
    payload: Plain<u32>,
    done: AtomicUsize,
}

impl Thread {
    fn current() -> Arc<Self> {
        Arc::new(Self {
            proxy: ThreadProxy::of_current_thread(),
            fd: poll::take_bell().unwrap(),
            payload: Plain::new(0),
            done: AtomicUsize::new(0),
        })
    }

    fn sleep_in_poll(&self) -> bool {
        let what = PollFor {
            fd: self.fd,
            events: 0,
        };
        self.proxy.sleep_in_poll(what, None)
    }

    fn notify(&self) {
        self.payload.set(1);
        self.proxy.notify();
    }

    fn unpark(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.proxy.unpark();
    }

    /// `park` as `wait_thread` has it, with this sleep.
    fn park(&self, sleep: impl Fn(&Self)) {
        loop {
            assert!(!self.proxy.take_wakes(), "nobody notifies");
            if self.proxy.take_token() {
                return;
            }
            sleep(self);
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        poll::give_bell(self.fd);
    }
}

/// A wake that is lost is a sleep that nobody ends, which loom reports.
#[test]
fn a_notified_thread_in_poll_leaves_its_wait_after_the_notifier_is_done_with_it() {
    bounded(3).check(|| {
        let wait = Thread::current();
        let notifier = thread::spawn({
            let wait = wait.clone();
            move || wait.notify()
        });
        let nudger = thread::spawn({
            let wait = wait.clone();
            move || wait.proxy.unpark()
        });
        while !wait.proxy.take_wakes() {
            assert!(!wait.sleep_in_poll(), "nothing is ready");
        }
        assert_eq!(wait.payload.get(), 1);
        wait.payload.set(2); // the waiter's frame is gone
        notifier.join().unwrap();
        nudger.join().unwrap();
        assert!(wait.proxy.take_token(), "there for the next park");
    });
}

#[test]
fn a_descriptor_that_is_ready_ends_a_sleep_and_a_notification_next_to_it_is_not_lost() {
    bounded(3).check(|| {
        let wait = Thread::current();
        let notifier = thread::spawn({
            let wait = wait.clone();
            move || wait.notify()
        });
        let kernel = thread::spawn({
            let wait = wait.clone();
            move || poll::ring(wait.fd)
        });
        let (mut notified, mut ready) = (false, false);
        // What `wait_thread` does after a claim that it lost, and then the next wait.
        while !notified || !ready {
            notified = notified || wait.proxy.take_wakes();
            if notified {
                assert_eq!(wait.payload.get(), 1);
            }
            if ready {
                thread::yield_now(); // it would not sleep
            } else {
                ready = wait.sleep_in_poll();
            }
        }
        notifier.join().unwrap();
        kernel.join().unwrap();
    });
}

#[test]
fn a_thread_in_poll_that_takes_a_token_sees_what_came_before_every_unpark_it_stands_for() {
    bounded(3).check(|| {
        let parker = Thread::current();
        let unparkers = [0, 1].map(|_| {
            let parker = parker.clone();
            thread::spawn(move || parker.unpark())
        });
        while parker.done.load(Ordering::Relaxed) < 2 {
            parker.park(|thread| assert!(!thread.sleep_in_poll()));
        }
        for unparker in unparkers {
            unparker.join().unwrap();
        }
    });
}

/// Who wakes it learns by the same step where it sleeps.
#[test]
fn a_thread_that_sleeps_on_its_word_and_in_poll_by_turns_is_woken_in_both() {
    for poll_first in [false, true] {
        bounded(3).check(move || {
            let parker = Thread::current();
            let unparker = thread::spawn({
                let parker = parker.clone();
                move || parker.unpark()
            });
            let other = thread::spawn({
                let parker = parker.clone();
                move || parker.unpark()
            });
            let mut in_poll = poll_first;
            while parker.done.load(Ordering::Relaxed) < 2 {
                parker.park(|thread| {
                    if in_poll {
                        assert!(!thread.sleep_in_poll());
                    } else {
                        thread.proxy.sleep(None);
                    }
                });
                in_poll = !in_poll;
            }
            unparker.join().unwrap();
            other.join().unwrap();
        });
    }
}

/// A bell goes to the next thread while who rings for the last one is late.
#[test]
fn a_ring_for_a_thread_that_has_ended_does_no_harm_to_the_next_one_with_its_bell() {
    bounded(3).check(|| {
        let next = Thread::current();
        let bell = poll::take_bell().unwrap();
        poll::give_bell(bell); // it is the next one's
        let late = thread::spawn(move || poll::ring(bell));
        let notifier = thread::spawn({
            let next = next.clone();
            move || next.notify()
        });
        while !next.proxy.take_wakes() {
            assert!(!next.sleep_in_poll());
        }
        assert_eq!(next.payload.get(), 1);
        notifier.join().unwrap();
        late.join().unwrap();
    });
}
