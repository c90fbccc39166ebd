//! What the points are, and how each is given what it waits for.

use super::super::HOUR;
use crate::harness::Gate;
use sinew::channel::{Receiver, RecvError, SendError, Sender, bounded, unbounded};
use sinew::sync::{
    AcquireError, Barrier, Condvar, Event, FairMutex, FairMutexGuard, Futex, FutexError, Future,
    LazyLock, Mutex, MutexGuard, Notify, Once, OnceLock, Promise, RwLock, RwLockReadGuard,
    RwLockWriteGuard, Semaphore, Sequencer, WaitFutureError, WaitGroup, promise,
};
use sinew::{Cancelled, Fiber};
use std::sync::{Arc, Mutex as StdMutex};

/// One place to wait at.
pub trait Point: Send + Sync {
    /// Waits there.
    fn wait(&self) -> Result<(), Cancelled>;

    /// Gives one waiter what it waits for, and does not wait itself.
    fn give(&self, _waiter: &Fiber) {}

    /// How many messages, permits and the like lie there.
    fn left(&self) -> usize {
        0
    }

    /// What can be said of [`give`](Self::give).
    fn gives(&self) -> Gives {
        Gives::AtOnce
    }
}

/// What can be said of [`Point::give`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gives {
    /// Nothing: only time ends the wait.
    Nothing,
    /// It has begun to when it returns.
    Later,
    /// The wait is decided when it returns.
    AtOnce,
    /// The same, and if nobody waits it is kept for the next.
    Kept,
}

/// A point made of closures, for those that need no more.
struct Plain<W, G> {
    gives: Gives,
    wait: W,
    give: G,
}

impl<W, G> Point for Plain<W, G>
where
    W: Fn() -> Result<(), Cancelled> + Send + Sync,
    G: Fn(&Fiber) + Send + Sync,
{
    fn wait(&self) -> Result<(), Cancelled> {
        (self.wait)()
    }

    fn give(&self, waiter: &Fiber) {
        (self.give)(waiter);
    }

    fn gives(&self) -> Gives {
        self.gives
    }
}

fn plain<W, G>(gives: Gives, wait: W, give: G) -> Arc<dyn Point>
where
    W: Fn() -> Result<(), Cancelled> + Send + Sync + 'static,
    G: Fn(&Fiber) + Send + Sync + 'static,
{
    Arc::new(Plain { gives, wait, give })
}

/// A wait for a lock that is held until it is given.
struct Held<G, W> {
    guard: StdMutex<Option<G>>,
    wait: W,
}

impl<G: Send, W: Fn() -> Result<(), Cancelled> + Send + Sync> Point for Held<G, W> {
    fn wait(&self) -> Result<(), Cancelled> {
        (self.wait)()
    }

    fn give(&self, _waiter: &Fiber) {
        let guard = self.guard.lock().unwrap().take();
        drop(guard);
    }

    fn gives(&self) -> Gives {
        Gives::Kept
    }
}

fn held<G, W>(guard: G, wait: W) -> Arc<dyn Point>
where
    G: Send + 'static,
    W: Fn() -> Result<(), Cancelled> + Send + Sync + 'static,
{
    let guard = StdMutex::new(Some(guard));
    Arc::new(Held { guard, wait })
}

struct Receive(Sender<u8>, Receiver<u8>);

impl Point for Receive {
    fn wait(&self) -> Result<(), Cancelled> {
        match self.1.recv() {
            Ok(message) => assert_eq!(message, 7),
            Err(RecvError::Cancelled) => return Err(Cancelled),
            Err(error) => panic!("{error}"),
        }
        Ok(())
    }

    fn give(&self, _waiter: &Fiber) {
        self.0.try_send(7).unwrap();
    }

    fn left(&self) -> usize {
        self.1.len()
    }

    fn gives(&self) -> Gives {
        match self.0.capacity() {
            Some(0) => Gives::AtOnce,
            _ => Gives::Kept,
        }
    }
}

/// A send into a channel that is full.
struct Send_(Sender<u8>, Receiver<u8>);

impl Point for Send_ {
    fn wait(&self) -> Result<(), Cancelled> {
        match self.0.send(7) {
            Ok(()) => Ok(()),
            Err(SendError::Cancelled(message)) => {
                assert_eq!(message, 7);
                Err(Cancelled)
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn give(&self, _waiter: &Fiber) {
        assert_eq!(self.1.try_recv(), Ok(7));
    }

    fn left(&self) -> usize {
        self.1.len()
    }
}

fn sender(capacity: usize) -> Arc<dyn Point> {
    let (tx, rx) = bounded(capacity);
    (0..capacity).for_each(|_| tx.send(7).unwrap());
    Arc::new(Send_(tx, rx))
}

struct Selected(Sender<u8>, Receiver<u8>, Event);

impl Point for Selected {
    fn wait(&self) -> Result<(), Cancelled> {
        sinew::select! {
            recv(self.1) -> message => match message {
                Ok(message) => assert_eq!(message, 7),
                Err(error) => {
                    assert_eq!(error, RecvError::Cancelled);
                    return Err(Cancelled);
                }
            },
            wait(&self.2) -> set => set.unwrap(),
        }
        Ok(())
    }

    fn give(&self, _waiter: &Fiber) {
        self.0.try_send(7).unwrap();
    }

    fn left(&self) -> usize {
        self.1.len()
    }

    fn gives(&self) -> Gives {
        Gives::Kept
    }
}

struct Permits(Semaphore);

impl Point for Permits {
    fn wait(&self) -> Result<(), Cancelled> {
        match self.0.acquire() {
            Ok(permit) => permit.forget(),
            Err(AcquireError::Cancelled) => return Err(Cancelled),
            Err(error) => panic!("{error}"),
        }
        Ok(())
    }

    fn give(&self, _waiter: &Fiber) {
        self.0.add_permits(1);
    }

    fn left(&self) -> usize {
        self.0.available_permits()
    }

    fn gives(&self) -> Gives {
        Gives::Kept
    }
}

/// Two parts of one promise: who waits takes the future out.
struct Promised(StdMutex<Option<Promise<u8>>>, StdMutex<Option<Future<u8>>>);

impl Point for Promised {
    fn wait(&self) -> Result<(), Cancelled> {
        let mut future = self.1.lock().unwrap().take().unwrap();
        let answer = future.wait();
        *self.1.lock().unwrap() = Some(future);
        match answer {
            Ok(value) => assert_eq!(value, 7),
            Err(WaitFutureError::Cancelled) => return Err(Cancelled),
            Err(error) => panic!("{error}"),
        }
        Ok(())
    }

    fn give(&self, _waiter: &Fiber) {
        let promise = self.0.lock().unwrap().take().unwrap();
        promise.set(7).unwrap();
    }

    fn gives(&self) -> Gives {
        Gives::Kept
    }
}

/// A wait for something that another fiber does once the gate is open.
struct Gated<W>(Gate, W);

impl<W: Fn() -> Result<(), Cancelled> + Send + Sync> Point for Gated<W> {
    fn wait(&self) -> Result<(), Cancelled> {
        (self.1)()
    }

    fn give(&self, _waiter: &Fiber) {
        self.0.open();
    }

    fn gives(&self) -> Gives {
        Gives::Later
    }
}

impl<W> Drop for Gated<W> {
    fn drop(&mut self) {
        self.0.open(); // else that fiber would never end
    }
}

fn of_a_fiber() -> Arc<dyn Point> {
    let gate = Gate::new();
    let theirs = gate.clone();
    let fiber = sinew::spawn(move || theirs.pass()).fiber();
    Arc::new(Gated(gate, move || fiber.wait()))
}

/// Somebody else is in the initialiser.
fn of_a_lazy() -> Arc<dyn Point> {
    let (gate, begun) = (Gate::new(), Gate::new());
    let theirs = (gate.clone(), begun.clone());
    let lazy = leaked(LazyLock::new(move || {
        theirs.1.open();
        theirs.0.pass();
    }));
    sinew::spawn(|| {
        LazyLock::force(lazy);
    });
    begun.pass();
    Arc::new(Gated(gate, || LazyLock::force_or_cancelled(lazy).map(drop)))
}

/// The same of a [`Once`].
fn of_a_call() -> Arc<dyn Point> {
    let (gate, begun) = (Gate::new(), Gate::new());
    let theirs = (gate.clone(), begun.clone());
    let once = leaked(Once::new());
    sinew::spawn(move || {
        once.call_once(|| {
            theirs.1.open();
            theirs.0.pass();
        });
    });
    begun.pass();
    Arc::new(Gated(gate, || {
        once.call_once_or_cancelled(|| panic!("another does that"))
    }))
}

fn of_a_group() -> Arc<dyn Point> {
    let group = Arc::new(StdMutex::new(Some(WaitGroup::new())));
    let theirs = group.clone();
    let wait = move || {
        let member = theirs.lock().unwrap().clone();
        member.unwrap_or_default().wait_or_cancelled()
    };
    plain(Gives::Kept, wait, move |_| {
        let last = group.lock().unwrap().take();
        drop(last);
    })
}

fn of_a_condvar() -> Arc<dyn Point> {
    let pair = Arc::new((Mutex::new(()), Condvar::new()));
    let theirs = pair.clone();
    let wait = move || theirs.1.wait_or_cancelled(theirs.0.lock()).1;
    plain(Gives::AtOnce, wait, move |_| pair.1.notify_one())
}

fn of_a_futex() -> Arc<dyn Point> {
    let futex = Arc::new(Futex::new());
    let theirs = futex.clone();
    let wait = move || match theirs.wait(1) {
        Ok(()) => Ok(()),
        Err(FutexError::Cancelled) => Err(Cancelled),
        Err(error) => panic!("{error}"),
    };
    plain(Gives::Kept, wait, move |_| {
        futex.post();
    })
}

/// A lock for ever, so that its guard can be kept anywhere.
fn leaked<T>(lock: T) -> &'static T {
    Box::leak(Box::new(lock))
}

fn locks() -> Vec<(&'static str, Arc<dyn Point>)> {
    let mutex = leaked(Mutex::new(0));
    let guard: MutexGuard<'static, _> = mutex.lock();
    let of_mutex = held(guard, || mutex.lock_or_cancelled().map(drop));
    let fair = leaked(FairMutex::new(0));
    let guard: FairMutexGuard<'static, _> = fair.lock();
    let of_fair = held(guard, || fair.lock_or_cancelled().map(drop));
    let fair = leaked(FairMutex::new(0));
    let of_ticket = held(fair.lock(), || fair.ticket().lock_or_cancelled().map(drop));
    let readable = leaked(RwLock::new(0));
    let guard: RwLockWriteGuard<'static, _> = readable.write();
    let of_read = held(guard, || readable.read_or_cancelled().map(drop));
    let writable = leaked(RwLock::new(0));
    let guard: RwLockReadGuard<'static, _> = writable.read();
    let of_write = held(guard, || writable.write_or_cancelled().map(drop));
    vec![
        ("Mutex", of_mutex),
        ("FairMutex", of_fair),
        ("Ticket", of_ticket),
        ("RwLock, reading", of_read),
        ("RwLock, writing", of_write),
    ]
}

/// All of them, new each time.
pub fn points() -> Vec<(&'static str, Arc<dyn Point>)> {
    use Gives::{AtOnce, Kept, Nothing};
    let (zero_tx, zero_rx) = bounded(0);
    let (one_tx, one_rx) = bounded(1);
    let (tx, rx) = unbounded();
    let (select_tx, select_rx) = bounded(1);
    let (promise, future) = promise();
    let event = leaked(Event::new());
    let notify = leaked(Notify::new());
    let sequencer = leaked(Sequencer::new());
    let barrier = leaked(Barrier::new(2));
    let once = leaked(Once::new());
    let cell = leaked(OnceLock::new());
    let of_barrier = || barrier.wait_or_cancelled().map(drop);
    let mut all: Vec<(&'static str, Arc<dyn Point>)> = vec![
        ("sleep", plain(Nothing, || sinew::sleep(HOUR), |_| ())),
        (
            "interval",
            plain(Nothing, || sinew::interval(HOUR).tick().map(drop), |_| ()),
        ),
        ("Fiber::wait", of_a_fiber()),
        ("recv, no room", Arc::new(Receive(zero_tx, zero_rx))),
        ("recv, room for one", Arc::new(Receive(one_tx, one_rx))),
        ("recv, any room", Arc::new(Receive(tx, rx))),
        ("send, no room", sender(0)),
        ("send, room for one", sender(1)),
        (
            "select",
            Arc::new(Selected(select_tx, select_rx, Event::new())),
        ),
        ("Semaphore", Arc::new(Permits(Semaphore::new(0)))),
        (
            "Future",
            Arc::new(Promised(
                StdMutex::new(Some(promise)),
                StdMutex::new(Some(future)),
            )),
        ),
        ("Event", plain(Kept, || event.wait(), |_| event.set())),
        (
            "Notify",
            plain(Kept, || notify.wait(), |_| notify.notify_one()),
        ),
        ("Futex", of_a_futex()),
        (
            "Sequencer",
            plain(
                Kept,
                || sequencer.wait(1),
                |_| {
                    sequencer.increment();
                },
            ),
        ),
        ("Condvar", of_a_condvar()),
        (
            "Barrier",
            plain(AtOnce, of_barrier, |_| {
                barrier.wait();
            }),
        ),
        (
            "Once",
            plain(Kept, || once.wait_or_cancelled(), |_| once.call_once(|| ())),
        ),
        (
            "OnceLock",
            plain(
                Kept,
                || cell.wait_or_cancelled().map(drop),
                |_| {
                    cell.set(1).unwrap();
                },
            ),
        ),
        ("LazyLock", of_a_lazy()),
        ("Once::call_once", of_a_call()),
        ("WaitGroup", of_a_group()),
        (
            "park",
            plain(AtOnce, sinew::park_or_cancelled, |waiter| waiter.unpark()),
        ),
    ];
    all.extend(locks());
    all
}
