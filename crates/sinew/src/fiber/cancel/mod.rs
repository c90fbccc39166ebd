//! Cancellation: frames on the stack, and the tree that they make.
//!
//! A request to stop is a mark on a *frame*. Frames are in the stack frames of
//! the functions that make them (`scope`, `timeout`, `CancelToken::enter`,
//! `shield`), each linked to the next one outward; behind the last is the
//! fiber's *root*, a bit of its state word. Nothing is allocated, and nesting has
//! no limit.
//!
//! ```text
//!   fiber A                                     fiber B, child of the scope
//!   root ◄─ timeout ◄─ scope ◄─ shield ◄─ …     root ◄─ token ◄─ …
//!            mark?      │ mark?  (ends a look)   mark? ▲
//!                       └────── children ─────────────┘
//! ```
//!
//! *Outward* goes who wants to know whether it is cancelled: a point walks from
//! its innermost frame to the first shield, and the outermost marked frame is the
//! cause ([`frame`]). So a request made to a fiber reaches all that runs on its
//! stack without being told to each frame.
//!
//! *Downward* goes who cancels ([`descent`]): from a marked frame to the scopes
//! inside of it on the same stack, to their children, and so on, at once. What it
//! leaves with each fiber on its way is the bit LOOK of the state word, which is
//! all that a point of a fiber looks at, and a nudge. A fiber that looks and finds
//! no mark (it was behind a shield, or the frame is gone) takes the bit away.
//!
//! Invariant 1 (outward stays): frames are linked and unlinked by their own fiber
//! or thread alone, innermost first. So what is outward of a frame stays there for
//! as long as the frame does.
//! Invariant 2 (nests under the lock): the scopes of a fiber or thread (*nests*)
//! are linked and unlinked under its lock. Who holds that lock may follow them,
//! and from each of them go outward (invariant 1).
//! Invariant 3 (mark, then tell): a frame is marked before its owner is told by a
//! read-modify-write of the owner's word, and the owner says in the same word
//! (bit HANGS), before it looks for marks, that nests are there. So of a new nest
//! and a new mark either the one who marks finds the nest, or the one who nests
//! finds the mark. Where the bit is set already the lock decides it.
//! Invariant 4 (children are counted): a nest is not left before each child that
//! was counted has said that it ended, under the nest's lock, as the last thing
//! that it does with it.

mod children;
pub(crate) mod descent;
pub(crate) mod frame;
pub(crate) mod nest;
mod reason;

#[cfg(all(test, loom))]
mod loom_tests;

pub(crate) use children::ChildPlace;
pub(crate) use descent::{Descent, Errands, Hook};
pub(crate) use frame::{Cause, Frame, FrameKind, Owner};
pub(crate) use nest::Nest;
pub use reason::CancelReason;
