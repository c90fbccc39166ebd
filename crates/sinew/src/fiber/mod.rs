//! What a fiber is: its control block, its state word, and what it carries.
//!
//! Nothing here knows of workers or queues: the layers above put a woken fiber
//! back through [`Ops`], a table of two functions.

mod binding;
mod block;
mod block_ref;
pub(crate) mod cancel;
mod hanging;
mod id;
pub(crate) mod locals;
mod patience;
pub(crate) mod place;
mod polls;
mod priority;
mod proxy;
mod reason;
mod root;
pub(crate) mod slab;
mod slot;
#[cfg(feature = "tracing")]
mod spans;
mod state;
pub(crate) mod users;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, loom))]
mod proxy_loom_tests;

pub(crate) use binding::Binding;
pub(crate) use block::{
    Birth, Block, Context, Extras, IN_HOOK, Intent, Kind, Ops, OpsOf, Suspender,
};
pub(crate) use block_ref::{BlockRef, release};
pub use cancel::CancelReason;
pub use id::FiberId;
pub use priority::Priority;
pub(crate) use proxy::ThreadProxy;
pub use reason::WaitReason;
pub(crate) use root::Root;
pub(crate) use slot::{Begin, TakeOutcome, taker};
pub(crate) use state::{Audience, Completed, Detached, Park, Told, Wake};
