//! Signals of the operating system, received as messages are.
//!
//! ```text
//!   handler (anywhere)       thread "sinew-signal"         who waits
//!   ──────────────────       ─────────────────────         ─────────
//!   mark the kind            asleep in `read`
//!   ring the bell ─────────► takes the marks away
//!                            counts each kind ───────────► sees a higher count
//! ```
//!
//! A handler may do next to nothing, so it leaves a mark and rings. It runs on the
//! thread's alternate stack, so a fiber needs no room for it. The thread is
//! started by the first [`signal`], sleeps while nothing happens, and lives as long as
//! the process, as the handlers do: a program that has once asked for a kind is not
//! ended by it any more. Only [`ctrl_c`] is for once: when it has returned, and nobody
//! listens, the next Ctrl-C ends the program, which may hang in its clean-up.
//!
//! Handlers that other code installs need `SA_ONSTACK`, as in Go: without it the kernel
//! runs them on the stack of the fiber that happens to run, which may have no room.

mod kind;
mod post;

mod arm;

pub use arm::SignalArm;
pub use kind::SignalKind;

use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::sched::polling;
use crate::sync::{SequencerToken, WaitTimeoutError};
use crate::time::Instant;
use crate::wait::{Deadline, Pending, WaitOutcome, WaitSpec, perform};
use post::Kind;
use std::fmt;
use std::io;
use std::panic::Location;
use std::time::Duration;

/// Receives signals of one kind; see [`signal`].
///
/// Each of several receivers of a kind gets every signal. Signals that come between two
/// calls of [`recv`](Self::recv) count as one, as those do that the system has not
/// delivered yet; but one that came after the last `recv` returned is never missed.
///
/// It is an iterator, and `&mut` of it an arm `wait(…)` of [`select!`](crate::select!):
///
/// ```
/// use sinew::channel::unbounded;
/// use sinew::signal::{SignalKind, signal};
///
/// sinew::run(|| -> std::io::Result<()> {
///     let mut stops = signal(SignalKind::terminate())?;
///     let (jobs, queue) = unbounded();
///     jobs.send(7).unwrap();
///     let mut done = 0;
///     loop {
///         sinew::select! {
///             recv(queue) -> job => {
///                 done += job.unwrap();
///                 SignalKind::terminate().raise()?; // or `kill`
///             }
///             wait(&mut stops) -> stop => break stop?,
///         }
///     }
///     assert_eq!(done, 7);
///     Ok(())
/// })
/// .unwrap();
/// ```
///
/// ```
/// use sinew::signal::{SignalKind, signal};
///
/// sinew::run(|| -> std::io::Result<()> {
///     let mut hangups = signal(SignalKind::hangup())?;
///     assert!(!hangups.try_recv());
///     SignalKind::hangup().raise()?; // or `kill -HUP`
///     hangups.recv()?;
///     Ok(())
/// })
/// .unwrap();
/// ```
pub struct Signal {
    kind: SignalKind,
    of: &'static Kind,
    /// How many of the kind were seen.
    seen: u64,
    /// It is that of a [`ctrl_c`].
    one_shot: bool,
}

/// Begins to receive signals of this kind.
///
/// From now on, and for as long as the process lives, they have no other effect than
/// that, but for handlers that others have installed, which are called too. (After a
/// [`ctrl_c`] that holds for `SIGINT` as long as somebody listens.)
///
/// # Errors
///
/// `InvalidInput` for a kind that no program may handle (`SIGKILL`, `SIGSTOP`), for
/// faults, which are no messages (`SIGSEGV`, `SIGBUS`, `SIGILL`, `SIGFPE`), and for what is no
/// signal; otherwise the system's.
///
/// ```
/// use std::io::ErrorKind;
/// use sinew::signal::{SignalKind, signal};
///
/// let kill = SignalKind::from_raw(9);
/// assert_eq!(signal(kill).unwrap_err().kind(), ErrorKind::InvalidInput);
/// ```
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    let of = post::listen(kind)?;
    Ok(Signal {
        kind,
        of,
        seen: of.count.get(),
        one_shot: false,
    })
}

/// Waits for the next `SIGINT`, which a terminal sends for Ctrl-C; a cancellation point.
///
/// While the program listens, here or by a [`Signal`] of [`SignalKind::interrupt`], each
/// Ctrl-C is delivered. Once this has returned, or was cancelled, and nobody listens, the
/// next one has the effect that it had before: as a rule it ends the program. So a second
/// Ctrl-C ends a program that hangs in its clean-up. To go on receiving them, keep a
/// [`Signal`].
///
/// # Errors
///
/// As [`signal`], or a cancellation.
///
/// ```
/// use sinew::WaitReason;
/// use sinew::signal::{SignalKind, ctrl_c};
///
/// sinew::run(|| {
///     let stops = sinew::spawn(ctrl_c);
///     while stops.fiber().wait_reason() == WaitReason::None {
///         sinew::yield_now(); // serves
///     }
///     SignalKind::interrupt().raise()?; // or Ctrl-C
///     stops.join().unwrap()
/// })
/// .unwrap();
/// ```
#[track_caller]
pub fn ctrl_c() -> io::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    interrupts.one_shot = true;
    let next = interrupts.recv_by(None, Location::caller());
    next.map_err(|_| Cancelled.into())
}

impl Signal {
    /// The kind that it receives.
    pub fn kind(&self) -> SignalKind {
        self.kind
    }

    /// Waits for the next signal; a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn recv(&mut self) -> Result<(), Cancelled> {
        self.recv_by(None, Location::caller())
            .map_err(|_| Cancelled)
    }

    /// As [`recv`](Self::recv), but for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`WaitTimeoutError`] if the time was over first or the fiber was cancelled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::signal::{SignalKind, signal};
    /// use sinew::sync::WaitTimeoutError;
    ///
    /// let mut quits = signal(SignalKind::quit())?;
    /// let outcome = quits.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(outcome, Err(WaitTimeoutError::Timeout));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<(), WaitTimeoutError> {
        self.recv_by(Deadline::after(timeout), Location::caller())
            .map_err(why)
    }

    /// As [`recv`](Self::recv), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`recv_timeout`](Self::recv_timeout).
    #[track_caller]
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<(), WaitTimeoutError> {
        self.recv_by(Some(deadline.deadline()), Location::caller())
            .map_err(why)
    }

    /// Whether there was a signal since the last one that was received; if so it is now.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    pub fn try_recv(&mut self) -> bool {
        let count = self.of.count.get();
        polling::tried(std::mem::replace(&mut self.seen, count) < count)
    }

    /// Waits in async code, under any executor; dropped before that it has received
    /// nothing.
    pub async fn recv_async(&mut self) {
        Pending::new(self.next_one().operation()).await;
        self.seen = self.of.count.get();
    }

    /// What is reached when the next one has come.
    fn next_one(&self) -> SequencerToken<'static> {
        self.of.count.token(self.seen + 1)
    }

    fn recv_by(
        &mut self,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), WaitOutcome> {
        let spec = WaitSpec::new(WaitReason::Signal, at)
            .deadline(deadline)
            .cancellable();
        perform(&self.next_one().operation(), &spec)?;
        self.seen = self.of.count.get();
        Ok(())
    }
}

fn why(outcome: WaitOutcome) -> WaitTimeoutError {
    match outcome {
        WaitOutcome::Cancelled => WaitTimeoutError::Cancelled,
        _ => WaitTimeoutError::Timeout,
    }
}

/// Waits for one signal after the other; ends when the fiber is cancelled.
impl Iterator for Signal {
    type Item = ();

    #[track_caller]
    fn next(&mut self) -> Option<()> {
        self.recv_by(None, Location::caller()).ok()
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.of.leave(self.one_shot);
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signal").field(&self.kind).finish()
    }
}
