//! Fibers that end before the call that started them returns.
//!
//! A scope waits for its children, whatever happens; so they may borrow, none is
//! forgotten, and to cancel a scope, or the fiber that is in it, cancels all that was
//! started in it.
//!
//! # Which one do I want?
//!
//! | I want | call | after | a child fails | answers |
//! |---|---|---|---|---|
//! | to borrow, and wait for all | [`scope`] | `std::thread::scope` | the others go on; a panic nobody joined goes on in the scope | what the closure returns |
//! | all of it or nothing | [`nursery`] | Trio's nursery, `allSuccessfulOrThrow` of JEP 505 | the rest is cancelled | what the closure returns, or the first [`Failure`] |
//! | the first answer | [`race()`] | `anySuccessfulResultOrThrow` of JEP 505 | the others go on | the first success, or [`NoWinner`] |
//! | all answers, good or bad | [`collect`] | `allUntil` of JEP 505, without a condition | the others go on | each child's result, in order |
//! | to keep services running | [`supervise`] | OTP's supervisor | it is started again, as the [`Strategy`] says | a [`Report`] |
//!
//! All of them wait for every child before they return, whether their closure returns or
//! panics; all may be used on a fiber and on a plain thread, whose children are fibers of
//! the global runtime; all are cancelled with what is around them: the fiber, a
//! [`timeout`](crate::timeout()), a [token](crate::CancelToken::enter), another scope.
//!
//! All panic inside of [`no_suspend`](crate::no_suspend), since they wait.
//!
//! A child that wants to be left in peace says so itself, by [`shield`](crate::shield).

mod collect;
mod core;
mod failure;
mod handle;
mod judged;
mod nursery;
mod plain;
mod race;
mod supervision;
mod supervisor;

pub use collect::{Collect, collect};
pub use failure::{Failure, Panic};
pub use handle::ScopedJoinHandle;
pub use nursery::{Nursery, NurseryHandle, nursery};
pub use plain::{Scope, scope};
pub use race::{NoWinner, Race, race};
pub use supervision::{
    ChildReport, ChildResult, Exit, Report, Restart, Strategy, Supervision, SupervisionError,
};
pub use supervisor::{Supervisor, supervise};
