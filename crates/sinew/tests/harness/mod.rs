//! What all test binaries share: runtimes of one and two workers, waiting
//! without sleeping, panics that print nothing, and a watchdog that turns a hang
//! into a failure with the test's name.

#![allow(dead_code)]

pub mod child;
pub mod kept;
pub mod turns;

use sinew::{FiberId, IoDriver, Runtime};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

static WATCHED: Mutex<Vec<(u64, String, Instant)>> = Mutex::new(Vec::new());

/// Aborts the process, naming the test, if this lives too long.
#[must_use = "the watch ends when it is dropped"]
pub struct Watch(u64);

/// Watches the calling test until the answer is dropped.
pub fn watch() -> Watch {
    static QUIET: Once = Once::new();
    QUIET.call_once(quiet_expected_panics);
    watch_before_any_runtime()
}

/// As [`watch`], but builds no runtime: for tests of what must come before the first one.
pub fn watch_before_any_runtime() -> Watch {
    static START: Once = Once::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    START.call_once(|| {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
                for (_, name, since) in &*watched {
                    if since.elapsed() > LIMIT {
                        let text = format!("\nthe test '{name}' hangs: no end after {LIMIT:?}\n");
                        // Not `eprintln!`, whose output libtest keeps for the end.
                        let _ = std::io::stderr().write_all(text.as_bytes());
                        std::process::abort();
                    }
                }
            }
        });
    });
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    watched.push((id, name, Instant::now()));
    Watch(id)
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|(id, ..)| *id != self.0);
    }
}

/// The payload of a panic that belongs to a test: the hook says nothing of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Expected(pub u64);

/// Panics without a line on standard error.
pub fn panic_expected(code: u64) -> ! {
    std::panic::panic_any(Expected(code))
}

/// Whether `payload` is that of [`panic_expected`] with this code.
pub fn is_expected(payload: &(dyn std::any::Any + Send), code: u64) -> bool {
    payload.downcast_ref() == Some(&Expected(code))
}

fn quiet_expected_panics() {
    // The first runtime installs a hook of its own, which is to be silent as well. If it
    // cannot be built that is what the test is about; and so may be what io_uring says.
    let first = Runtime::builder().workers(1).io_driver(IoDriver::Epoll);
    drop(first.build());
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Expected>() {
            usual(info);
        }
    }));
}

/// A runtime with that many workers.
pub fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// A runtime with that many workers, whose fibers no other thread ever runs.
pub fn runtime_without_spares(workers: usize) -> Runtime {
    let builder = Runtime::builder().workers(workers).spare_workers(0);
    builder.build().unwrap()
}

/// Calls `test` with a runtime of one and one of two workers; the end of each
/// waits for its fibers.
pub fn on_workers(test: impl Fn(&Runtime)) {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        test(&runtime);
        drop(runtime);
    }
}

/// Calls `test` in a fiber of such runtimes.
pub fn in_fibers(test: impl Fn() + Sync) {
    on_workers(|runtime| runtime.run(&test));
}

/// Lets others run until `condition` holds; works on fibers and threads.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        sinew::yield_now();
    }
}

/// Opened once, seen by everybody.
#[derive(Clone, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Yields until it is open.
    pub fn pass(&self) {
        wait_until(|| self.is_open());
    }

    /// Spins until it is open: keeps a worker from all other fibers.
    pub fn spin(&self) {
        while !self.is_open() {
            // The machine may have fewer CPUs than there are spinners.
            std::thread::yield_now();
        }
    }
}

/// What happened, in order.
#[derive(Clone)]
pub struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Log<T> {
    pub fn new() -> Self {
        Self(Arc::default())
    }

    pub fn push(&self, item: T) {
        self.0.lock().unwrap().push(item);
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Records on which fiber (or thread's stand-in) it is dropped.
pub struct DropSpy(pub Log<FiberId>);

impl Drop for DropSpy {
    fn drop(&mut self) {
        self.0.push(sinew::current().id());
    }
}

/// Runs something when dropped.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Small and fast numbers from a seed.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn split(&mut self) -> Self {
        Self::new(self.next())
    }
}
