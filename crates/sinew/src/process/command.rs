//! How a child is to be started.

use super::child::{self, Child};
use crate::task::blocking;
use crate::wait::point;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};

/// A process to start, with its arguments, environment and standard streams: std's
/// `Command`, on which only the fiber waits.
///
/// ```
/// use sinew::process::Command;
///
/// sinew::run(|| -> std::io::Result<()> {
///     let output = Command::new("sh")
///         .args(["-c", "echo $GREETING"])
///         .env("GREETING", "hello")
///         .output()?;
///     assert!(output.status.success());
///     assert_eq!(output.stdout, b"hello\n");
///     Ok(())
/// })
/// .unwrap();
/// ```
pub struct Command {
    inner: process::Command,
    /// Which of the standard streams the user has said.
    said: Said,
    kill_on_drop: bool,
}

#[derive(Clone, Copy, Default)]
struct Said {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl Command {
    /// To start `program`, which is looked for in `PATH` unless it has a slash, without
    /// arguments, with this process's environment, directory and standard streams.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        process::Command::new(program).into()
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.inner.args(args);
        self
    }

    /// Sets a variable of the child's environment.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env(key, value);
        self
    }

    /// Sets variables of the child's environment.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.envs(vars);
        self
    }

    /// Takes a variable out of the child's environment.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env_remove(key);
        self
    }

    /// Lets the child begin with an empty environment.
    pub fn env_clear(&mut self) -> &mut Self {
        self.inner.env_clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Self {
        self.inner.current_dir(dir);
        self
    }

    /// Sets the child's standard input; by default this process's, or none for
    /// [`output`](Self::output).
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Self {
        self.inner.stdin(stdin);
        self.said.stdin = true;
        self
    }

    /// Sets the child's standard output; by default this process's, or a pipe for
    /// [`output`](Self::output).
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Self {
        self.inner.stdout(stdout);
        self.said.stdout = true;
        self
    }

    /// Sets the child's standard error; by default this process's, or a pipe for
    /// [`output`](Self::output).
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Self {
        self.inner.stderr(stderr);
        self.said.stderr = true;
        self
    }

    /// Whether a child is killed when its [`Child`] is dropped before it was waited for;
    /// no by default.
    ///
    /// Dropping does not wait. A child that has not quite ended by then is waited for
    /// when this process next starts one, and is a zombie until then. What the child has
    /// started itself goes on, as with std's `kill`: `process_group` and a signal to the
    /// whole group reach that.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.kill_on_drop = kill;
        self
    }

    /// The user that the child runs as.
    pub fn uid(&mut self, id: u32) -> &mut Self {
        self.inner.uid(id);
        self
    }

    /// The group that the child runs as.
    pub fn gid(&mut self, id: u32) -> &mut Self {
        self.inner.gid(id);
        self
    }

    /// What the child finds as its first argument, instead of the program's name.
    pub fn arg0(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.inner.arg0(arg);
        self
    }

    /// The process group that the child enters; 0 is a new one, which it leads.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.inner.process_group(group);
        self
    }

    /// Has `f` run in the child between `fork` and `exec`.
    ///
    /// On a fiber the child is started by a thread of the blocking pool, which ends when it
    /// has had nothing to do for a while: what the kernel ties to the thread that forked, as
    /// `PR_SET_PDEATHSIG` is, ends with it. Such a child is started on a thread of your own.
    ///
    /// # Safety
    ///
    /// As std's: of what other threads were at, locks and memory that is half changed,
    /// the child has a copy, but not the threads. So `f` may do only what a signal
    /// handler may; nothing of Sinew's works there.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { self.inner.pre_exec(f) };
        self
    }

    /// Replaces this process by the program; comes back only if that fails.
    pub fn exec(&mut self) -> io::Error {
        self.inner.exec()
    }

    /// Starts the child, on a thread of the blocking pool.
    ///
    /// A cancellation point, on entry only.
    ///
    /// # Errors
    ///
    /// The system's, such as `NotFound`, or a cancellation.
    #[track_caller]
    pub fn spawn(&mut self) -> io::Result<Child> {
        point::check()?;
        child::reap_orphans();
        let inner = &mut self.inner;
        let started = blocking(|| inner.spawn())?;
        Ok(Child::new(started, self.kill_on_drop))
    }

    /// Starts the child, waits for its end, and answers how that was.
    ///
    /// Cancelled, it leaves the child running, unless
    /// [`kill_on_drop`](Self::kill_on_drop) was said.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait`].
    ///
    /// ```
    /// assert_eq!(sinew::process::Command::new("false").status()?.code(), Some(1));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Starts the child, waits for its end, and collects what it writes.
    ///
    /// Unless set otherwise both outputs are piped, and the child reads from nothing.
    /// Cancelled, it leaves the child running, unless
    /// [`kill_on_drop`](Self::kill_on_drop) was said.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    #[track_caller]
    pub fn output(&mut self) -> io::Result<Output> {
        /// While this is there the child's streams are those of `output`.
        struct Collected<'a>(&'a mut Command);
        impl<'a> Collected<'a> {
            fn new(command: &'a mut Command) -> Self {
                command.set_unsaid(Stdio::null, Stdio::piped);
                Self(command)
            }
        }
        impl Drop for Collected<'_> {
            // For the next time, as they were by default; also if the spawn unwinds, which
            // it does where waiting is not allowed.
            fn drop(&mut self) {
                self.0.set_unsaid(Stdio::inherit, Stdio::inherit);
            }
        }
        let child = Collected::new(self).0.spawn();
        child?.wait_with_output()
    }

    /// Sets those of the standard streams that the user has not.
    fn set_unsaid(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) {
        if !self.said.stdin {
            self.inner.stdin(input());
        }
        if !self.said.stdout {
            self.inner.stdout(output());
        }
        if !self.said.stderr {
            self.inner.stderr(output());
        }
    }

    /// The program.
    pub fn get_program(&self) -> &OsStr {
        self.inner.get_program()
    }

    /// The arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.inner.get_args()
    }

    /// The variables that were set, or taken out.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// The working directory, if it was set.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.inner.get_current_dir()
    }
}

/// With std's standard streams, if those were set; they are not asked for again by
/// [`Command::output`], which cannot see them and pipes both outputs.
impl From<process::Command> for Command {
    fn from(inner: process::Command) -> Self {
        Self {
            inner,
            said: Said::default(),
            kill_on_drop: false,
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
