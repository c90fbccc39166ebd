//! What `#[sinew::test]` expands to: a body on a runtime of its own, with a limit of time, and
//! with nobody's panic unheard.
//!
//! | what                                         | the test                                      |
//! |----------------------------------------------|-----------------------------------------------|
//! | the body panics                              | fails by that panic                           |
//! | body or fibers have not ended within the limit | lists them, cancels them, waits a second for them, and fails |
//! | a fiber panics and nobody takes its outcome  | fails, and names the fiber                    |
//!
//! The body is `'static`, so that a test whose body does not end even then can leave it behind.

use super::join::JoinHandle;
use super::spawn::{Request, cannot_spawn, spawn_on};
use crate::error::{Failure, JoinError, Unobserved};
use crate::runtime::{Runtime, RuntimeBuilder, test_timeout};
use crate::worker::fibers::listed;
use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the fibers of a test whose time is over may take to end.
const GRACE: Duration = Duration::from_secs(1);
/// So many of them are listed.
const SHOWN: usize = 50;

/// Runs the body of a test on a runtime that is built from `builder`, for at most `timeout`.
///
/// # Panics
///
/// See the module's table; and if the runtime cannot be built.
#[track_caller]
pub fn run<F, T>(builder: RuntimeBuilder, timeout: Option<Duration>, body: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let at = Location::caller();
    let unobserved = Arc::new(Unobserved::default());
    let builder = builder.observed_by(unobserved.clone());
    let built = test_timeout(timeout).and_then(|limit| Ok((limit, builder.build()?)));
    let (limit, runtime) =
        built.unwrap_or_else(|error| panic!("could not build the sinew runtime: {error}"));
    let since = Instant::now();
    let left = || limit.map(|limit| limit.saturating_sub(since.elapsed()));

    let outcome = match join(start(&runtime, body, at), left()) {
        Ok(outcome) => outcome,
        Err(_handle) => {
            let report = give_up(runtime);
            panic!(
                "the test has not ended within {limit:?}; its fibers:{report}",
                limit = limit.unwrap_or_default()
            );
        }
    };
    let mut late = None;
    if runtime.drain_within(left(), at) {
        drop(runtime); // ends its daemons
    } else {
        late = Some(give_up(runtime));
    }
    let value = match outcome {
        Ok(value) => value,
        // The first cause: what else there is to say follows from it, perhaps.
        Err(JoinError(Failure::Panic(payload))) => resume_unwind(payload.into_inner()),
        Err(error) => panic!("the test did not run: {error}"),
    };
    if let Some(report) = late {
        panic!(
            "the body of the test has ended, but not its fibers, within {:?}:{report}",
            limit.unwrap_or_default()
        );
    }
    let panics = unobserved.take();
    assert!(
        panics.is_empty(),
        "nobody could hear of a panic, for the outcome was dropped:\n  {}",
        panics.join("\n  ")
    );
    value
}

#[track_caller]
fn start<F, T>(runtime: &Runtime, body: F, at: &'static Location<'static>) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let request = Request {
        always_runs: true,
        ..Request::new(at)
    };
    // SAFETY: `'static` and `Send`.
    match unsafe { spawn_on(runtime.shared(), request, body) } {
        Ok(handle) => handle,
        Err(error) => cannot_spawn(&error),
    }
}

/// What the body came to, or its handle if it takes too long.
#[track_caller]
fn join<T>(
    handle: JoinHandle<T>,
    limit: Option<Duration>,
) -> Result<Result<T, JoinError>, JoinHandle<T>> {
    match limit {
        Some(limit) => handle.join_timeout(limit),
        None => Ok(handle.join()),
    }
}

/// Ends a runtime whose test has used up its time; returns what there was.
fn give_up(runtime: Runtime) -> String {
    let fibers = listed(runtime.shared(), SHOWN);
    match runtime.shutdown_timeout(GRACE) {
        Ok(()) => format!("{fibers}\nthey have ended when they were cancelled"),
        Err(error) => format!("{fibers}\n{error}"),
    }
}
