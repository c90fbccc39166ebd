//! Why a fiber waits: one byte, always kept.

/// What a parked fiber waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum WaitReason {
    /// It does not wait: it runs, is ready to, or has ended.
    None = 0,
    /// In [`park`](crate::park) or [`park_timeout`](crate::park_timeout).
    Park = 1,
    /// In [`sleep`](crate::sleep), `sleep_until` or an interval.
    Sleep = 2,
    /// For another fiber's end.
    Join = 3,
    /// For a closure on the blocking pool.
    Blocking = 4,
    /// For a future in [`block_on`](crate::block_on).
    Future = 5,
    /// For a runtime to drain.
    Shutdown = 6,
}

impl WaitReason {
    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Park,
            2 => Self::Sleep,
            3 => Self::Join,
            4 => Self::Blocking,
            5 => Self::Future,
            6 => Self::Shutdown,
            _ => Self::None,
        }
    }
}
