//! Every operation that may wait, on something that makes it wait.

use super::channels::{Receiving, Release, Sending};
use super::locks::{Held, Reading, Ticketed, Writing};
use sinew::Cancelled;
use sinew::sync::{
    AcquireError, AcquireTimeoutError, Barrier, Broken, Condvar, Event, FairMutex, Futex,
    FutexError, FutexTimeoutError, Future, Mutex, Notify, Once, OnceLock, Promise, Semaphore,
    Sequencer, TimedOut, WaitFutureError, WaitFutureTimeoutError, WaitGroup, WaitTimeoutError,
    promise,
};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Without a limit; a point for those operations that are.
    Plain,
    /// This long at most.
    For(Duration),
    /// As a point, by the twin of those that are none.
    OrCancelled,
}

/// Why a wait ended without what it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    Timeout,
    Cancelled,
}

pub type Answer = Result<(), Early>;
pub type BoxFuture = Pin<Box<dyn std::future::Future<Output = ()> + Send>>;

/// Something to wait for, until it is released.
pub trait Operation: Send + Sync {
    /// Waits here; what it got it gives back at once.
    fn wait(&self, how: How) -> Answer;
    /// The twin for async code.
    fn wait_async(self: Arc<Self>) -> BoxFuture;
    /// Lets one waiter go, or all; called once, from anywhere.
    fn release(&self);
}

/// What is to be known of an operation, and how to make one for so many
/// waiters.
pub struct Case {
    pub name: &'static str,
    /// Is the plain wait a cancellation point?
    pub point: bool,
    /// May several wait at once?
    pub many: bool,
    /// Does a release that came first let a later waiter pass?
    pub remembers: bool,
    /// Do waiters release each other?
    pub gathers: bool,
    /// Has a wait that was claimed done its part, also if its future is dropped?
    pub done_when_claimed: bool,
    pub make: fn(waiters: usize) -> Arc<dyn Operation>,
}

const fn case(name: &'static str, make: fn(usize) -> Arc<dyn Operation>) -> Case {
    Case {
        name,
        point: false,
        many: true,
        remembers: true,
        gathers: false,
        done_when_claimed: false,
        make,
    }
}

const fn point(name: &'static str, make: fn(usize) -> Arc<dyn Operation>) -> Case {
    let mut case = case(name, make);
    case.point = true;
    case
}

impl Case {
    const fn for_one(mut self) -> Self {
        self.many = false;
        self
    }

    const fn forgets(mut self) -> Self {
        self.remembers = false;
        self
    }

    const fn gathers(mut self) -> Self {
        self.gathers = true;
        self.done_when_claimed()
    }

    const fn done_when_claimed(mut self) -> Self {
        self.done_when_claimed = true;
        self
    }
}

pub const CASES: &[Case] = &[
    case("Mutex::lock", |_| Held::make(|| Arc::new(Mutex::new(())))),
    case("FairMutex::lock", |_| {
        Held::make(|| Arc::new(FairMutex::new(())))
    }),
    case("Ticket::lock", |_| {
        Held::make(|| Arc::new(Ticketed::default()))
    }),
    case("RwLock::write", |_| {
        Held::make(|| Arc::new(Writing::default()))
    }),
    case("RwLock::read", |_| {
        Held::make(|| Arc::new(Reading::default()))
    }),
    case("Condvar::wait", |_| Arc::new(Signalled::default())).forgets(),
    point("Semaphore::acquire", |_| {
        Arc::new(Acquiring(Semaphore::new(0)))
    }),
    point("Semaphore::acquire_many", |_| {
        Arc::new(AcquiringMany(Arc::new(Semaphore::new(1))))
    }),
    case("Barrier::wait", |waiters| {
        Arc::new(Meeting(Arc::new(Barrier::new(waiters + 1))))
    })
    .gathers(),
    case("Once::wait", |_| Arc::new(Once::new())),
    case("OnceLock::wait", |_| Arc::new(OnceLock::<u32>::new())),
    case("WaitGroup::wait", |_| Arc::new(Group::default())),
    point("Event::wait", |_| Arc::new(Event::new())),
    point("Notify::wait", |_| Arc::new(Notify::new())),
    point("Futex::wait", |_| Arc::new(Futex::new())),
    point("Sequencer::wait", |_| Arc::new(Sequencer::new())),
    point("Future::wait", |_| Arc::new(Promised::new())).for_one(),
    point("Receiver::recv", |_| {
        Receiving::make(Some(1), Release::Message)
    }),
    point("Receiver::recv, unbounded", |_| {
        Receiving::make(None, Release::Message)
    }),
    point("Receiver::recv, capacity 0", |_| {
        Receiving::make(Some(0), Release::Message)
    }),
    point("Receiver::recv, the end", |_| {
        Receiving::make(Some(1), Release::Disconnection)
    }),
    point("Sender::send", |_| Sending::make(2)).done_when_claimed(),
    point("Sender::send, capacity 0", |_| Sending::make(0)).done_when_claimed(),
];

pub fn timed_out(_: TimedOut) -> Early {
    Early::Timeout
}

pub fn cancelled(_: Cancelled) -> Early {
    Early::Cancelled
}

fn limited(error: WaitTimeoutError) -> Early {
    match error {
        WaitTimeoutError::Timeout => Early::Timeout,
        WaitTimeoutError::Cancelled => Early::Cancelled,
        _ => panic!("{error:?}"),
    }
}

/// A condition variable; a release is one notification.
#[derive(Default)]
struct Signalled(Mutex<()>, Condvar);

impl Operation for Signalled {
    fn wait(&self, how: How) -> Answer {
        let guard = self.0.lock();
        match how {
            How::Plain => drop(self.1.wait(guard)),
            How::For(time) => {
                if self.1.wait_timeout(guard, time).1.timed_out() {
                    return Err(Early::Timeout);
                }
            }
            How::OrCancelled => self.1.wait_or_cancelled(guard).1.map_err(cancelled)?,
        }
        Ok(())
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move {
            let guard = self.0.lock_async().await;
            drop(self.1.wait_async(guard).await);
        })
    }

    fn release(&self) {
        self.1.notify_one();
    }
}

fn acquired(error: AcquireError) -> Early {
    match error {
        AcquireError::Cancelled => Early::Cancelled,
        _ => panic!("{error:?}"),
    }
}

fn acquired_in_time(error: AcquireTimeoutError) -> Early {
    match error {
        AcquireTimeoutError::Timeout => Early::Timeout,
        AcquireTimeoutError::Cancelled => Early::Cancelled,
        _ => panic!("{error:?}"),
    }
}

struct Acquiring(Semaphore);

impl Operation for Acquiring {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::For(time) => drop(self.0.acquire_timeout(time).map_err(acquired_in_time)?),
            _ => drop(self.0.acquire().map_err(acquired)?),
        }
        Ok(())
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { drop(self.0.acquire_async().await.unwrap()) })
    }

    fn release(&self) {
        self.0.add_permits(1);
    }
}

/// Three at once, owned, of which one is there before.
struct AcquiringMany(Arc<Semaphore>);

impl Operation for AcquiringMany {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::For(time) => {
                let permits = self.0.acquire_many_timeout(3, time);
                drop(permits.map_err(acquired_in_time)?);
            }
            _ => drop(self.0.clone().acquire_many_owned(3).map_err(acquired)?),
        }
        Ok(())
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        let permits = self.0.clone().acquire_many_owned_async(3);
        Box::pin(async move { drop(permits.await.unwrap()) })
    }

    fn release(&self) {
        self.0.add_permits(2);
    }
}

/// A release is the last to arrive.
struct Meeting(Arc<Barrier>);

impl Operation for Meeting {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::Plain => {
                self.0.wait();
            }
            How::For(time) => {
                self.0.wait_timeout(time).map_err(timed_out)?;
            }
            How::OrCancelled => {
                self.0.wait_or_cancelled().map_err(cancelled)?;
            }
        }
        Ok(())
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move {
            self.0.wait_async().await;
        })
    }

    fn release(&self) {
        let barrier = self.0.clone();
        // It waits as well, if it is not the last.
        std::thread::spawn(move || barrier.wait().is_leader());
    }
}

impl Operation for Once {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::Plain => Once::wait(self),
            How::For(time) => self.wait_timeout(time).map_err(timed_out)?,
            How::OrCancelled => self.wait_or_cancelled().map_err(cancelled)?,
        }
        Ok(())
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { Once::wait_async(&self).await })
    }

    fn release(&self) {
        self.call_once(|| ());
    }
}

impl Operation for OnceLock<u32> {
    fn wait(&self, how: How) -> Answer {
        let value = match how {
            How::Plain => OnceLock::wait(self),
            How::For(time) => self.wait_timeout(time).map_err(timed_out)?,
            How::OrCancelled => self.wait_or_cancelled().map_err(cancelled)?,
        };
        assert_eq!(*value, 5);
        Ok(())
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { assert_eq!(*OnceLock::wait_async(&self).await, 5) })
    }

    fn release(&self) {
        assert_eq!(*self.get_or_init(|| 5), 5);
    }
}

/// Released when its own part is dropped.
struct Group(std::sync::Mutex<Option<WaitGroup>>);

impl Default for Group {
    fn default() -> Self {
        Self(std::sync::Mutex::new(Some(WaitGroup::new())))
    }
}

impl Group {
    fn clone_of(&self) -> WaitGroup {
        self.0.lock().unwrap().clone().unwrap_or_default()
    }
}

impl Operation for Group {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::Plain => self.clone_of().wait(),
            How::For(time) => self
                .clone_of()
                .wait_timeout(time)
                .map_err(|_| Early::Timeout)?,
            How::OrCancelled => self.clone_of().wait_or_cancelled().map_err(cancelled)?,
        }
        Ok(())
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(self.clone_of().wait_async())
    }

    fn release(&self) {
        drop(self.0.lock().unwrap().take());
    }
}

impl Operation for Event {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::For(time) => self.wait_timeout(time).map_err(limited),
            _ => Event::wait(self).map_err(cancelled),
        }
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { Event::wait_async(&self).await })
    }

    fn release(&self) {
        self.set();
    }
}

impl Operation for Notify {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::For(time) => self.wait_timeout(time).map_err(limited),
            _ => Notify::wait(self).map_err(cancelled),
        }
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { Notify::wait_async(&self).await })
    }

    fn release(&self) {
        self.notify_one();
    }
}

impl Operation for Futex {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::For(time) => self.wait_timeout(1, time).map_err(|error| match error {
                FutexTimeoutError::Timeout => Early::Timeout,
                FutexTimeoutError::Cancelled => Early::Cancelled,
                _ => panic!("{error:?}"),
            }),
            _ => Futex::wait(self, 1).map_err(|error| match error {
                FutexError::Cancelled => Early::Cancelled,
                _ => panic!("{error:?}"),
            }),
        }
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { Futex::wait_async(&self, 1).await.unwrap() })
    }

    fn release(&self) {
        self.post();
    }
}

impl Operation for Sequencer {
    fn wait(&self, how: How) -> Answer {
        match how {
            How::For(time) => self.wait_timeout(1, time).map_err(limited),
            _ => Sequencer::wait(self, 1).map_err(cancelled),
        }
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { Sequencer::wait_async(&self, 1).await })
    }

    fn release(&self) {
        self.increment();
    }
}

/// A future that is lent to one waiter after the other.
struct Promised {
    promise: std::sync::Mutex<Option<Promise<u32>>>,
    future: std::sync::Mutex<Option<Future<u32>>>,
    takes: AtomicUsize,
}

impl Promised {
    fn new() -> Self {
        let (promise, future) = promise();
        Self {
            promise: std::sync::Mutex::new(Some(promise)),
            future: std::sync::Mutex::new(Some(future)),
            takes: AtomicUsize::new(0),
        }
    }
}

/// Puts the future back, whatever happens.
struct Lent(Arc<Promised>, Option<Future<u32>>);

impl Drop for Lent {
    fn drop(&mut self) {
        *self.0.future.lock().unwrap() = self.1.take();
    }
}

impl Operation for Promised {
    fn wait(&self, how: How) -> Answer {
        let mut future = self.future.lock().unwrap().take().expect("one waiter");
        let answer = match how {
            How::For(time) => future.wait_timeout(time).map_err(|error| match error {
                WaitFutureTimeoutError::Timeout => Early::Timeout,
                WaitFutureTimeoutError::Cancelled => Early::Cancelled,
                _ => panic!("{error:?}"),
            }),
            _ => future.wait().map_err(|error| match error {
                WaitFutureError::Cancelled => Early::Cancelled,
                _ => panic!("{error:?}"),
            }),
        };
        *self.future.lock().unwrap() = Some(future);
        answer.map(|value| {
            assert_eq!(value, 7);
            assert_eq!(self.takes.fetch_add(1, Ordering::SeqCst), 0);
        })
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        let future = self.future.lock().unwrap().take();
        let mut lent = Lent(self, future);
        Box::pin(async move {
            let value: Result<u32, Broken> = lent.1.as_mut().expect("one waiter").await;
            assert_eq!(value, Ok(7));
        })
    }

    fn release(&self) {
        let promise = self.promise.lock().unwrap().take().unwrap();
        promise.set(7).unwrap();
    }
}
