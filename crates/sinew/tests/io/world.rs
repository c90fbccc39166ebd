//! Where a test of I/O runs: on fibers of both drivers with one and two workers, and
//! on a plain thread.

use crate::harness::watch;
use sinew::{IoDriver, Runtime};

/// The drivers that this system has; only the one of `SINEW_IO`, if that names one.
pub fn drivers() -> Vec<IoDriver> {
    match std::env::var("SINEW_IO").as_deref() {
        Ok("epoll") => return vec![IoDriver::Epoll],
        Ok("uring") => return vec![IoDriver::Uring],
        _ => {}
    }
    let has = |driver: &IoDriver| match Runtime::builder().workers(1).io_driver(*driver).build() {
        Ok(_) => true,
        Err(error) => {
            // Not silently: a test of one driver is half a test.
            eprintln!("{driver:?} is left out: {error}");
            false
        }
    };
    [IoDriver::Epoll, IoDriver::Uring]
        .into_iter()
        .filter(has)
        .collect()
}

/// A runtime of this driver.
pub fn runtime(driver: IoDriver, workers: usize) -> Runtime {
    let builder = Runtime::builder().workers(workers).io_driver(driver);
    builder
        .build()
        .unwrap_or_else(|error| panic!("{driver:?} with {workers} workers: {error}"))
}

/// Runs `test` on a fiber of each driver, with one worker and with two.
pub fn on_fibers(test: impl Fn() + Sync) {
    let _watch = watch();
    for driver in drivers() {
        for workers in [1, 2] {
            eprintln!("{driver:?}, {workers} workers");
            runtime(driver, workers).run(&test);
        }
    }
}

/// The same, and on a plain thread: this one.
///
/// What `test` spawns there runs on the global runtime.
pub fn everywhere(test: impl Fn() + Sync) {
    on_fibers(&test);
    let _watch = watch();
    eprintln!("a plain thread");
    test();
}
