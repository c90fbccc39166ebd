//! Where ready fibers wait for a worker.
//!
//! | structure            | who pushes           | who pops              | holds                            |
//! |----------------------|----------------------|-----------------------|----------------------------------|
//! | [`fifo::Levels`]     | the worker           | the worker            | started fibers; with one worker, all |
//! | [`preempted::Preempted`] | the worker       | the worker            | started fibers that compute       |
//! | [`inbox::Inbox`]     | anybody              | the worker            | woken fibers that are pinned to it |
//! | [`deque::Deques`]    | the worker           | the worker, thieves   | unstarted and migratable fibers   |
//! | [`deque::Injectors`] | anybody              | any worker            | unstarted fibers: from outside, or sent to one worker |
//!
//! None of them knows what a fiber does; all carry [`Entry`], a tagged pointer.

pub(crate) mod deque;
pub(crate) mod entry;
pub(crate) mod fifo;
pub(crate) mod inbox;
pub(crate) mod level;
pub(crate) mod preempted;
pub(crate) mod share;

#[cfg(all(test, loom))]
mod loom_tests;

pub(crate) use entry::Entry;
