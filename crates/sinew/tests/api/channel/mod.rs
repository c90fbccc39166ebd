//! Channels and selects: what crossbeam-channel promises, for every kind of
//! waiter, and what ours add to it.

mod arms;
mod array;
mod async_twins;
mod broadcast;
mod cancel;
mod close;
mod drops;
mod fairness;
mod list;
mod looks;
mod one_shot_arms;
mod oneshot;
mod programs;
mod promises;
mod ready;
mod select;
mod select_macro;
mod timers;
mod waits;
mod watch;
mod zero;

use crate::harness::{OnDrop, in_fibers, runtime, wait_until, watch};
use sinew::channel::{Receiver, Sender, bounded, unbounded};
use sinew::{JoinHandle, Runtime, WaitReason};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

pub const HOUR: Duration = Duration::from_secs(3600);
pub const MS: Duration = Duration::from_millis(1);
pub const NO_TIME: Duration = Duration::ZERO;

/// The three ways to keep messages: none kept, some, any number.
pub const KINDS: [Option<usize>; 4] = [Some(0), Some(1), Some(3), None];

/// A channel of that capacity; unbounded without one.
pub fn channel<T>(capacity: Option<usize>) -> (Sender<T>, Receiver<T>) {
    capacity.map_or_else(unbounded, bounded)
}

/// Calls `test` on a thread, and in fibers.
pub fn everywhere(test: impl Fn() + Sync) {
    let _watch = watch();
    test();
    in_fibers(test);
}

/// Where the two sides of a test run: each on a thread or on a fiber.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    left: Option<&'a Runtime>,
    right: Option<&'a Runtime>,
}

/// Calls `test` with fibers on one worker, fibers on two, threads, one of each
/// both ways round, and fibers of two runtimes.
pub fn scenes(test: impl Fn(Scene<'_>)) {
    scenes_of_one_kind(&test);
    let _watch = watch();
    let (one, other) = (runtime(1), runtime(1));
    run_scenes(
        &test,
        &[
            ("fiber and thread", Some(&one), None),
            ("thread and fiber", None, Some(&one)),
            ("fibers of two runtimes", Some(&one), Some(&other)),
        ],
    );
}

/// The same where both sides are fibers of one runtime, or threads.
pub fn scenes_of_one_kind(test: impl Fn(Scene<'_>)) {
    let _watch = watch();
    let (one, two) = (runtime(1), runtime(2));
    run_scenes(
        &test,
        &[
            ("fibers on one worker", Some(&one), Some(&one)),
            ("fibers on two workers", Some(&two), Some(&two)),
            ("threads", None, None),
        ],
    );
}

type NamedScene<'a> = (&'a str, Option<&'a Runtime>, Option<&'a Runtime>);

fn run_scenes(test: &impl Fn(Scene<'_>), scenes: &[NamedScene<'_>]) {
    for &(name, left, right) in scenes {
        let _name = OnDrop(|| {
            if std::thread::panicking() {
                eprintln!("with {name}:");
            }
        });
        test(Scene { left, right });
    }
}

/// Calls `test` with fibers on one worker only: who runs when is always the same.
pub fn on_one_worker(test: impl Fn(Scene<'_>)) {
    let _watch = watch();
    let one = runtime(1);
    test(Scene {
        left: Some(&one),
        right: Some(&one),
    });
}

impl Scene<'_> {
    pub fn left<T: Send + 'static>(self, f: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        Running::start(self.left, f)
    }

    pub fn right<T: Send + 'static>(self, f: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        Running::start(self.right, f)
    }

    /// One side for even numbers, the other for odd ones.
    pub fn side<T: Send + 'static>(
        self,
        number: usize,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Running<T> {
        if number % 2 == 0 {
            self.left(f)
        } else {
            self.right(f)
        }
    }
}

/// A fiber or a thread that a test started.
pub enum Running<T> {
    Fiber(JoinHandle<T>),
    /// With the kernel's number for it, once it runs.
    Thread(std::thread::JoinHandle<T>, Arc<AtomicU32>),
}

impl<T: Send + 'static> Running<T> {
    fn start(place: Option<&Runtime>, f: impl FnOnce() -> T + Send + 'static) -> Self {
        let Some(runtime) = place else {
            let number = Arc::new(AtomicU32::new(0));
            let theirs = number.clone();
            let thread = std::thread::spawn(move || {
                let me = std::fs::read_link("/proc/thread-self").unwrap();
                let me = me.file_name().unwrap().to_str().unwrap();
                theirs.store(me.parse().unwrap(), Ordering::Release);
                f()
            });
            return Self::Thread(thread, number);
        };
        Self::Fiber(runtime.spawn(f))
    }

    /// Its result; a panic goes on in the caller.
    pub fn join(self) -> T {
        let result = match self {
            Self::Fiber(fiber) => fiber.join().map_err(|error| error.into_panic()),
            Self::Thread(thread, _) => thread.join(),
        };
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    pub fn is_finished(&self) -> bool {
        match self {
            Self::Fiber(fiber) => fiber.is_finished(),
            Self::Thread(thread, _) => thread.is_finished(),
        }
    }

    /// Returns when it waits for something. Of a thread the kernel only says
    /// that it is asleep, if only for a lock.
    pub fn until_waiting(&self) {
        wait_until(|| match self {
            Self::Fiber(fiber) => fiber.fiber().wait_reason() != WaitReason::None,
            Self::Thread(_, number) => {
                let number = number.load(Ordering::Acquire);
                let stat = std::fs::read_to_string(format!("/proc/self/task/{number}/stat"));
                stat.is_ok_and(|stat| {
                    let name_end = stat.rfind(')').unwrap();
                    stat[name_end..].starts_with(") S")
                })
            }
        });
    }
}

/// Counts the messages it made, and how many of them are gone.
#[derive(Clone, Default)]
pub struct Census(Arc<(AtomicUsize, AtomicUsize)>);

impl Census {
    pub fn make(&self, number: usize) -> Counted {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Counted {
            number,
            census: self.clone(),
        }
    }

    /// How many were made and not dropped yet.
    pub fn alive(&self) -> usize {
        let dropped = self.dropped();
        let made = self.0.0.load(Ordering::SeqCst);
        assert!(dropped <= made, "{dropped} of {made} dropped");
        made - dropped
    }

    pub fn dropped(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// A message that says when it is dropped.
pub struct Counted {
    pub number: usize,
    census: Census,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.census.0.1.fetch_add(1, Ordering::SeqCst);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "message {}", self.number)
    }
}

/// Fails unless each of `counts` has at least half of an even share.
#[track_caller]
pub fn assert_fair(counts: &[usize]) {
    let even = counts.iter().sum::<usize>() / counts.len();
    assert!(
        counts.iter().all(|count| *count >= even / 2),
        "not fair: {counts:?}"
    );
}
