//! One io_uring: set up for one thread that submits, and reaps when it asks.

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue};
use std::io;
use std::time::Duration;

/// A ring whose maker is its one user.
pub(crate) struct Uring(IoUring);

impl Uring {
    /// `entries` fit into one submission; four times `completions` of them may
    /// be in flight before the kernel has to keep some aside.
    ///
    /// Single issuer and deferred task work: completions are made by the thread
    /// that asks for them, when it does, instead of interrupting it; the flag
    /// says whether there are any.
    pub(crate) fn new(entries: u32, completions: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(completions)
            .build(entries)?;
        // Lost completions could never be made good.
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(Self(ring))
    }

    /// Whether the kernel has all that we use.
    pub(crate) fn probe() -> io::Result<()> {
        let ring = Self::new(8, 16)?;
        let mut probe = Probe::new();
        ring.0.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Accept::CODE,
            opcode::AsyncCancel::CODE,
            opcode::Connect::CODE,
            opcode::Fsync::CODE,
            opcode::PollAdd::CODE,
            opcode::Read::CODE,
            opcode::Readv::CODE,
            opcode::Recv::CODE,
            opcode::RecvMsg::CODE,
            opcode::Send::CODE,
            opcode::SendMsg::CODE,
            opcode::Write::CODE,
            opcode::Writev::CODE,
        ];
        match needed.iter().find(|&&code| !probe.is_supported(code)) {
            None => Ok(()),
            Some(code) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("operation {code} is not supported"),
            )),
        }
    }

    /// Queues an entry; false if there is no room.
    ///
    /// # Safety
    ///
    /// What the entry points to stays valid until its completion was taken.
    pub(crate) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.submission().push(entry) }.is_ok()
    }

    /// Whether an entry waits for the next call of the kernel.
    pub(crate) fn has_queued(&mut self) -> bool {
        !self.0.submission().is_empty()
    }

    /// Whether the kernel has completions that only a call brings.
    pub(crate) fn has_work(&mut self) -> bool {
        let queue = self.0.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Submits what is queued and brings completions, without waiting.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        let queued = self.0.submission().len() as u32;
        // SAFETY: no argument; the entries are as `push` was promised.
        unsafe {
            self.0.submitter().enter::<libc::sigset_t>(
                queued,
                0,
                EnterFlags::GETEVENTS.bits(),
                None,
            )?;
        }
        Ok(())
    }

    /// The same, and waits for a completion, at most for `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.0.submitter();
        let done = match timeout {
            None => submitter.submit_and_wait(1),
            Some(time) => {
                let spec = Timespec::from(time.min(Duration::from_secs(1 << 40)));
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&spec))
            }
        };
        done.map(drop)
    }

    /// Moves completions into `into`; how many.
    pub(crate) fn reap(&mut self, into: &mut [(u64, i32, u32)]) -> usize {
        let mut count = 0;
        let mut queue = self.0.completion();
        while count < into.len() {
            let Some(entry) = queue.next() else { break };
            into[count] = (entry.user_data(), entry.result(), entry.flags());
            count += 1;
        }
        count
    }
}

/// Whether more completions of the same operation come.
pub(crate) fn more(flags: u32) -> bool {
    cqueue::more(flags)
}

/// Whether there was more to read when the operation completed.
pub(crate) fn more_to_read(flags: u32) -> bool {
    cqueue::sock_nonempty(flags)
}
