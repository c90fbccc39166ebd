//! Whether the thread of a worker has ended or is kept, as `/proc` shows it.

use super::wait_until;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// The OS thread of a worker, as a fiber on it has told.
#[derive(Clone, Default)]
pub struct Tid(Arc<AtomicI32>);

impl Tid {
    /// Notes the thread that calls this.
    pub fn note(&self) {
        // SAFETY: takes nothing, and cannot fail.
        self.0.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    pub fn get(&self) -> i32 {
        wait_until(|| self.0.load(Ordering::Acquire) != 0);
        self.0.load(Ordering::Acquire)
    }

    fn status(&self) -> Option<String> {
        std::fs::read_to_string(format!("/proc/self/task/{}/status", self.get())).ok()
    }

    /// Waits until the thread sleeps for good, which it does with all signals blocked.
    ///
    /// A thread that ends blocks them as well, but does not stay: so it is looked at often.
    #[track_caller]
    pub fn is_kept(&self) {
        let mut looks = 0;
        wait_until(|| {
            let status = self.status();
            let status = status.expect("the thread of a worker with a leaked fiber has ended");
            let field = |name| {
                status
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap()
            };
            let blocked = u64::from_str_radix(field("SigBlk:").trim(), 16).unwrap();
            let sleeps = field("State:").trim().starts_with('S');
            let kept = sleeps && blocked & 1 << (libc::SIGUSR1 - 1) != 0;
            looks = if kept { looks + 1 } else { 0 };
            looks == 100
        });
    }

    pub fn ends(&self) {
        wait_until(|| self.status().is_none());
    }
}
