//! Somebody who waits, somewhere, and is known to.

use crate::harness::{Gate, wait_until};
use sinew::WaitReason;
use std::sync::mpsc;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A fiber of the same worker.
    Here,
    /// A fiber of another worker.
    There,
    /// A fiber of any worker.
    Anywhere,
    /// A plain thread.
    Thread,
}

impl Who {
    /// Those that there can be.
    pub fn with_workers(workers: usize) -> &'static [Who] {
        match workers {
            1 => &[Self::Here, Self::Thread],
            _ => &[Self::Here, Self::There, Self::Thread],
        }
    }
}

/// Somebody who waits.
pub struct Waiting<T>(Box<dyn FnOnce() -> T>);

impl<T> Waiting<T> {
    /// What came of it.
    pub fn join(self) -> T {
        (self.0)()
    }
}

/// Has somebody call `wait`, and returns when it is parked in there, or has ended, which
/// it should not have.
pub fn waiting<T: Send + 'static>(
    who: Who,
    reason: WaitReason,
    wait: impl FnOnce() -> T + Send + 'static,
) -> Waiting<T> {
    match who {
        Who::Here => {
            let fiber = sinew::spawn_local(wait);
            wait_until(|| fiber.is_finished() || fiber.fiber().wait_reason() == reason);
            Waiting(Box::new(|| fiber.join().unwrap()))
        }
        Who::There | Who::Anywhere => {
            let begun = Gate::new();
            let theirs = begun.clone();
            let fiber = sinew::spawn(move || {
                theirs.open();
                wait()
            });
            if who == Who::There {
                // This worker is not yielded, so another one starts it.
                begun.spin();
            }
            wait_until(|| fiber.is_finished() || fiber.fiber().wait_reason() == reason);
            Waiting(Box::new(|| fiber.join().unwrap()))
        }
        Who::Thread => {
            let (tell, told) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                // SAFETY: no pointers.
                tell.send(unsafe { libc::gettid() }).unwrap();
                wait()
            });
            let id = told.recv().unwrap();
            wait_until(|| is_asleep(id));
            Waiting(Box::new(|| {
                // A std wait on a fiber: it was woken, so it is short.
                thread.join().unwrap()
            }))
        }
    }
}

/// Whether a thread of this process waits in the kernel.
fn is_asleep(id: i32) -> bool {
    // One that has ended will say why.
    let Ok(stat) = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")) else {
        return true;
    };
    // After the name, which may hold anything.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.starts_with('S')
}
