//! What a thread of this process is doing, as another thread can find out.
//!
//! Two sources, because neither is enough. The thread's CPU clock says how long it
//! has computed, and costs one system call. A thread that used no CPU either waits in
//! the kernel or was not scheduled; only `/proc` tells these apart, and costs several
//! microseconds.
//!
//! A thread opens its file in `/proc` itself, when it begins, and others read that: to open it
//! each time would need a free descriptor, and of those there may be none just when threads
//! are stuck.
//!
//! A [`ThreadRef`] may outlive its thread. Then `/proc` knows nothing of it, nor does the
//! clock, unless its number was given to a new thread of this process. So all of this is for
//! reports and decisions that a wrong one does not harm.

use super::Lock;
use super::log::log;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

/// Names a thread of this process.
#[derive(Debug)]
pub(crate) struct ThreadRef {
    tid: i32,
    clock: i32,
    /// Its `stat` in `/proc`, if that could be opened.
    stat: Option<File>,
}

/// Whether [`ThreadRef::activity`] works in this process; if not, says so once on standard
/// error.
pub(crate) fn is_known() -> bool {
    static SAID: Once = Once::new();
    let activity = ThreadRef::current().map(|thread| thread.activity());
    // If it could not be opened for want of a descriptor there may be one later; a look
    // at the name needs none.
    let known = activity == Some(Activity::Runs)
        || activity == Some(Activity::Unknown) && Path::new("/proc/thread-self/stat").exists();
    if !known {
        SAID.call_once(|| {
            log(
                "/proc cannot be read, so fibers that block their worker are not reported, and \
                 there are no spare workers",
            );
        });
    }
    known
}

/// What `/proc` says about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It runs, or would if there were a CPU for it.
    Runs,
    /// It waits in the kernel, interruptibly or not.
    Waits,
    /// It is stopped, traced or about to end.
    Stopped,
    /// `/proc` could not be read.
    Unknown,
}

/// Where in the kernel a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelWait {
    /// In the system call of this number.
    Call(i64),
    /// In none: a page fault.
    Fault,
    /// `/proc` could not be read, or the thread runs again.
    Unknown,
}

impl ThreadRef {
    /// Names the calling thread; none if it has no CPU clock.
    pub(crate) fn current() -> Option<Self> {
        let mut clock = 0;
        // SAFETY: the calling thread is alive, and `clock` is a place to write to.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        // SAFETY: it has no preconditions.
        let tid = unsafe { libc::gettid() };
        (error == 0).then(|| Self {
            tid,
            clock,
            stat: open(tid, "stat"),
        })
    }

    /// How much CPU time the thread has used since it began; none if it has ended.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is a place to write to; the kernel checks the clock.
        let failed = unsafe { libc::clock_gettime(self.clock, &raw mut time) } != 0;
        (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// What the thread is doing right now.
    pub(crate) fn activity(&self) -> Activity {
        // A thread that began when no descriptor was free has no file.
        let opened = self.stat.is_none().then(|| open(self.tid, "stat"));
        let stat = self
            .stat
            .as_ref()
            .or(opened.as_ref().and_then(Option::as_ref));
        stat.and_then(|stat| read(stat, parse_state))
            .unwrap_or(Activity::Unknown)
    }

    /// Where the thread waits, if it does. For a report that is made once in a turn, so the
    /// file is not kept open.
    pub(crate) fn kernel_wait(&self) -> KernelWait {
        open(self.tid, "syscall")
            .and_then(|file| read(&file, parse_call))
            .unwrap_or(KernelWait::Unknown)
    }
}

fn open(tid: i32, file: &str) -> Option<File> {
    File::open(format!("/proc/self/task/{tid}/{file}")).ok()
}

/// Parses the beginning of `file`, which the kernel makes anew.
fn read<T>(file: &File, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    // A line of `stat` begins with the number, at most 16 bytes of a name, and the
    // state: more is not needed.
    let mut buffer = [0; 128];
    let length = file.read_at(&mut buffer, 0).ok()?;
    parse(&String::from_utf8_lossy(&buffer[..length]))
}

/// The state in a line of `stat`: the letter behind the name, which is in
/// parentheses and may contain some itself.
fn parse_state(stat: &str) -> Option<Activity> {
    match stat[stat.rfind(')')? + 1..].trim_start().chars().next()? {
        'R' => Some(Activity::Runs),
        'S' | 'D' => Some(Activity::Waits),
        _ => Some(Activity::Stopped),
    }
}

/// The number at the beginning of `syscall`, or the word `running`.
fn parse_call(text: &str) -> Option<KernelWait> {
    match text.split_whitespace().next()?.parse::<i64>() {
        Ok(-1) => Some(KernelWait::Fault),
        Ok(number) => Some(KernelWait::Call(number)),
        Err(_) => None,
    }
}

/// A [`ThreadRef`] that one thread sets and others read.
pub(crate) struct ThreadCell(Lock<Option<Arc<ThreadRef>>>);

impl ThreadCell {
    pub(crate) fn new() -> Self {
        Self(Lock::new(None))
    }

    pub(crate) fn set(&self, thread: Option<ThreadRef>) {
        let before = std::mem::replace(&mut *self.0.lock(), thread.map(Arc::new));
        drop(before); // closes a file: not under the lock
    }

    pub(crate) fn get(&self) -> Option<Arc<ThreadRef>> {
        self.0.lock().clone()
    }
}

/// The name of a system call that may wait; none of others.
pub(crate) fn call_name(number: i64) -> Option<&'static str> {
    let known = |calls: &[(libc::c_long, &'static str)]| {
        let found = calls.iter().find(|(known, _)| *known == number);
        found.map(|(_, name)| *name)
    };
    known(CALLS).or_else(|| known(super::OLDER_CALLS))
}

macro_rules! calls {
    ($($constant:ident $name:literal)*) => {
        &[$((libc::$constant, $name)),*]
    };
}
pub(super) use calls;

/// Calls that every architecture has.
const CALLS: &[(libc::c_long, &str)] = calls! {
    SYS_accept "accept"
    SYS_accept4 "accept4"
    SYS_clock_nanosleep "clock_nanosleep"
    SYS_close "close"
    SYS_connect "connect"
    SYS_copy_file_range "copy_file_range"
    SYS_epoll_pwait "epoll_pwait"
    SYS_epoll_pwait2 "epoll_pwait2"
    SYS_execve "execve"
    SYS_fallocate "fallocate"
    SYS_fcntl "fcntl"
    SYS_fdatasync "fdatasync"
    SYS_flock "flock"
    SYS_fsync "fsync"
    SYS_ftruncate "ftruncate"
    SYS_futex "futex"
    SYS_futex_waitv "futex_waitv"
    SYS_getdents64 "getdents64"
    SYS_getrandom "getrandom"
    SYS_io_getevents "io_getevents"
    SYS_io_uring_enter "io_uring_enter"
    SYS_ioctl "ioctl"
    SYS_madvise "madvise"
    SYS_mmap "mmap"
    SYS_mprotect "mprotect"
    SYS_mq_timedreceive "mq_timedreceive"
    SYS_mq_timedsend "mq_timedsend"
    SYS_msgrcv "msgrcv"
    SYS_msgsnd "msgsnd"
    SYS_msync "msync"
    SYS_munmap "munmap"
    SYS_nanosleep "nanosleep"
    SYS_newfstatat "newfstatat"
    SYS_openat "openat"
    SYS_ppoll "ppoll"
    SYS_pread64 "pread64"
    SYS_preadv "preadv"
    SYS_pselect6 "pselect6"
    SYS_pwrite64 "pwrite64"
    SYS_pwritev "pwritev"
    SYS_read "read"
    SYS_readv "readv"
    SYS_recvfrom "recvfrom"
    SYS_recvmmsg "recvmmsg"
    SYS_recvmsg "recvmsg"
    SYS_renameat2 "renameat2"
    SYS_rt_sigsuspend "rt_sigsuspend"
    SYS_rt_sigtimedwait "rt_sigtimedwait"
    SYS_sched_yield "sched_yield"
    SYS_semop "semop"
    SYS_semtimedop "semtimedop"
    SYS_sendfile "sendfile"
    SYS_sendmmsg "sendmmsg"
    SYS_sendmsg "sendmsg"
    SYS_sendto "sendto"
    SYS_splice "splice"
    SYS_statx "statx"
    SYS_sync "sync"
    SYS_tee "tee"
    SYS_unlinkat "unlinkat"
    SYS_vmsplice "vmsplice"
    SYS_wait4 "wait4"
    SYS_waitid "waitid"
    SYS_write "write"
    SYS_writev "writev"
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_state_is_found_behind_any_name() {
        let of = |stat| parse_state(stat);
        assert_eq!(of("12 (worker) S 1 2"), Some(Activity::Waits));
        assert_eq!(of("12 (a) R (b) D 1 2"), Some(Activity::Waits));
        assert_eq!(of("12 (w) R 1 2"), Some(Activity::Runs));
        assert_eq!(of("12 (w) T 1 2"), Some(Activity::Stopped));
        assert_eq!(of("12 (w"), None);
        assert_eq!(of("12 (w)"), None);
    }

    #[test]
    fn the_call_is_found_by_its_number() {
        assert_eq!(parse_call("202 0x7f 0x80\n"), Some(KernelWait::Call(202)));
        assert_eq!(parse_call("-1 0x7f 0x80\n"), Some(KernelWait::Fault));
        assert_eq!(parse_call("running\n"), None);
        assert_eq!(parse_call(""), None);
        assert_eq!(call_name(libc::SYS_futex), Some("futex"));
        assert_eq!(call_name(1 << 40), None);
    }

    #[test]
    fn a_cell_keeps_what_it_was_given() {
        let cell = ThreadCell::new();
        assert!(cell.get().is_none());
        cell.set(ThreadRef::current());
        let me = cell.get().expect("it has a clock");
        // SAFETY: it has no preconditions.
        assert_eq!(me.tid, unsafe { libc::gettid() });
        assert_eq!(me.activity(), Activity::Runs);
        cell.set(None);
        assert!(cell.get().is_none());
    }

    #[test]
    fn the_clock_of_another_thread_advances_only_while_it_computes() {
        let (told, heard) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            told.send(ThreadRef::current().unwrap()).unwrap();
            let _ = wait.recv();
        });
        let other = heard.recv().unwrap();
        while other.activity() != Activity::Waits {
            std::thread::yield_now();
        }
        let before = other.cpu_time().unwrap();
        let mine = ThreadRef::current().unwrap();
        let begun = mine.cpu_time().unwrap();
        while mine.cpu_time().unwrap() - begun < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        assert_eq!(mine.activity(), Activity::Runs);
        assert_eq!(other.kernel_wait(), KernelWait::Call(libc::SYS_futex));
        assert!(other.cpu_time().unwrap() - before < Duration::from_millis(5));
        drop(go);
        thread.join().unwrap();
        // A thread that was joined may still be on its way out of `/proc`.
        while other.activity() != Activity::Unknown {
            std::thread::yield_now();
        }
    }
}
