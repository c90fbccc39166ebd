//! I/O events: what each worker asks the kernel, and who waits for the answer.
//!
//! A worker watches its own fibers' descriptors, and sleeps where the kernel wakes it
//! for them ([`driver`]). There are two kinds:
//!
//! * **Epoll** ([`registry`]): a fiber calls; if that would block it waits until the
//!   descriptor is ready ([`readiness`]), and calls again.
//! * **io_uring** ([`ring`], [`completion`]): what would block is handed to the kernel,
//!   which carries it out, into the caller's own buffers, while the fiber waits. For
//!   what it cannot do by itself the ring watches a registry as above.
//!
//! [`call`] chooses among them, for threads too. A [`source`] owns a descriptor; its
//! [`body`] has the readiness and registrations, shared by all owners.
//!
//! Who may do what: an operation of a ring is submitted, cancelled and reaped on its
//! own worker, by its own fiber; others only wake that fiber. A registration is added
//! by the worker that will watch, and deleted by whoever closes the descriptor.

mod body;
pub(crate) mod call;
mod completion;
mod driver;
mod incoming;
mod outside;
mod probe;
mod readiness;
mod registry;
mod ring;
mod source;
mod tasks;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;

pub(crate) use call::{Call, How};
pub(crate) use driver::{DriverKind, Reactor};
pub(crate) use incoming::Accepting;
pub use probe::IoDriver;
pub(crate) use readiness::Direction;
pub(crate) use ring::RingSize;
pub(crate) use source::{Source, closed, set_nonblocking};
