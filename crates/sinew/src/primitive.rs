//! The loom shim: every atomic, lock and cell that a model checks comes from here.
//!
//! Built normally these are std's; built with `--cfg loom` they are loom's, so
//! that the very code that ships is what a model runs. Statics cannot be loom's;
//! they use `std` directly. Words that the kernel reads are loom's only because
//! a model replaces the kernel too: see `futex` and `poll` at the end.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard as LockGuard;

/// Whether this is a model: loom's types are larger than the real ones.
pub(crate) const MODELLED: bool = cfg!(loom);

/// A `const fn`; in a model a plain one, since loom's types have no constant
/// constructors.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $($rest)*
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $($rest)*
    };
}
pub(crate) use const_fn;

/// Lets other threads run, in a wait that is short by design.
pub(crate) fn yield_thread() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// The lock of `sys::lock`, in a model.
#[cfg(loom)]
pub(crate) struct Lock<T>(Mutex<T>);

#[cfg(loom)]
impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        self.0
            .lock()
            .expect("no model panics under a lock and goes on")
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("as above")
    }
}

#[cfg(loom)]
impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

/// Stands for the kernel's futex in a model; `sys::futex` is this then.
///
/// "Look at the word, and sleep" is one step against `wake_one`, as the kernel
/// promises. A sleep that nobody ends is loom's deadlock. A timeout is over at
/// once. One thing is stronger than we may rely on: loom orders an `unpark`
/// before the end of the sleep that it ends. So the words' own orderings are
/// only seen where a wake comes before the sleep, which each model has too.
#[cfg(loom)]
pub(crate) mod futex {
    use super::{AtomicU32, Ordering};
    use loom::thread::{self, Thread};
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    struct Sleeper {
        number: usize,
        word: *const AtomicU32,
        thread: Thread,
    }

    std::thread_local! {
        // A model runs all its threads on one OS thread and switches only in
        // loom's own calls, so these need no care.
        static SLEEPERS: RefCell<Vec<Sleeper>> = const { RefCell::new(Vec::new()) };
        static NEXT: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        // A read-modify-write sees the newest value, as the kernel does under
        // its lock; a load might see an older one. It must fail: for one that
        // writes, loom does not say whether a plain store came before or after.
        let (absurd, relaxed) = (!expected, Ordering::Relaxed);
        let newest = word.compare_exchange(absurd, absurd, relaxed, relaxed);
        if newest != Err(expected) || timeout.is_some() {
            return;
        }
        // No switch since the look above.
        let number = NEXT.replace(NEXT.get() + 1);
        SLEEPERS.with_borrow_mut(|sleepers| {
            sleepers.push(Sleeper {
                number,
                word,
                thread: thread::current(),
            });
        });
        let asleep = |sleeper: &Sleeper| sleeper.number == number;
        while SLEEPERS.with_borrow(|sleepers| sleepers.iter().any(asleep)) {
            thread::park();
        }
    }

    pub(crate) fn wake_one(word: *const AtomicU32) {
        let woken = SLEEPERS.with_borrow_mut(|sleepers| {
            let first = sleepers.iter().position(|sleeper| sleeper.word == word)?;
            Some(sleepers.remove(first))
        });
        if let Some(sleeper) = woken {
            sleeper.thread.unpark();
        }
    }
}

/// Stands for descriptors and `poll(2)` in a model; `sys::poll` is this then.
///
/// A descriptor is a number of rings, and ready unless that is zero. A `wait` stands
/// at both of its own before it looks at them, as the kernel does. A timeout is over
/// at once. As for the futex, only the end of a sleep is ordered more strongly than
/// we may rely on: a ring that comes before the sleep orders nothing.
#[cfg(loom)]
pub(crate) mod poll {
    use super::{AtomicU32, Mutex, Ordering};
    use loom::thread::{self, Thread};
    use std::cell::{Cell, RefCell};
    use std::io;
    use std::os::fd::RawFd;
    use std::rc::Rc;

    struct Descriptor {
        rings: AtomicU32,
        /// The kernel orders the making of a descriptor before its use: who rings
        /// takes it, who polls its own does not.
        made: Mutex<()>,
    }

    struct Sleeper {
        number: usize,
        at: [RawFd; 2],
        /// Once it has looked.
        asleep: Option<Thread>,
    }

    std::thread_local! {
        // As for the futex, these need no care.
        static OPEN: RefCell<Vec<Option<Rc<Descriptor>>>> = const { RefCell::new(Vec::new()) };
        static SLEEPERS: RefCell<Vec<Sleeper>> = const { RefCell::new(Vec::new()) };
        static NEXT: Cell<usize> = const { Cell::new(0) };
    }

    /// A new descriptor, with the lowest number, as the kernel does it: after a run of
    /// a model all were given back, and the next begins with the same numbers.
    pub(crate) fn take_bell() -> io::Result<RawFd> {
        let new = Rc::new(Descriptor {
            rings: AtomicU32::new(0),
            made: Mutex::new(()),
        });
        drop(new.made.lock());
        OPEN.with_borrow_mut(|all| {
            let vacant = all.iter().position(Option::is_none);
            let number = vacant.unwrap_or(all.len());
            if vacant.is_none() {
                all.push(None);
            }
            all[number] = Some(new);
            Ok(number as RawFd)
        })
    }

    pub(crate) fn give_bell(bell: RawFd) {
        OPEN.with_borrow_mut(|all| all[bell as usize] = None);
    }

    /// None if it was given back: then who rings is late.
    fn find(descriptor: RawFd) -> Option<Rc<Descriptor>> {
        OPEN.with_borrow(|all| all[descriptor as usize].clone())
    }

    pub(crate) fn ring(descriptor: RawFd) {
        let Some(found) = find(descriptor) else {
            return;
        };
        drop(found.made.lock());
        found.rings.fetch_add(1, Ordering::Relaxed);
        // No switch since.
        SLEEPERS.with_borrow_mut(|sleepers| {
            sleepers.retain(|sleeper| {
                let woken = sleeper.at.contains(&descriptor);
                if let (true, Some(thread)) = (woken, &sleeper.asleep) {
                    thread.unpark();
                }
                !woken
            });
        });
    }

    /// True if `what` is ready; takes the rings of the bell.
    pub(crate) fn wait(what: RawFd, bell: RawFd, timed: bool) -> bool {
        let number = NEXT.replace(NEXT.get() + 1);
        loop {
            SLEEPERS.with_borrow_mut(|sleepers| {
                sleepers.push(Sleeper {
                    number,
                    at: [what, bell],
                    asleep: None,
                });
            });
            // Read-modify-writes see the newest.
            let [ready, rung] = [(what, u32::MAX), (bell, 0)].map(|(descriptor, keep)| {
                let found = find(descriptor).expect("open while it is polled");
                found.rings.fetch_and(keep, Ordering::Relaxed) > 0
            });
            if ready || rung || timed {
                SLEEPERS.with_borrow_mut(|all| all.retain(|sleeper| sleeper.number != number));
                return ready;
            }
            let own = |sleepers: &mut Vec<Sleeper>| {
                let own = sleepers.iter_mut().find(|sleeper| sleeper.number == number);
                own.map(|own| own.asleep = Some(thread::current()))
                    .is_some()
            };
            while SLEEPERS.with_borrow_mut(own) {
                thread::park();
            }
        }
    }
}

/// Stands for `sys::fences` in a model: fences of both sides.
#[cfg(loom)]
pub(crate) mod fences {
    use super::{Ordering, fence};

    pub(crate) fn register() {}

    #[cfg(test)]
    pub(crate) fn light() {
        fence(Ordering::SeqCst);
    }

    #[cfg(test)]
    pub(crate) fn heavy() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

/// Stands for `sys::sleepers` in a model of a lock, which has its own count:
/// statics cannot be loom's.
#[cfg(all(test, loom))]
pub(crate) mod sleepers {
    use super::AtomicU32;

    pub(crate) struct Sleepers(AtomicU32);

    impl Sleepers {
        pub(crate) fn new() -> Self {
            Self(AtomicU32::new(0))
        }

        pub(crate) fn count(&self) -> &AtomicU32 {
            &self.0
        }
    }
}

/// What the models of several folders share.
#[cfg(all(test, loom))]
pub(crate) mod model {
    use loom::cell::UnsafeCell;

    /// A plain cell: loom fails if two threads use it without an order.
    pub(crate) struct Plain<T>(UnsafeCell<T>);

    // SAFETY: every access is checked by loom.
    unsafe impl<T: Send> Sync for Plain<T> {}

    impl<T: Copy> Plain<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(UnsafeCell::new(value))
        }

        pub(crate) fn set(&self, value: T) {
            // SAFETY: loom checks that nobody else uses the cell now.
            self.0.with_mut(|at| unsafe { *at = value });
        }

        pub(crate) fn get(&self) -> T {
            // SAFETY: loom checks that nobody writes the cell now.
            self.0.with(|at| unsafe { *at })
        }
    }
}
