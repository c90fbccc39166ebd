//! Asking a runtime to end, from anywhere: `Handle::shutdown`.
//!
//! Who asks does not wait, and may be a fiber of the runtime itself. The runtime ends where it
//! would have ended anyway: when it is dropped, or when the `run` that made it is done. A request
//! closes the gate (`sched::submit`), so that nobody spawns from outside any more, and cancels
//! every fiber, also those that fibers inside spawn from now on (`shutdown::cancel_from_now_on`).
//! With a limit it also tells the end when to give up what is left.

use super::global;
use super::runtime::Handle;
use crate::sched::submit;
use crate::sys::process;
use crate::worker::shutdown;
use std::io;
use std::time::Duration;

impl Handle {
    /// Asks the runtime to end: cancels every fiber, and returns at once.
    ///
    /// From now on nothing can be spawned from outside. Every fiber of the runtime, daemons and
    /// the caller included, is told [`Cancelled`](crate::Cancelled) at its next cancellation
    /// point, and so is every fiber that one of them spawns later. Nothing is cut off: the
    /// [`run`](crate::run) or the drop that ends the runtime waits for all fibers that are no
    /// daemons, as it always does.
    ///
    /// Waits for nothing, so it may be called anywhere, also on a fiber of the runtime itself. A
    /// second request, or one for a runtime that has ended, does nothing more.
    ///
    /// # Errors
    ///
    /// `Unsupported` for the global runtime, which nobody ever ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let result = sinew::run(|| {
    ///     let server = sinew::spawn(|| sinew::sleep(Duration::from_secs(3600)));
    ///     sinew::Handle::current().shutdown().unwrap(); // on SIGTERM, say
    ///     server.join()
    /// });
    /// // It was told while it slept, or it never ran.
    /// assert!(!matches!(result, Ok(Ok(()))));
    /// ```
    pub fn shutdown(&self) -> io::Result<()> {
        self.request(None)
    }

    /// As [`shutdown`](Self::shutdown); and what has not ended `timeout` later is leaked.
    ///
    /// The [`run`](crate::run) or the drop that ends the runtime waits until then, and no longer,
    /// for fibers and daemons. Those that are left it reports, and leaks with their stacks and all
    /// that is on them, as [`Runtime::shutdown_timeout`](crate::Runtime::shutdown_timeout) does.
    /// The closure of a `run` is always awaited, whatever the limit: it borrows from its caller.
    /// Of several limits the earliest counts.
    ///
    /// # Errors
    ///
    /// As [`shutdown`](Self::shutdown).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     // `park` is no cancellation point, so this one never ends.
    ///     sinew::spawn(|| loop { sinew::park() });
    ///     let me = sinew::Handle::current();
    ///     me.shutdown_timeout(Duration::from_millis(10)).unwrap();
    ///     assert!(sinew::is_cancelled());
    /// }); // returns all the same
    /// ```
    pub fn shutdown_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.request(Some(timeout))
    }

    fn request(&self, timeout: Option<Duration>) -> io::Result<()> {
        process::assert_not_forked();
        if global::is_global(&self.shared) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the global runtime cannot be shut down: it ends with the process",
            ));
        }
        submit::close(&self.shared);
        if let Some(timeout) = timeout {
            shutdown::give_up_after(&self.shared, timeout);
        }
        shutdown::cancel_from_now_on(&self.shared);
        Ok(())
    }
}
