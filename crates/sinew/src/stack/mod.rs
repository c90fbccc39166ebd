//! Memory to run fibers on.
//!
//! A stack never moves and never grows: a big range is reserved for it and
//! committed page by page as it is touched. So a parked fiber costs a page and
//! its share of a page table, however big its reserve is.
//!
//! ```text
//!   fiber starts                                   fiber ended
//!       ^ take                                         | give
//!       |             HotStacks, one a worker          v
//!       +------------------ piles <--------------------+
//!                    refill ^  | overflow, flush      (straight to the pool
//!                           |  v                       while somebody starves)
//!                    StackPool, one a runtime
//!                      dirty -> clean -> unmapped
//!                            trim, by the monitor
//! ```
//!
//! | file          | what                                                    |
//! |---------------|---------------------------------------------------------|
//! | `class.rs`    | the sizes stacks come in                                |
//! | `handle.rs`   | [`Stack`]: the right to run on one                      |
//! | `slab.rs`     | one mapping cut into slots                              |
//! | `shelves.rs`  | which slabs can serve what                              |
//! | `guard.rs`    | making the low end of a slot fault                      |
//! | `pool.rs`     | [`StackPool`]: what a runtime shares                    |
//! | `trim.rs`     | giving memory back                                      |
//! | `hot.rs`      | [`HotStacks`]: what a worker keeps                      |
//! | `reserve.rs`  | [`Reserve`]: one stack set aside, for fibers that only end |
//! | `no_stack.rs` | [`NoStack`]: why there is none                          |
//! | `overflow.rs` | saying which fiber hit its guard                        |
//!
//! What always holds: a slot outside the pool has exactly one [`Stack`]; a
//! stack that is not given back is leaked, with its slab, and never unmapped
//! (rule 3). Under ASan whoever gives a stack must have unpoisoned it before,
//! as corosensei's `into_stack` does.

mod class;
mod guard;
mod handle;
mod hot;
mod no_stack;
pub(crate) mod overflow;
mod pool;
mod reserve;
mod shelves;
mod slab;
#[cfg(test)]
mod tests;
mod trim;

pub(crate) use class::StackClass;
pub(crate) use guard::{GuardChoice, GuardKind};
pub(crate) use handle::Stack;
pub(crate) use hot::HotStacks;
pub(crate) use no_stack::NoStack;
pub(crate) use pool::{Given, PoolConfig, StackPool};
pub(crate) use reserve::Reserve;
pub(crate) use trim::{Trim, TrimGoal};
