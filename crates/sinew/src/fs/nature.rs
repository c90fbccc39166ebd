//! What kind of file it is, as far as that decides how to read and write it.

use crate::reactor::{Call, Direction, Source};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// The flags of the descriptor were looked at.
const KNOWN: u8 = 1 << 0;
/// Reads that would wait say so.
const READS_AT_ONCE: u8 = 1 << 1;
/// Writes that would wait say so.
const WRITES_AT_ONCE: u8 = 1 << 2;
/// All of it is memory: nothing ever waits.
const IN_MEMORY: u8 = 1 << 3;

/// Learnt when first needed, and kept.
pub(super) struct Nature {
    /// Relaxed everywhere: each bit stands for itself, and is found again if lost.
    bits: AtomicU8,
    /// For a pipe or a socket: a duplicate to wait for.
    stream: OnceLock<Option<Box<Source>>>,
}

impl Nature {
    pub(super) const fn unknown() -> Self {
        Self {
            bits: AtomicU8::new(0),
            stream: OnceLock::new(),
        }
    }

    /// All that can be told of a file; may block.
    pub(super) fn of(file: &File) -> Self {
        let mut bits = KNOWN | look_at_flags(file);
        if bits == KNOWN | READS_AT_ONCE | WRITES_AT_ONCE && is_in_memory(file) {
            bits |= IN_MEMORY;
        }
        let nature = Self::unknown();
        nature.bits.store(bits, Ordering::Relaxed);
        nature
    }

    /// With which flag to try at once what would perhaps have to wait, if at all.
    #[inline]
    pub(super) fn flag_at_once(&self, file: &File, direction: Direction) -> Option<i32> {
        let mut bits = self.bits.load(Ordering::Relaxed);
        if bits & KNOWN == 0 {
            bits = KNOWN | look_at_flags(file);
            self.bits.store(bits, Ordering::Relaxed);
        }
        if bits & bit_of(direction) == 0 {
            None
        } else if bits & IN_MEMORY == 0 {
            Some(libc::RWF_NOWAIT)
        } else {
            Some(0)
        }
    }

    /// The file system knows no way to try.
    #[cold]
    pub(super) fn never_at_once(&self, direction: Direction) {
        self.bits.fetch_and(!bit_of(direction), Ordering::Relaxed);
    }

    /// What to wait for, of a pipe or a socket; none for a file whose kernel calls end
    /// by themselves, and for one that its owner wants not to wait.
    pub(super) fn stream(&self, file: &File) -> Option<&Source> {
        if let Some(known) = self.stream.get() {
            return known.as_deref();
        }
        if !matches!(kind_of(file), libc::S_IFIFO | libc::S_IFSOCK)
            || flags_of(file) & libc::O_NONBLOCK != 0
        {
            return self.stream.get_or_init(|| None).as_deref();
        }
        // Without a descriptor to spare the pool waits, until there is one.
        let duplicate = file.try_clone().ok()?;
        let made = || Some(Box::new(Source::new(duplicate.into())));
        self.stream.get_or_init(made).as_deref()
    }
}

fn bit_of(direction: Direction) -> u8 {
    match direction {
        Direction::Read => READS_AT_ONCE,
        Direction::Write => WRITES_AT_ONCE,
    }
}

/// The flags of the open file; all of them if the kernel won't tell.
fn flags_of(file: &File) -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
}

/// Direct transfers are begun without waiting, but then awaited in the call; a
/// synchronous write is written back before it returns.
#[cold]
fn look_at_flags(file: &File) -> u8 {
    let flags = flags_of(file);
    let mut bits = 0;
    if flags & libc::O_DIRECT == 0 {
        if !tells_a_false_end() {
            bits |= READS_AT_ONCE;
        }
        if flags & (libc::O_SYNC | libc::O_DSYNC) == 0 {
            bits |= WRITES_AT_ONCE;
        }
    }
    bits
}

/// Whether this kernel may say 0 instead of `EAGAIN`, far from a file's end: 5.9 and
/// 5.10 do (preadv2(2), BUGS).
fn tells_a_false_end() -> bool {
    static FALSE_END: OnceLock<bool> = OnceLock::new();
    *FALSE_END.get_or_init(|| {
        // SAFETY: all zeros is a valid value.
        let mut system: libc::utsname = unsafe { std::mem::zeroed() };
        // SAFETY: it is writable.
        if unsafe { libc::uname(&mut system) } != 0 {
            return true;
        }
        let release: Vec<u8> = system.release.iter().map(|&c| c as u8).collect();
        release.starts_with(b"5.9.") || release.starts_with(b"5.10.")
    })
}

/// Whether it is a regular file of a file system without a disk, of which the kernel
/// won't say either whether a transfer would wait (`RWF_NOWAIT`).
fn is_in_memory(file: &File) -> bool {
    // SAFETY: all zeros is a valid value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is writable.
    let told = unsafe { libc::fstatfs(file.as_raw_fd(), &mut found) };
    // The C libraries do not agree on the type of `f_type`.
    let in_memory = i128::from(found.f_type) == i128::from(libc::TMPFS_MAGIC);
    told == 0 && in_memory && kind_of(file) == libc::S_IFREG
}

/// Its type, as `S_IFREG`; 0 if the kernel won't tell. Asks no server: the kernel knows
/// the type of an open file by itself.
fn kind_of(file: &File) -> u32 {
    // SAFETY: all zeros is a valid value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty path, for the descriptor itself; `found` is writable.
    let told = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC,
            libc::STATX_TYPE,
            &mut found,
        )
    };
    match told {
        0 => u32::from(found.stx_mode) & libc::S_IFMT,
        _ => 0,
    }
}

/// Waits until the next transfer of a stream would find something to do.
pub(super) struct Ready(pub(super) Direction);

impl Call for Ready {
    type Output = ();

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let events = match self.0 {
            Direction::Read => libc::POLLIN,
            Direction::Write => libc::POLLOUT,
        };
        let mut entry = libc::pollfd {
            fd: fd.as_raw_fd(),
            events,
            revents: 0,
        };
        // SAFETY: one entry; it does not wait.
        match unsafe { libc::poll(&mut entry, 1, 0) } {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
