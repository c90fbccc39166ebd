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
    /// For a [`Mutex`](crate::sync::Mutex) or [`FairMutex`](crate::sync::FairMutex).
    Mutex = 7,
    /// For an [`RwLock`](crate::sync::RwLock).
    RwLock = 8,
    /// For a [`Condvar`](crate::sync::Condvar).
    Condvar = 9,
    /// For permits of a [`Semaphore`](crate::sync::Semaphore).
    Semaphore = 10,
    /// At a [`Barrier`](crate::sync::Barrier).
    Barrier = 11,
    /// For the end of an initialiser, or for one to come.
    Once = 12,
    /// For a [`WaitGroup`](crate::sync::WaitGroup).
    WaitGroup = 13,
    /// For an [`Event`](crate::sync::Event).
    Event = 14,
    /// For a [`Notify`](crate::sync::Notify).
    Notify = 15,
    /// For a [`Futex`](crate::sync::Futex).
    Futex = 16,
    /// For a [`Sequencer`](crate::sync::Sequencer).
    Sequencer = 17,
    /// For the value of a [`sync::Future`](crate::sync::Future).
    Promise = 18,
    /// For room in a channel, or a receiver.
    Send = 19,
    /// For a message.
    Recv = 20,
    /// In a select.
    Select = 21,
    /// For the children of a [`scope`](crate::scope()).
    Scope = 22,
    /// For something to read.
    Read = 23,
    /// For room to write to.
    Write = 24,
    /// For a connection to accept.
    Accept = 25,
    /// For a connection to be made.
    Connect = 26,
    /// For a file.
    File = 27,
    /// For a child process to end.
    Process = 28,
    /// For a signal.
    Signal = 29,
    /// For a moment, because it goes on though it was told a thousand times that it is
    /// [`Cancelled`](crate::Cancelled).
    Deaf = 30,
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
            7 => Self::Mutex,
            8 => Self::RwLock,
            9 => Self::Condvar,
            10 => Self::Semaphore,
            11 => Self::Barrier,
            12 => Self::Once,
            13 => Self::WaitGroup,
            14 => Self::Event,
            15 => Self::Notify,
            16 => Self::Futex,
            17 => Self::Sequencer,
            18 => Self::Promise,
            19 => Self::Send,
            20 => Self::Recv,
            21 => Self::Select,
            22 => Self::Scope,
            23 => Self::Read,
            24 => Self::Write,
            25 => Self::Accept,
            26 => Self::Connect,
            27 => Self::File,
            28 => Self::Process,
            29 => Self::Signal,
            30 => Self::Deaf,
            _ => Self::None,
        }
    }
}
