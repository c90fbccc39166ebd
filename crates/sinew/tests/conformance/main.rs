//! The same cases for every kind of waiter: a fiber of the same runtime, a
//! fiber of another, an OS thread, a pool thread, and async tasks under
//! `sinew::block_on` and under tokio; each against runtimes of one and two
//! workers.

// `map(|()| ())` gives a body that only panics the type `()`; the others are
// what the tests are about.
#![allow(clippy::map_identity)]

#[path = "../harness/mod.rs"]
mod harness;

mod join;
mod sync;
mod waits;

use harness::{runtime, watch};
use sinew::{JoinError, JoinHandle, Runtime};
use std::sync::OnceLock;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A fiber of the runtime under test.
    Fiber,
    /// A fiber of another runtime.
    ForeignFiber,
    /// A plain OS thread.
    Thread,
    /// A thread of the runtime's blocking pool.
    PoolThread,
    /// An async task that a thread runs by `sinew::block_on`.
    TaskOnThread,
    /// An async task that a fiber runs by `sinew::block_on`.
    TaskOnFiber,
    /// An async task of tokio's single-threaded runtime.
    TokioCurrent,
    /// An async task of tokio's multi-threaded runtime.
    TokioMulti,
}

/// Those that call blocking functions.
pub const CALLERS: [Kind; 4] = [
    Kind::Fiber,
    Kind::ForeignFiber,
    Kind::Thread,
    Kind::PoolThread,
];

/// Those that `.await`.
pub const TASKS: [Kind; 4] = [
    Kind::TaskOnThread,
    Kind::TaskOnFiber,
    Kind::TokioCurrent,
    Kind::TokioMulti,
];

/// A runtime that the one under test knows nothing of.
fn foreign() -> &'static Runtime {
    static FOREIGN: OnceLock<Runtime> = OnceLock::new();
    FOREIGN.get_or_init(|| runtime(1))
}

fn tokio_current() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

fn tokio_multi() -> &'static tokio::runtime::Runtime {
    static MULTI: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    MULTI.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap()
    })
}

/// A waiter that was started: wait for it here.
pub struct Waiting<T>(std::sync::mpsc::Receiver<std::thread::Result<T>>);

impl<T> Waiting<T> {
    /// What it answered; goes on with its panic.
    pub fn get(self) -> T {
        match self.0.recv().expect("the waiter ends with an answer") {
            Ok(value) => value,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }
}

impl Kind {
    /// Starts `f` as that kind of caller.
    pub fn start<T: Send + 'static>(
        self,
        runtime: &Runtime,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Waiting<T> {
        let (send, receive) = std::sync::mpsc::channel();
        let body = move || {
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            let _ = send.send(answer);
        };
        match self {
            Kind::Fiber => drop(runtime.spawn(body)),
            Kind::ForeignFiber => drop(foreign().spawn(body)),
            Kind::Thread => drop(std::thread::spawn(body)),
            Kind::PoolThread => runtime.run(move || drop(sinew::spawn_blocking(body))),
            _ => panic!("{self:?} awaits"),
        }
        Waiting(receive)
    }

    /// Starts a task of that kind, or a caller that joins.
    pub fn start_join<T: Send + 'static>(
        self,
        runtime: &Runtime,
        handle: JoinHandle<T>,
    ) -> Waiting<Result<T, JoinError>> {
        let (send, receive) = std::sync::mpsc::channel();
        match self {
            Kind::TaskOnThread => {
                std::thread::spawn(move || send.send(Ok(sinew::block_on(handle))));
            }
            Kind::TaskOnFiber => {
                drop(runtime.spawn(move || send.send(Ok(sinew::block_on(handle))).is_ok()));
            }
            Kind::TokioCurrent => {
                std::thread::spawn(move || {
                    // A task of its own, not only the future that is driven.
                    let tokio = tokio_current();
                    let task = tokio.spawn(handle);
                    send.send(Ok(tokio.block_on(task).unwrap()))
                });
            }
            Kind::TokioMulti => {
                tokio_multi().spawn(async move { send.send(Ok(handle.await)).is_ok() });
            }
            _ => return self.start(runtime, move || handle.join()),
        }
        Waiting(receive)
    }
}

/// Calls `case` for each of `kinds`, on one and on two workers.
pub fn for_each(kinds: &[Kind], case: impl Fn(&Runtime, Kind)) {
    let _watch = watch();
    for workers in [1, 2] {
        for kind in kinds {
            let runtime = runtime(workers);
            case(&runtime, *kind);
        }
    }
}

/// Every kind.
pub fn all() -> Vec<Kind> {
    CALLERS.into_iter().chain(TASKS).collect()
}
