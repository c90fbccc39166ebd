//! Signals as messages.
//!
//! They go to the process, so each test has a kind of its own.

use crate::harness::wait_until;
use crate::world::{everywhere, on_fibers};
use sinew::signal::{Signal, SignalKind, ctrl_c, signal};
use sinew::sync::WaitTimeoutError;
use sinew::{Cancelled, WaitReason};
use std::io::ErrorKind;
use std::time::Duration;

/// A kind that nobody else uses: one of the real-time ones.
fn own(offset: i32) -> SignalKind {
    SignalKind::from_raw(libc::SIGRTMIN() + offset)
}

#[test]
fn a_signal_wakes_who_waits_for_it() {
    everywhere(|| {
        let mut signals = signal(SignalKind::user_defined1()).unwrap();
        let waits = sinew::spawn(move || signals.recv());
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Signal);
        SignalKind::user_defined1().raise().unwrap();
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_signal_before_the_wait_is_kept_for_it() {
    everywhere(|| {
        let mut signals = signal(SignalKind::user_defined2()).unwrap();
        assert!(!signals.try_recv());
        for _ in 0..10 {
            SignalKind::user_defined2().raise().unwrap();
            signals.recv().unwrap();
        }
    });
}

#[test]
fn each_receiver_gets_every_signal() {
    everywhere(|| {
        let receivers: Vec<Signal> = (0..4).map(|_| signal(own(1)).unwrap()).collect();
        let waits: Vec<_> = receivers
            .into_iter()
            .map(|mut one| sinew::spawn(move || one.recv()))
            .collect();
        own(1).raise().unwrap();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn signals_between_two_waits_count_as_one_or_more_but_not_none() {
    everywhere(|| {
        let mut signals = signal(own(2)).unwrap();
        for _ in 0..50 {
            own(2).raise().unwrap();
        }
        signals.recv().unwrap();
        // All were sent before; at most fifty are left.
        let more = (0..50).take_while(|_| signals.try_recv()).count();
        assert!(more < 50);
    });
}

#[test]
fn other_kinds_do_not_wake() {
    everywhere(|| {
        let (mut this, mut other) = (signal(own(3)).unwrap(), signal(own(4)).unwrap());
        own(4).raise().unwrap();
        other.recv().unwrap();
        assert!(!this.try_recv());
        assert_eq!(
            this.recv_timeout(Duration::from_millis(1)),
            Err(WaitTimeoutError::Timeout)
        );
        let now = sinew::time::Instant::now();
        assert_eq!(this.recv_deadline(now), Err(WaitTimeoutError::Timeout));
    });
}

#[test]
fn a_wait_is_cancelled_and_takes_nothing_along() {
    on_fibers(|| {
        let mut signals = signal(own(5)).unwrap();
        let waits = sinew::spawn(move || (signals.recv(), signals));
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Signal);
        waits.cancel();
        let (outcome, mut signals) = waits.join().unwrap();
        assert_eq!(outcome, Err(Cancelled));
        own(5).raise().unwrap();
        signals.recv().unwrap();
    });
}

#[test]
fn an_iterator_ends_with_its_fiber() {
    on_fibers(|| {
        let signals = signal(own(6)).unwrap();
        let counts = sinew::spawn(move || signals.count());
        wait_until(|| counts.fiber().wait_reason() == WaitReason::Signal);
        counts.cancel();
        counts.join().unwrap();
    });
}

#[test]
fn async_code_receives_signals() {
    everywhere(|| {
        let mut signals = signal(own(7)).unwrap();
        let waits = sinew::spawn(move || sinew::block_on(signals.recv_async()));
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Future);
        own(7).raise().unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn ctrl_c_is_an_interrupt() {
    on_fibers(|| {
        let waits = sinew::spawn(ctrl_c);
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Signal);
        SignalKind::interrupt().raise().unwrap();
        waits.join().unwrap().unwrap();
        let cancelled = sinew::spawn(ctrl_c);
        wait_until(|| cancelled.fiber().wait_reason() == WaitReason::Signal);
        cancelled.cancel();
        assert!(Cancelled::is_in(&cancelled.join().unwrap().unwrap_err()));
    });
}

#[test]
fn what_cannot_be_handled_is_refused() {
    for raw in [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        0,
        -1,
        65,
        i32::MAX,
        i32::MIN,
    ] {
        let error = signal(SignalKind::from_raw(raw)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{raw}");
    }
}

#[test]
fn signals_sent_by_several_threads_wake_several_fibers() {
    on_fibers(|| {
        let waits: Vec<_> = (0..20)
            .map(|_| {
                let mut signals = signal(SignalKind::hangup()).unwrap();
                sinew::spawn(move || signals.recv())
            })
            .collect();
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| SignalKind::hangup().raise().unwrap());
            }
        });
        for wait in waits {
            wait.join().unwrap().unwrap();
        }
    });
}

/// One arm of several: it is received if it is chosen, and only then.
#[test]
fn a_signal_is_an_arm_of_a_select() {
    everywhere(|| {
        let kind = own(9);
        let mut signals = signal(kind).unwrap();
        let (sender, receiver) = sinew::channel::bounded(1);
        // Ready before the other is: the signal stays.
        sender.send(1).unwrap();
        let first = sinew::select! {
            recv(receiver) -> number => number.unwrap(),
            wait(&mut signals) -> _ => 0,
        };
        assert_eq!(first, 1);
        // Before the select.
        kind.raise().unwrap();
        let second = sinew::select! {
            recv(receiver) -> number => number.unwrap(),
            wait(&mut signals) -> outcome => outcome.map(|()| 2).unwrap(),
        };
        assert_eq!(second, 2);
        // It was received.
        let third = sinew::select! {
            wait(&mut signals) -> _ => 0,
            default => 3,
        };
        assert_eq!(third, 3);
        // While it waits.
        let waits = sinew::spawn(move || {
            sinew::select! {
                recv(receiver) -> number => number.unwrap(),
                wait(&mut signals) -> outcome => outcome.map(|()| 4).unwrap(),
            }
        });
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Select);
        kind.raise().unwrap();
        assert_eq!(waits.join().unwrap(), 4);
        drop(sender);
    });
}

#[test]
fn an_arm_for_a_signal_says_that_its_fiber_was_cancelled() {
    on_fibers(|| {
        let mut signals = signal(own(10)).unwrap();
        let waits = sinew::spawn(move || {
            sinew::select! {
                wait(&mut signals) -> outcome => outcome,
            }
        });
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Select);
        waits.cancel();
        assert_eq!(waits.join().unwrap(), Err(Cancelled));
    });
}
