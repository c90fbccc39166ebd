//! The thread that watches descriptors for async tasks away from any worker, and
//! calls the wakers that a worker must not.
//!
//! One for the process, started at first use, asleep while nothing happens. A
//! fiber's own waits never come here.

use super::registry::{MANY, Registry};
use crate::sys::epoll::Bell;
use crate::sys::log::log;
use crate::sys::{poll, process};
use crate::wait::node::Wakes;
use crate::wait::waiter::quietly;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

struct Outside {
    /// The thread waits without the lock, and takes it to deal with what came.
    registry: Mutex<Registry>,
    bell: Bell,
    /// Wakers to call.
    wakers: Mutex<Vec<Waker>>,
}

static OUTSIDE: OnceLock<Outside> = OnceLock::new();
/// Held while it is started.
static STARTING: Mutex<()> = Mutex::new(());

fn outside() -> io::Result<&'static Outside> {
    process::about_to_start_threads();
    if let Some(outside) = OUTSIDE.get() {
        return Ok(outside);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(outside) = OUTSIDE.get() {
        return Ok(outside);
    }
    let made = Outside {
        registry: Mutex::new(Registry::new()?),
        bell: Bell::new()?,
        wakers: Mutex::new(Vec::new()),
    };
    // It takes what it needs from the static, which is there by then.
    let gate = Arc::new(std::sync::Barrier::new(2));
    let opened = gate.clone();
    std::thread::Builder::new()
        .name("sinew-io".into())
        .spawn(move || {
            opened.wait();
            if let Some(outside) = OUTSIDE.get() {
                outside.run();
            }
        })?;
    let outside = OUTSIDE.get_or_init(|| made);
    gate.wait();
    Ok(outside)
}

impl Outside {
    fn run(&self) {
        let registry = {
            let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
            registry.as_fd().as_raw_fd()
        };
        loop {
            let what = poll::PollFor {
                fd: registry,
                events: libc::POLLIN,
            };
            poll::wait(what, self.bell.as_fd().as_raw_fd(), None);
            let mut claimed: Vec<Wakes> = Vec::new();
            self.registry
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .wait(Some(Duration::ZERO), MANY, |wakes| claimed.push(wakes));
            claimed.into_iter().for_each(Wakes::fire);
            let wakers =
                std::mem::take(&mut *self.wakers.lock().unwrap_or_else(PoisonError::into_inner));
            for waker in wakers {
                quietly(|| waker.wake());
            }
            process::stop_forked_thread();
        }
    }
}

/// Calls `with` on what it watches, under its lock.
pub(super) fn with_registry<R>(with: impl FnOnce(&mut Registry) -> io::Result<R>) -> io::Result<R> {
    let mut registry = outside()?
        .registry
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    with(&mut registry)
}

/// Calls `waker` there.
pub(super) fn call(waker: Waker) {
    match outside() {
        Ok(outside) => {
            outside
                .wakers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(waker);
            outside.bell.ring();
        }
        // There is no descriptor for it: a thread needs none.
        Err(error) => {
            let mut left = LEFT_OVER.lock().unwrap_or_else(PoisonError::into_inner);
            left.push(waker);
            drop(left);
            let started = std::thread::Builder::new()
                .name("sinew-wakers".into())
                .spawn(call_left_over);
            if let Err(no_thread) = started {
                log(&format!("wakers of tasks are late: {error}; {no_thread}"));
            }
        }
    }
}

/// Wakers for which there was no thread; the next one that starts calls all.
static LEFT_OVER: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

fn call_left_over() {
    let left = std::mem::take(&mut *LEFT_OVER.lock().unwrap_or_else(PoisonError::into_inner));
    for waker in left {
        quietly(|| waker.wake());
    }
}
