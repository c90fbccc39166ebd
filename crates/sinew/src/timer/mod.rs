//! Time for the scheduler: what the clock says, and who waits for it.
//!
//! | file      | what                                                                  |
//! |-----------|-----------------------------------------------------------------------|
//! | `clock`   | the two clocks: [`RealClock`] and [`VirtualClock`]                    |
//! | `wheel`   | [`Wheel`], a worker's timers, and [`TimerNode`], one timer of a fiber |
//!
//! An instant is a `u64` of nanoseconds on the runtime's clock. It lasts 584
//! years, of which the real clock has used 146 when the process starts; `u64::MAX`
//! therefore serves as *never*, and sums saturate.
//!
//! Nothing here knows fibers: a timer carries one word for its owner, and the
//! scheduler, which put it there, knows what it means. Nothing here blocks or
//! allocates after construction.

mod clock;
mod wheel;

pub(crate) use clock::{AHEAD_NS, RealClock, VirtualClock};
pub(crate) use wheel::{TimerNode, Wheel};
