//! What all of them have in common: great numbers, strange wakers, places where
//! waiting is forbidden, errors, and traits.

use super::poll::ByHand;
use super::{parked, settle, spawn_parked};
use crate::harness::{in_fibers, panic_expected, runtime, watch};
use sinew::sync::{
    AcquireError, AcquireTimeoutError, Barrier, Broken, Condvar, Event, FairMutex, Futex,
    FutexError, FutexTimeoutError, LazyLock, Mutex, Notify, Once, OnceLock, RwLock, Semaphore,
    Sequencer, TimedOut, TryAcquireError, TryLockError, WaitFutureError, WaitFutureTimeoutError,
    WaitGroup, WaitTimeoutError, promise,
};
use sinew::{Builder, JoinHandle, no_suspend};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

/// More than fit into a byte, and into any small array.
const MANY: usize = 300;

/// So many fibers that wait by `wait`.
fn many<S: Send + Sync + 'static>(shared: &Arc<S>, wait: fn(&S)) -> impl FnOnce() + use<S> {
    let waiters: Vec<JoinHandle<()>> = (0..MANY)
        .map(|_| {
            let shared = shared.clone();
            spawn_parked(move || wait(&shared))
        })
        .collect();
    move || {
        waiters
            .into_iter()
            .for_each(|waiter| waiter.join().unwrap())
    }
}

#[test]
fn a_great_many_are_released_at_once() {
    in_fibers(|| {
        let event = Arc::new(Event::new());
        let ended = many(&event, |event| event.wait().unwrap());
        event.set();
        ended();

        let notify = Arc::new(Notify::new());
        let ended = many(&notify, |notify| notify.wait().unwrap());
        notify.notify_waiters();
        ended();

        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let ended = many(&pair, |pair| *pair.1.wait(pair.0.lock()) += 1);
        pair.1.notify_all();
        ended();
        assert_eq!(*pair.0.lock(), MANY);

        let semaphore = Arc::new(Semaphore::new(0));
        let ended = many(&semaphore, |it| it.acquire().unwrap().forget());
        semaphore.add_permits(MANY);
        ended();
        assert_eq!(semaphore.available_permits(), 0);

        let lock = Arc::new(RwLock::new(7));
        let guard = lock.write();
        let ended = many(&lock, |lock| assert_eq!(*lock.read(), 7));
        drop(guard);
        ended();

        let barrier = Arc::new(Barrier::new(MANY + 1));
        let ended = many(&barrier, |barrier| assert!(!barrier.wait().is_leader()));
        assert!(barrier.wait().is_leader());
        ended();

        let sequencer = Arc::new(Sequencer::new());
        let ended = many(&sequencer, |sequencer| sequencer.wait(9).unwrap());
        assert!(sequencer.advance(9));
        ended();

        let futex = Arc::new(Futex::new());
        let ended = many(&futex, |futex| futex.wait(1).unwrap());
        futex.post();
        ended();

        let once = Arc::new(Once::new());
        let ended = many(&once, Once::wait);
        once.call_once(|| ());
        ended();
    });
}

#[test]
fn a_great_many_take_turns() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.lock();
        let ended = many(&mutex, |mutex| *mutex.lock() += 1);
        drop(guard);
        ended();
        assert_eq!(*mutex.lock(), MANY);

        let mutex = Arc::new(FairMutex::new(0));
        let guard = mutex.lock();
        let ended = many(&mutex, |mutex| *mutex.lock() += 1);
        drop(guard);
        ended();
        assert_eq!(*mutex.lock(), MANY);

        let lock = Arc::new(RwLock::new(0));
        let guard = lock.read();
        let ended = many(&lock, |lock| *lock.write() += 1);
        drop(guard);
        ended();
        assert_eq!(*lock.read(), MANY);
    });
}

#[test]
fn fibers_and_a_great_many_futures_are_released_together() {
    let _watch = watch();
    let runtime = runtime(1);
    let event = Arc::new(Event::new());
    let mut futures = Vec::new();
    let mut fibers = Vec::new();
    for i in 0..MANY {
        futures.push(ByHand::waiting(event.wait_async()));
        if i % 10 == 0 {
            let event = event.clone();
            let fiber = runtime.spawn(move || event.wait());
            parked(&fiber);
            fibers.push(fiber);
        }
    }
    event.set();
    event.reset();
    for future in futures {
        future.woken();
    }
    for fiber in fibers {
        fiber.join().unwrap().unwrap();
    }
}

/// Sets another event when woken.
struct Chain(Arc<Event>);

impl Wake for Chain {
    fn wake(self: Arc<Self>) {
        self.0.set();
        self.0.reset();
        self.0.set();
    }
}

#[test]
fn a_waker_may_use_the_primitive_that_calls_it() {
    let _watch = watch();
    let event = Arc::new(Event::new());
    let waker = Waker::from(Arc::new(Chain(event.clone())));
    let mut first = Box::pin(event.wait_async());
    let polled = first.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let second = ByHand::waiting(event.wait_async());
    event.set(); // calls the waker, which sets it again
    second.woken();
    assert!(event.is_set());
}

/// Panics when woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic_expected(1)
    }
}

#[test]
fn a_waker_that_panics_harms_neither_who_wakes_it_nor_the_others() {
    let _watch = watch();
    let runtime = runtime(1);
    let event = Arc::new(Event::new());
    let theirs = event.clone();
    let fiber = runtime.spawn(move || theirs.wait());
    parked(&fiber);
    let before = ByHand::waiting(event.wait_async());
    let waker = Waker::from(Arc::new(Panics));
    let mut panics = Box::pin(event.wait_async());
    let polled = panics.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let after = ByHand::waiting(event.wait_async());
    // Nor does it get to who sets the event.
    event.set();
    before.woken();
    after.woken();
    assert_eq!(fiber.join().unwrap(), Ok(()));
    assert!(event.is_set());
}

#[test]
fn where_waiting_is_forbidden_what_is_there_is_had_and_all_else_panics() {
    in_fibers(|| {
        let mutex = Mutex::new(1);
        let fair = FairMutex::new(1);
        let lock = RwLock::new(1);
        let semaphore = Semaphore::new(1);
        let event = Event::new();
        let once = OnceLock::new();
        let (promise, mut future) = promise();
        promise.set(5).unwrap();
        no_suspend(|| {
            assert_eq!(*mutex.lock() + *fair.lock() + *lock.read(), 3);
            *lock.write() += 1;
            assert!(semaphore.acquire().is_ok());
            event.set();
            assert_eq!(event.wait(), Ok(()));
            assert_eq!(*once.get_or_init(|| 3), 3);
            assert_eq!(future.wait(), Ok(5));
        });
        event.reset();
        let _guards = (mutex.lock(), fair.lock(), lock.write());
        let _permit = semaphore.acquire().unwrap();
        let refused: [&dyn Fn(); 6] = [
            &|| drop(mutex.lock()),
            &|| drop(fair.lock()),
            &|| drop(lock.read()),
            &|| drop(lock.write()),
            &|| drop(semaphore.acquire()),
            &|| event.wait().unwrap(),
        ];
        for (i, wait) in refused.into_iter().enumerate() {
            let caught = catch_unwind(AssertUnwindSafe(|| no_suspend(wait)));
            let payload = caught.unwrap_err();
            let text = payload.downcast_ref::<&str>().unwrap();
            assert!(text.contains("no_suspend"), "{i}: {text}");
        }
        // None of them stands in a line that it has left.
        drop(_guards);
        drop(_permit);
        event.set();
        assert!(mutex.try_lock().is_ok() && fair.try_lock().is_ok());
        assert!(lock.try_write().is_ok() && semaphore.try_acquire().is_ok());
    });
}

#[test]
fn what_is_dropped_under_a_lock_may_wait() {
    // A value's destructor runs where it is dropped, and may use the lock's
    // worker as any code may.
    struct Waits(Arc<Event>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.wait().unwrap();
        }
    }
    in_fibers(|| {
        let event = Arc::new(Event::new());
        let mutex = Arc::new(Mutex::new(Some(Waits(event.clone()))));
        let theirs = mutex.clone();
        let holder = spawn_parked(move || *theirs.lock() = None);
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || theirs.lock().is_none());
        settle();
        assert!(!waiter.is_finished());
        event.set();
        holder.join().unwrap();
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn a_daemon_that_waits_at_a_point_ends_with_its_runtime() {
    let _watch = watch();
    let waits: [fn() -> bool; 6] = [
        || Event::new().wait().is_err(),
        || Notify::new().wait().is_err(),
        || Futex::new().wait_next().is_err(),
        || Sequencer::new().wait(1).is_err(),
        || Semaphore::new(0).acquire().is_err(),
        || {
            let (_promise, mut future) = promise::<u8>();
            future.wait().is_err()
        },
    ];
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let ended = Arc::new(AtomicUsize::new(0));
        for wait in waits {
            let ended = ended.clone();
            let daemon = Builder::new().daemon(true);
            let fiber = daemon.spawn_on(&runtime.handle(), move || {
                ended.fetch_add(usize::from(wait()), Ordering::SeqCst);
            });
            parked(&fiber.unwrap());
        }
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        drop(runtime);
        assert_eq!(ended.load(Ordering::SeqCst), waits.len());
    }
}

#[test]
fn every_error_says_what_happened() {
    let errors: Vec<Box<dyn std::error::Error + Send + Sync>> = vec![
        TimedOut.into(),
        WaitTimeoutError::Timeout.into(),
        WaitTimeoutError::Cancelled.into(),
        TryLockError::WouldBlock.into(),
        AcquireError::Closed.into(),
        AcquireError::Cancelled.into(),
        TryAcquireError::NoPermits.into(),
        TryAcquireError::Closed.into(),
        AcquireTimeoutError::Timeout.into(),
        AcquireTimeoutError::Closed.into(),
        AcquireTimeoutError::Cancelled.into(),
        FutexError::Stopped.into(),
        FutexError::Cancelled.into(),
        FutexTimeoutError::Timeout.into(),
        FutexTimeoutError::Stopped.into(),
        FutexTimeoutError::Cancelled.into(),
        Broken.into(),
        WaitFutureError::Broken.into(),
        WaitFutureError::Cancelled.into(),
        WaitFutureTimeoutError::Timeout.into(),
        WaitFutureTimeoutError::Broken.into(),
        WaitFutureTimeoutError::Cancelled.into(),
    ];
    for error in errors {
        let (shown, name) = (error.to_string(), format!("{error:?}"));
        assert!(shown.len() > 4 && shown != name, "{name}: {shown}");
        let expected = [
            ("Timeout", "timed out"),
            ("TimedOut", "timed out"),
            ("Cancelled", "cancelled"),
            ("Closed", "closed"),
            ("Stopped", "stopped"),
        ];
        for (variant, word) in expected {
            assert!(name != variant || shown.contains(word), "{name}: {shown}");
        }
    }
}

#[test]
fn all_are_shared_and_cross_catch_unwind_as_std_s_do() {
    fn shared<T: Send + Sync>() {}
    fn unwinds<T: UnwindSafe + RefUnwindSafe>() {}
    shared::<(Mutex<u8>, FairMutex<u8>, RwLock<u8>, Condvar, Semaphore)>();
    shared::<(Barrier, Once, OnceLock<u8>, LazyLock<u8>, WaitGroup)>();
    shared::<(Event, Notify, Futex, Sequencer)>();
    unwinds::<(Mutex<u8>, FairMutex<u8>, RwLock<u8>, Condvar, Semaphore)>();
    unwinds::<(Barrier, Once, OnceLock<u8>, LazyLock<u8>, WaitGroup)>();
    unwinds::<(Event, Notify, Futex, Sequencer)>();
}
