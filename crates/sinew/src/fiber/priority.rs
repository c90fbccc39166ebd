//! Four levels of urgency.

/// How urgent a fiber is; higher ones run first.
///
/// Lower levels are not starved, as long as the running fibers wait, yield or reach a
/// [`safepoint`](crate::safepoint): after 64 switches one of them gets a turn, and a
/// level that has been passed over for 10 ms gets a turn however few switches that
/// were. A level all of whose ready fibers were preempted in a computation gets its turns
/// by time alone. If the fiber that has it computes, the turn lasts one to two milliseconds
/// while more urgent ones wait. With `strict_order`, and on a virtual clock, switches
/// alone count. A fiber that waits in `join` for one of lower priority lends it its own
/// until it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Background work.
    Low = 0,
    /// What every fiber gets unless told otherwise.
    #[default]
    Normal = 1,
    /// Ahead of ordinary work.
    High = 2,
    /// Ahead of everything; for short, rare work.
    Critical = 3,
}

impl Priority {
    /// How many levels there are.
    pub(crate) const LEVELS: usize = 4;

    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Low,
            2 => Self::High,
            3 => Self::Critical,
            _ => Self::Normal,
        }
    }
}
