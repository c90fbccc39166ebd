//! Which signal.

use std::fmt;
use std::io;

/// A kind of signal.
///
/// ```
/// use sinew::signal::SignalKind;
///
/// assert_eq!(SignalKind::interrupt().as_raw(), 2);
/// assert_eq!(SignalKind::from_raw(15), SignalKind::terminate());
/// assert_eq!(format!("{:?}", SignalKind::hangup()), "SIGHUP");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SignalKind(libc::c_int);

/// The kinds that have names.
macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident = $constant:ident;)*) => {
        impl SignalKind {
            $(
                $(#[$meta])*
                pub const fn $name() -> Self {
                    Self(libc::$constant)
                }
            )*
        }

        fn name_of(raw: libc::c_int) -> Option<&'static str> {
            match raw {
                $(libc::$constant => Some(stringify!($constant)),)*
                _ => None,
            }
        }
    };
}

kinds! {
    /// `SIGALRM`: a timer of the process is over.
    alarm = SIGALRM;
    /// `SIGCHLD`: a child has ended, stopped or gone on.
    child = SIGCHLD;
    /// `SIGHUP`: the terminal was closed; to daemons: read your configuration again.
    hangup = SIGHUP;
    /// `SIGINT`: Ctrl-C.
    interrupt = SIGINT;
    /// `SIGIO`: a descriptor is ready.
    io = SIGIO;
    /// `SIGPIPE`: a write to what nobody reads. Rust programs ignore it by default.
    pipe = SIGPIPE;
    /// `SIGQUIT`: `Ctrl-\`.
    quit = SIGQUIT;
    /// `SIGTERM`: the polite request to end.
    terminate = SIGTERM;
    /// `SIGUSR1`: whatever the program makes of it.
    user_defined1 = SIGUSR1;
    /// `SIGUSR2`: whatever the program makes of it.
    user_defined2 = SIGUSR2;
    /// `SIGWINCH`: the terminal has another size.
    window_change = SIGWINCH;
}

impl SignalKind {
    /// The kind with this number.
    pub const fn from_raw(raw: libc::c_int) -> Self {
        Self(raw)
    }

    /// Its number.
    pub const fn as_raw(self) -> libc::c_int {
        self.0
    }

    /// Sends one to this process.
    ///
    /// # Errors
    ///
    /// The system's: `InvalidInput` for what is no signal.
    pub fn raise(self) -> io::Result<()> {
        // SAFETY: no pointers.
        if unsafe { libc::kill(libc::getpid(), self.0) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl fmt::Debug for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "SignalKind({})", self.0),
        }
    }
}
