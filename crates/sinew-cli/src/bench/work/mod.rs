//! Sinew's side of the workloads, run as a child process.

mod allocs;
mod busy;
mod channels;
mod files;
mod io;
mod locks;
mod scopes;
mod select;
mod tasks;

use std::process::ExitCode;

use sinew::Runtime;

use super::child::{Job, NAP};
use super::threads;

/// Runs one order: `sinew|threads NAME --workers N --scale S`.
pub fn run(order: Vec<String>) -> ExitCode {
    let mut words = order.into_iter();
    let runtime = words.next().unwrap_or_default();
    let job = match Job::parse(words) {
        Ok(job) => job,
        Err(problem) => {
            eprintln!("sinew __work: {problem}");
            return ExitCode::from(2);
        }
    };
    let known = match runtime.as_str() {
        "sinew" => run_on_sinew(&job),
        "threads" => threads::run(&job),
        _ => false,
    };
    if known {
        ExitCode::SUCCESS
    } else {
        eprintln!("sinew __work: {runtime} has no workload `{}`", job.name);
        ExitCode::from(3)
    }
}

fn run_on_sinew(job: &Job) -> bool {
    if let Some(yielders) = job.yielders() {
        tasks::yields(job, &runtime(job), yielders);
        return true;
    }
    match job.name.as_str() {
        "spawn_join" => tasks::spawn_join(job, &runtime(job)),
        "spawn_1m" => tasks::spawn_1m(job, &runtime(job)),
        "skynet_cold" => tasks::skynet_cold(job, &runtime(job)),
        "skynet_warm" => tasks::skynet_warm(job, &runtime(job)),
        "sleep_1m" => tasks::sleep_1m(job, NAP),
        "asleep_1m" => tasks::sleep_1m(job, tasks::LONG_NAP),
        "timers_1m" => tasks::timers_1m(job),
        "wake_thread" | "wake_apart" => tasks::wake_thread(job),
        "idle" => tasks::idle(job, &runtime(job)),
        "balance" => tasks::balance(job, &runtime(job)),
        "blocked_tenth" => tasks::blocked_tenth(job),
        "latency_spawn" => tasks::latency_spawn(job, &runtime(job)),
        "allocs" => allocs::spawning(job, &runtime(job)),
        "pingpong_0" | "pingpong_1" => channels::pingpong(job, &runtime(job)),
        "pingpong_1m" => channels::pingpong_1m(job, &runtime(job)),
        "apart_0" | "apart_1" => channels::apart(job),
        "mpsc_4p1c" => channels::mpsc_4p1c(job, &runtime(job)),
        "mpmc_4p4c" => channels::mpmc_4p4c(job, &runtime(job)),
        "uncontended" => locks::uncontended(job, &runtime(job)),
        "mutex_100" => locks::mutex_100(job, &runtime(job)),
        "rwlock_4r2w" => locks::rwlock_4r2w(job, &runtime(job)),
        "semaphore_8_2" => locks::semaphore_8_2(job, &runtime(job)),
        "select_2" => select::run::<2>(job, &runtime(job)),
        "select_8" => select::run::<8>(job, &runtime(job)),
        "select_32" => select::run::<32>(job, &runtime(job)),
        "scope_2" => scopes::scope_2(job, &runtime(job)),
        "limits" => scopes::limits(job, &runtime(job)),
        "cancel_100k" => scopes::cancel_100k(job),
        "echo_100" | "echo_9000" | "io_even" => io::echo(&runtime(job)),
        "idle_conn" => io::idle_conn(job),
        "busy_1" | "busy_3" | "busy_10" | "busy_fewer" => busy::serve(job, &runtime(job)),
        "short" => io::short(&runtime(job)),
        "proxy" => io::proxy(&runtime(job)),
        "file_read" => files::file_read(job, &runtime(job)),
        "wake_io" | "wake_io_apart" => io::wake(job),
        "allocs_parked" => allocs::parking(job, &runtime(job)),
        _ => return false,
    }
    true
}

fn runtime(job: &Job) -> Runtime {
    with_workers(job.workers)
}

fn with_workers(workers: usize) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .build()
        .expect("the runtime did not start")
}
