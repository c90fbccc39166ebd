//! Wakers of async tasks are user code: they may panic, wait, and use whatever
//! wakes them; neither who wakes nor who waits comes to harm.

use super::{HOUR, parked};
use crate::harness::{Gate, panic_expected, runtime, wait_until, watch};
use sinew::channel::{Select, bounded, never, unbounded};
use sinew::sync::{Condvar, Event, Mutex, MutexGuard, Semaphore};
use sinew::{Cancelled, Priority};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

/// Panics when woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic_expected(1)
    }
}

/// Does something when woken.
struct Does<F>(F);

impl<F: Fn() + Send + Sync> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn poll_with<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

#[test]
fn a_waker_that_panics_while_a_condvar_s_wait_begins_harms_nobody() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = pair.clone();
        let waiter = runtime.spawn(move || {
            let (mutex, condvar) = &*theirs;
            let guard = mutex.lock();
            // A task waits for the mutex, which the wait gives back.
            let waker = Waker::from(Arc::new(Panics));
            let mut task = Box::pin(mutex.lock_async());
            assert!(poll_with(&mut task, &waker).is_pending());
            let guard = condvar.wait_while(guard, |ready| !*ready);
            assert!(*guard);
            drop(task);
        });
        parked(&waiter);
        wait_until(|| pair.0.try_lock().map(|mut ready| *ready = true).is_ok());
        pair.1.notify_one();
        waiter.join().unwrap();
        pair.1.notify_all(); // finds nobody
    }
}

#[test]
fn a_waker_may_wait_while_a_condvar_s_wait_begins() {
    let _watch = watch();
    let inner = Arc::new(Mutex::new(()));
    let pair = Arc::new((Mutex::new(()), Condvar::new()));
    let (held, begun) = (Gate::new(), Gate::new());
    let other = std::thread::spawn({
        let (inner, pair, held, begun) = (inner.clone(), pair.clone(), held.clone(), begun.clone());
        move || {
            let guard = inner.lock();
            held.open();
            begun.spin();
            // The waker waits for us, or soon will; its thread's wait for a
            // notification has not begun, and must not miss this one.
            pair.1.notify_one();
            drop(guard);
        }
    });
    held.spin();
    let waker = Waker::from(Arc::new(Does({
        let (inner, begun) = (inner.clone(), begun.clone());
        move || {
            begun.open();
            drop(inner.lock());
        }
    })));
    let (mutex, condvar) = &*pair;
    let guard = mutex.lock();
    let mut task = Box::pin(mutex.lock_async());
    assert!(poll_with(&mut task, &waker).is_pending());
    let (guard, outcome) = condvar.wait_timeout(guard, HOUR);
    assert!(!outcome.timed_out());
    drop((task, guard));
    other.join().unwrap();
}

#[test]
fn a_waker_that_panics_while_another_gives_up_harms_nobody() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let semaphore = Arc::new(Semaphore::new(1));
        let theirs = semaphore.clone();
        // First in line, with a timer; behind it a task that one permit is
        // enough for.
        let greedy = runtime.spawn(move || theirs.acquire_many_timeout(5, HOUR).is_err());
        parked(&greedy);
        let waker = Waker::from(Arc::new(Panics));
        let mut task = Box::pin(semaphore.acquire_async());
        assert!(poll_with(&mut task, &waker).is_pending());
        greedy.cancel();
        assert!(greedy.join().unwrap());
        let permit = poll_with(&mut task, Waker::noop());
        assert!(matches!(permit, Poll::Ready(Ok(_))));
        drop(permit);
        assert_eq!(semaphore.available_permits(), 1);
    }
}

/// A waker whose clone panics if the flag is set.
fn clone_panics(flag: &'static AtomicBool) -> Waker {
    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the data is the flag, which is static.
        if unsafe { &*data.cast::<AtomicBool>() }.load(Ordering::Relaxed) {
            panic_expected(2)
        }
        RawWaker::new(data, &TABLE)
    }
    unsafe fn nothing(_: *const ()) {}
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    // SAFETY: there is nothing to count: the flag is static.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::from_ref(flag).cast(), &TABLE)) }
}

#[test]
fn a_task_that_was_woken_and_panics_before_it_stands_in_line_again_passes_that_on() {
    static PANIC: AtomicBool = AtomicBool::new(false);
    let _watch = watch();
    let mutex = Arc::new(Mutex::new(()));
    let waker = clone_panics(&PANIC);
    let guard = mutex.lock();
    let mut task = Box::pin(mutex.lock_async());
    assert!(poll_with(&mut task, &waker).is_pending());
    drop(guard); // wakes the task …
    let guard = mutex.lock(); // … which comes too late
    PANIC.store(true, Ordering::Relaxed);
    let polled = catch_unwind(AssertUnwindSafe(|| {
        poll_with(&mut task, &waker).is_pending()
    }));
    assert!(polled.is_err());
    drop(task);
    let theirs = mutex.clone();
    let runtime = runtime(1);
    let next = runtime.spawn(move || drop(theirs.lock()));
    parked(&next);
    drop(guard);
    next.join().unwrap();
}

#[test]
fn a_message_that_a_task_has_not_taken_is_had_by_others_when_the_channel_closes() {
    let _watch = watch();
    let (tx, rx) = bounded(1);
    let mut task = Box::pin(rx.recv_async());
    assert!(poll_with(&mut task, Waker::noop()).is_pending());
    tx.send(1).unwrap(); // into the hands of the task
    drop(tx);
    let off = never::<u32>();
    let got = sinew::select! {
        recv(rx) -> message => message,
        recv(off) -> message => message,
    };
    assert_eq!(got, Ok(1));
    // The task finds that it has to stand in line, and that there is none.
    assert!(matches!(
        poll_with(&mut task, Waker::noop()),
        Poll::Ready(Err(_))
    ));
    assert!(rx.recv().is_err());

    // Who waits when the channel closes gets it, too.
    let (tx, rx) = bounded(0);
    let runtime = runtime(1);
    let mut task = Box::pin(rx.recv_async());
    assert!(poll_with(&mut task, Waker::noop()).is_pending());
    let theirs = rx.clone();
    let other = runtime.spawn(move || theirs.recv());
    parked(&other);
    tx.send(2).unwrap();
    drop(tx);
    assert_eq!(other.join().unwrap(), Ok(2));
    drop(task);
    assert!(rx.try_recv().is_err());
}

#[test]
fn a_promise_that_is_given_up_or_leaked_does_not_hold_up_a_channel() {
    let _watch = watch();
    let (tx, rx) = bounded(1);
    tx.send(1).unwrap();
    let runtime = runtime(1);
    let mut select = Select::new();
    select.recv(&rx);
    let promised = select.select();
    let (ours, theirs) = (tx.clone(), rx.clone());
    let sender = runtime.spawn(move || ours.send(2));
    parked(&sender);
    let receiver = runtime.spawn(move || (theirs.recv(), theirs.recv()));
    parked(&receiver);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(promised)));
    assert!(dropped.is_err()); // as crossbeam's
    assert_eq!(receiver.join().unwrap(), (Ok(1), Ok(2)));
    sender.join().unwrap().unwrap();

    tx.send(3).unwrap();
    std::mem::forget(select.select());
    drop(select);
    drop(rx);
    assert_eq!(tx.len(), 0);
    assert!(tx.send(4).is_err());
}

#[test]
fn a_guard_dropped_by_the_waker_of_a_joiner_repays_a_fiber_that_has_ended() {
    let _watch = watch();
    let runtime = runtime(2);
    let mutex: &'static Mutex<()> = Box::leak(Box::new(Mutex::new(())));
    let guard: Arc<std::sync::Mutex<Option<MutexGuard<'static, ()>>>> = Arc::default();
    let (go, joined) = (Arc::new(Event::new()), Gate::new());
    let mut holder = runtime.spawn({
        let (guard, go) = (guard.clone(), go.clone());
        move || {
            *guard.lock().unwrap() = Some(mutex.lock());
            go.wait().unwrap();
        }
    });
    parked(&holder);
    let waker = Waker::from(Arc::new(Does({
        let (guard, joined) = (guard.clone(), joined.clone());
        move || {
            joined.spin(); // until the owner of the handle is gone
            drop(guard.lock().unwrap().take());
        }
    })));
    let polled = Pin::new(&mut holder).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let urgent = runtime.run(|| {
        let builder = sinew::Builder::new().priority(Priority::High);
        builder.spawn(move || drop(mutex.lock())).unwrap()
    });
    parked(&urgent); // and lends
    go.set();
    holder.join().unwrap();
    joined.open();
    // `join` may have been faster than the waker, which is not called then.
    drop(guard.lock().unwrap().take());
    urgent.join().unwrap();
}

#[test]
fn a_cancelled_fiber_is_told_so_where_it_must_not_wait() {
    let _watch = watch();
    let fiber = runtime(1).spawn(|| {
        sinew::current().cancel();
        let (tx, rx) = unbounded();
        sinew::no_suspend(|| {
            assert!(tx.send(1).unwrap_err().is_cancelled());
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            let told = sinew::select! {
                recv(rx) -> message => message.unwrap_err().is_cancelled(),
                default => false,
            };
            assert!(told);
        });
    });
    assert!(fiber.join().is_ok_and(|()| true));
}
