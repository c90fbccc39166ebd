//! A list of a runtime's fibers: who is there, and what each waits for.
//!
//! The registry (`fiber::slab`) is locked for one chunk of 256 blocks at a time, so that the
//! list of a million fibers holds up nobody who spawns. What is said of a fiber is a hint: the
//! fibers go on while they are listed.

use crate::fiber::{Block, BlockRef, FiberId, WaitReason, slab};
use crate::sched::shared::Shared;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a fiber is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FiberState {
    /// It was spawned, and has not begun.
    Unstarted,
    /// It is ready to run, and waits for its turn.
    Ready,
    /// It runs on a worker.
    Running,
    /// It waits; [`FiberInfo::waits_for`] says for what.
    Waiting,
    /// It was spawned by [`spawn_blocking`](crate::spawn_blocking): it runs on a thread of the
    /// blocking pool, or waits for one.
    Blocking,
}

/// A fiber in the list of a runtime; see [`Handle::fibers`](crate::Handle::fibers).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FiberInfo {
    /// Its id.
    pub id: FiberId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What it is doing.
    pub state: FiberState,
    /// What it waits for, if it waits.
    pub waits_for: WaitReason,
    /// Where it waits, or waited last.
    pub waits_at: Option<&'static Location<'static>>,
    /// Where it was spawned.
    pub spawned_at: Option<&'static Location<'static>>,
}

impl FiberInfo {
    pub(crate) fn of(shared: &Shared, block: &BlockRef) -> Self {
        // SAFETY: the reference keeps the block and its extras.
        let extras = unsafe { block.extras().as_ref() };
        let state = state_of(shared, block);
        let waits_for = match state {
            FiberState::Waiting => block.wait_reason(),
            _ => WaitReason::None,
        };
        Self {
            id: FiberId::new(block.id()),
            name: extras.and_then(|extras| extras.name.as_deref().map(String::from)),
            state,
            waits_for,
            waits_at: block.waits_at(),
            spawned_at: block.spawned_at(),
        }
    }
}

fn state_of(shared: &Shared, block: &BlockRef) -> FiberState {
    if block.kind().on_pool {
        return FiberState::Blocking;
    }
    if !block.is_claimed() {
        return FiberState::Unstarted;
    }
    let word = block.state().load();
    if word.parked() && !word.nudged() {
        return FiberState::Waiting;
    }
    let address: *const Block = block.as_ptr().as_ptr();
    // Relaxed: a hint, compared and never followed.
    let runs = shared
        .remotes
        .iter()
        .any(|remote| remote.current.load(Ordering::Relaxed).cast_const() == address);
    if runs {
        FiberState::Running
    } else {
        FiberState::Ready
    }
}

/// `fiber 'name' (id 7), waits in Mutex at src/main.rs:3:9, spawned at src/main.rs:2:5`.
impl fmt::Display for FiberInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fiber {}", self.id.with_name(self.name.as_deref()))?;
        match self.state {
            FiberState::Waiting => write!(f, ", waits in {:?}", self.waits_for)?,
            FiberState::Unstarted => f.write_str(", has not started")?,
            FiberState::Ready => f.write_str(", is ready")?,
            FiberState::Running => f.write_str(", runs")?,
            FiberState::Blocking => f.write_str(", is on the blocking pool")?,
        }
        if let Some(at) = self.waits_at {
            let last = match self.state {
                FiberState::Waiting => "at",
                _ => "after a wait at",
            };
            write!(f, " {last} {at}")?;
        }
        if let Some(at) = self.spawned_at {
            write!(f, ", spawned at {at}")?;
        }
        Ok(())
    }
}

/// The fibers of a runtime that have not completed, one after the other; from
/// [`Handle::fibers`](crate::Handle::fibers).
pub struct Fibers {
    shared: Arc<Shared>,
    /// The number of the next chunk.
    chunk: usize,
    /// What is left of the last one.
    found: std::vec::IntoIter<FiberInfo>,
}

impl Fibers {
    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            chunk: 0,
            found: Vec::new().into_iter(),
        }
    }
}

impl Iterator for Fibers {
    type Item = FiberInfo;

    fn next(&mut self) -> Option<FiberInfo> {
        loop {
            if let Some(fiber) = self.found.next() {
                return Some(fiber);
            }
            let blocks = slab::of_chunk(self.shared.tag().as_ptr(), self.chunk)?;
            self.chunk += 1;
            // A completed fiber may still run the wakers of those that join it. Its joiners have
            // its result already, so they must not find it in the list.
            let infos = blocks
                .iter()
                .filter(|block| !block.state().load().complete())
                .map(|block| FiberInfo::of(&self.shared, block));
            self.found = infos.collect::<Vec<_>>().into_iter();
        }
    }
}

impl fmt::Debug for Fibers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fibers")
            .field("runtime", &self.shared.settings.name)
            .finish_non_exhaustive()
    }
}

/// The list for a message: a line for each, but only for the first few.
///
/// Unlike [`Fibers`] it has completed fibers that have not left their stacks: they keep a
/// runtime from ending, which is what the message is about.
pub(crate) fn listed(shared: &Arc<Shared>, shown: usize) -> String {
    let mut text = String::new();
    let mut count = 0;
    slab::for_each_of(shared.tag().as_ptr(), |block| {
        count += 1;
        if count <= shown {
            let fiber = FiberInfo::of(shared, &block);
            text.push_str(&format!("\n  {fiber}"));
        }
    });
    if count > shown {
        text.push_str(&format!("\n  and {} more", count - shown));
    }
    text
}
