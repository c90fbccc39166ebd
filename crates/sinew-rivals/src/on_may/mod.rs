//! The workloads on may.
//!
//! Set-up: `set_workers`; the pool large enough for the coroutines alive at
//! once, as its documentation advises, but not above what `vm.max_map_count`
//! allows (two mappings a stack, 65530 in all);
//! the default stack of 32 KiB,
//! which is may's small one; workers pinned, which is its default.
//!
//! Above some 32 thousand coroutines alive may panics or hangs for want of
//! mappings. The parent reports that as `dies`.

mod io;
mod tasks;
mod waits;

use may::go;

use crate::Failure;
use crate::child::Job;

pub fn run(job: &Job) -> Result<(), Failure> {
    let pool = match job.name.as_str() {
        "spawn_1m" | "skynet_cold" | "skynet_warm" | "sleep_1m" | "idle" | "balance"
        | "echo_9000" => 10_000,
        "idle_conn" => 100, // stacks in the pool have been touched, and would not be seen
        _ => 1_000,         // its default
    };
    may::config()
        .set_workers(job.workers)
        .set_pool_capacity(pool);
    if let Some(yielders) = job.yielders() {
        tasks::yields(job, yielders);
        return Ok(());
    }
    match job.name.as_str() {
        "spawn_join" => tasks::spawn_join(job),
        "spawn_1m" => tasks::spawn_1m(job),
        "skynet_cold" => tasks::skynet_cold(job),
        "skynet_warm" => tasks::skynet_warm(job),
        "sleep_1m" => tasks::sleep_1m(job),
        "wake_thread" | "wake_apart" => tasks::wake_thread(job),
        "idle" => tasks::idle(job),
        "balance" => tasks::balance(job),
        "latency_spawn" => tasks::latency_spawn(job),
        "echo_100" | "echo_9000" | "idle_conn" | "io_even" => io::echo(),
        "short" => io::short(),
        "proxy" => io::proxy(),
        "wake_io" | "wake_io_apart" => {
            io::keep_waiting(job);
            tasks::wake_thread(job);
        }
        "pingpong_1" => waits::pingpong(job),
        "pingpong_1m" => waits::pingpong_1m(job),
        "uncontended" => waits::uncontended(job),
        "mutex_100" => waits::mutex_100(job),
        "rwlock_4r2w" => waits::rwlock_4r2w(job),
        "semaphore_8_2" => waits::semaphore_8_2(job),
        _ => return Err(Failure::Unknown),
    }
    Ok(())
}

/// Runs `work` in a coroutine.
fn on<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    go!(work).join().expect("a coroutine panicked")
}
