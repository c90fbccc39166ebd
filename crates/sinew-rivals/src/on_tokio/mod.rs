//! The workloads on tokio.
//!
//! With one worker there are two set-ups, the current-thread scheduler and the
//! multi-thread one with one worker; the parent runs both and takes the better.
//! All work is done inside spawned tasks.

mod channels;
mod io;
mod locks;
mod scopes;
mod select;
mod tasks;

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use crate::Failure;
use crate::child::{Job, Rally};

/// Which scheduler.
#[derive(Clone, Copy)]
pub enum Flavour {
    CurrentThread,
    MultiThread,
}

pub fn run(job: &Job, flavour: Flavour) -> Result<(), Failure> {
    Rally::prepare(job);
    let mut builder = match flavour {
        Flavour::CurrentThread => Builder::new_current_thread(),
        Flavour::MultiThread => Builder::new_multi_thread(),
    };
    if matches!(flavour, Flavour::MultiThread) {
        builder.worker_threads(job.workers);
    }
    if needs_io(job) {
        builder.enable_io();
    }
    let rt = builder.enable_time().build().expect("tokio did not start");
    if let Some(yielders) = job.yielders() {
        tasks::yields(job, yielders, &rt);
        return Ok(());
    }
    match job.name.as_str() {
        "spawn_join" => tasks::spawn_join(job, &rt),
        "spawn_1m" => tasks::spawn_1m(job, &rt),
        "skynet_cold" => tasks::skynet_cold(job, &rt),
        "skynet_warm" => tasks::skynet_warm(job, &rt),
        "sleep_1m" => tasks::sleep_1m(job, &rt),
        "wake_thread" | "wake_apart" => tasks::wake_thread(job, &rt),
        "idle" => tasks::idle(job, &rt),
        "balance" => tasks::balance(job, &rt),
        "latency_spawn" => tasks::latency_spawn(job, &rt),
        "pingpong_1" => channels::pingpong(job, &rt),
        "pingpong_1m" => channels::pingpong_1m(job, &rt),
        "apart_1" => channels::apart(job),
        "mpsc_4p1c" => channels::mpsc_4p1c(job, &rt),
        "mpmc_4p4c" => channels::mpmc_4p4c(job, &rt),
        "uncontended" => locks::uncontended(job, &rt),
        "mutex_100" => locks::mutex_100(job, &rt),
        "rwlock_4r2w" => locks::rwlock_4r2w(job, &rt),
        "semaphore_8_2" => locks::semaphore_8_2(job, &rt),
        "select_2" => select::run::<2>(job, &rt),
        "select_8" => select::run::<8>(job, &rt),
        "select_32" => select::run::<32>(job, &rt),
        "scope_2" => scopes::scope_2(job, &rt),
        "limits" => scopes::limits(job, &rt),
        "echo_100" | "echo_9000" | "idle_conn" | "io_even" => io::echo(&rt),
        "short" => io::short(&rt),
        "proxy" => io::proxy(&rt),
        "file_read" => io::file_read(job, &rt),
        "wake_io" | "wake_io_apart" => {
            io::keep_waiting(&rt);
            tasks::wake_thread(job, &rt);
        }
        "cancel_100k" => scopes::cancel_100k(job, &rt),
        _ => return Err(Failure::Unknown),
    }
    Ok(())
}

/// Whether the runtime has to wait for sockets.
fn needs_io(job: &Job) -> bool {
    matches!(
        job.name.as_str(),
        "echo_100"
            | "echo_9000"
            | "short"
            | "io_even"
            | "idle_conn"
            | "proxy"
            | "wake_io"
            | "wake_io_apart"
    )
}

/// Runs `work` in a task of `rt`.
fn on<T: Send + 'static>(rt: &Runtime, work: impl Future<Output = T> + Send + 'static) -> T {
    rt.block_on(async { tokio::spawn(work).await.expect("a task panicked") })
}
