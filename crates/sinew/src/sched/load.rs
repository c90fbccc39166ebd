//! How busy a worker is, as spawners and the balance between workers see it.

use super::core::Core;
use std::sync::atomic::Ordering;

impl Core {
    /// Fibers that have started here and not ended.
    pub(crate) fn started_here(&self) -> usize {
        // Relaxed: our own counters.
        let counters = &self.remote().counters;
        let ended = counters.ended.load(Ordering::Relaxed);
        // A migratable fiber may end on another worker than it started on.
        counters
            .started
            .load(Ordering::Relaxed)
            .saturating_sub(ended) as usize
    }

    /// The load: live started fibers + 8 × ready ones.
    pub(crate) fn load(&self) -> usize {
        self.started_here() + 8 * self.ready()
    }

    /// Lets other workers see the load.
    pub(crate) fn publish_load(&self) {
        self.publish_computes();
        let load = self.load() as u64;
        let counters = &self.remote().counters;
        counters.load.store(load, Ordering::Relaxed);
        let timers = self.with_wheel(|wheel| wheel.len()) as u64;
        counters.timers.store(timers, Ordering::Relaxed);
    }
}
