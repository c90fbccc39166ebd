//! What [`select!`](crate::select!), [`select_biased!`](crate::select_biased!) and
//! [`race!`](crate::race!) expand to.
//!
//! ```text
//!   let each channel, handle and thing = a reference
//!   match {
//!       make the arms; run them; the chosen one yields   ← arms end here
//!   } {
//!       what it yielded => body                          ← in the caller's function
//!   }
//! ```
//!
//! Bodies are in the caller's function, so `break`, `return` and `?` work in
//! them; arms are gone by then, so bodies may move or drop the channels.
//!
//! The engine, and what always holds, is in `wait::select`.

mod arms;
mod waitable;

pub(crate) use arms::sealed;
pub use arms::{
    JoinArm, Joinable, Permit, RecvArm, SendArm, WaitArm, cancel, join, joined, recv, send,
};
pub(crate) use waitable::sealed as sealed_waitable;
pub use waitable::{Waitable, wait};

use crate::sched::polling;
use crate::task::safepoint;
use crate::wait::Deadline;
pub use crate::wait::select::ArmRef;
use crate::wait::select::{OnCancel, Patience, SelectSpec, Selected, select};
use std::panic::Location;
use std::time::Duration;

/// How long a select waits for its arms.
#[derive(Debug)]
pub struct Wait(Patience);

impl Wait {
    /// Until one is ready.
    pub fn forever() -> Self {
        Self(Patience::Until(None))
    }

    /// Not at all: there is a `default` arm.
    pub fn not_at_all() -> Self {
        Self(Patience::None)
    }

    /// For so long: there is a `default(timeout)` arm.
    pub fn at_most(timeout: Duration) -> Self {
        Self(Patience::Until(Deadline::after(timeout)))
    }
}

/// Which arm was chosen.
#[derive(Debug)]
pub enum Choice {
    /// The one with this number.
    Arm(usize),
    /// `default`.
    Default,
    /// `cancelled`.
    Cancelled,
}

/// Runs a select; `has_cancelled` if there is a `cancelled` arm.
#[track_caller]
pub fn run<const ARMS: usize>(
    arms: [ArmRef<'_>; ARMS], // by value: each is used for one select
    biased: bool,
    wait: Wait,
    has_cancelled: bool,
) -> Choice {
    run_all(&arms, biased, wait, has_cancelled, Location::caller())
}

fn run_all(
    arms: &[ArmRef<'_>],
    biased: bool,
    wait: Wait,
    has_cancelled: bool,
    at: &'static Location<'static>,
) -> Choice {
    let spec = SelectSpec {
        biased,
        patience: wait.0,
        on_cancel: if has_cancelled {
            OnCancel::TellCaller
        } else {
            OnCancel::TellArm
        },
        at,
    };
    match select(arms, &spec) {
        Selected::Arm(index) => {
            // A loop of selects that need not wait lets others run, too.
            safepoint();
            Choice::Arm(index)
        }
        Selected::None => {
            polling::failed();
            Choice::Default
        }
        Selected::Cancelled => Choice::Cancelled,
    }
}
