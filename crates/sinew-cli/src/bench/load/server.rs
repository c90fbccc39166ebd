//! The server under load: its process, and what it uses.

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::super::child::{self, kilobytes};
use super::super::serve::UPSTREAM;

/// A server that we started; ended when dropped.
pub struct Server {
    child: Child,
    pub addr: SocketAddr,
}

impl Server {
    /// Starts `words` (a program and its arguments) and waits until it listens.
    ///
    /// `pinned`: it gets the first CPU, and the caller the second.
    pub fn start(
        words: &[String],
        pinned: bool,
        upstream: Option<SocketAddr>,
    ) -> io::Result<Server> {
        let (program, args) = words
            .split_first()
            .ok_or_else(|| io::Error::other("no server to start"))?;
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(at) = upstream {
            command.env(UPSTREAM, at.to_string());
        }
        child::usable_cpus(); // found out here, where it may allocate
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                // It must not outlive us, however we end.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if pinned {
                    child::stay_on(0);
                }
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        if pinned {
            child::stay_on(1);
        }
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        BufReader::new(stdout).read_line(&mut line)?;
        let port = line
            .strip_prefix("port ")
            .and_then(|n| n.trim().parse().ok());
        let Some(port) = port else {
            let status = child.wait()?;
            return Err(io::Error::other(format!(
                "the server did not listen: {status}"
            )));
        };
        Ok(Server {
            child,
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        })
    }

    pub fn process(&self) -> Process {
        Process(self.child.id())
    }

    /// Adds to `problem` that the server has died, if it has.
    pub fn explain(mut self, problem: io::Error) -> io::Error {
        match self.child.try_wait() {
            Ok(Some(status)) => io::Error::other(format!("{problem}; the server died: {status}")),
            _ => problem,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may be gone already
        let _ = self.child.wait();
    }
}

/// A process, by its id.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

impl Process {
    /// CPU time of all its threads, also of those that have ended.
    ///
    /// Exact at the moment of the call, other than what /proc says, which is
    /// as of the last tick for a thread that runs.
    pub fn cpu(self) -> io::Result<Duration> {
        let mut clock = 0;
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both calls get valid places to write to.
        unsafe {
            let failed = libc::clock_getcpuclockid(self.0 as i32, &raw mut clock);
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            if libc::clock_gettime(clock, &raw mut now) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    /// CPU time of each of its threads in nanoseconds, with their ids, as of
    /// the last tick.
    pub fn threads(self) -> io::Result<Vec<(u32, u64)>> {
        let mut threads = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{}/task", self.0))? {
            let entry = entry?;
            let id = entry.file_name().to_string_lossy().parse();
            // A thread may end between the two looks.
            let text = std::fs::read_to_string(entry.path().join("schedstat"));
            let used = text
                .ok()
                .and_then(|text| text.split(' ').next()?.parse().ok());
            if let (Ok(id), Some(used)) = (id, used) {
                threads.push((id, used));
            }
        }
        Ok(threads)
    }

    /// Resident bytes plus page tables.
    pub fn memory(self) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0))?;
        Ok(["VmRSS:", "VmPTE:"]
            .iter()
            .map(|key| kilobytes(&status, key) * 1024)
            .sum())
    }
}

/// The busiest thread's time over an even share of all time, for `workers`.
pub fn unevenness(before: &[(u32, u64)], after: &[(u32, u64)], workers: usize) -> f64 {
    let used = after.iter().map(|&(id, now)| {
        let then = before.iter().find(|(other, _)| *other == id);
        now - then.map_or(0, |(_, then)| *then).min(now)
    });
    let (max, sum) = used.fold((0, 0), |(max, sum), n| (n.max(max), sum + n));
    max as f64 * workers as f64 / (sum as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_grows_with_its_work() {
        let this = Process(std::process::id());
        let before = this.cpu().unwrap();
        let mut rounds = 0;
        while this.cpu().unwrap() < before + Duration::from_millis(5) {
            rounds += 1;
        }
        assert!(rounds > 0);
        let threads = this.threads().unwrap();
        assert!(threads.iter().any(|(id, _)| *id == this.0), "{threads:?}");
        assert!(this.memory().unwrap() > 100_000);
    }

    #[test]
    fn a_process_that_is_not_there_has_no_time() {
        assert!(Process(0x3fff_fff0).cpu().is_err());
    }

    #[test]
    fn what_was_used_before_does_not_count() {
        let before = [(1, 900), (2, 0)];
        assert_eq!(unevenness(&before, &[(1, 1000), (2, 100)], 2), 1.0);
        assert_eq!(unevenness(&before, &[(1, 900), (2, 50), (3, 0)], 2), 2.0);
    }

    #[test]
    fn a_server_that_does_not_listen_is_a_failure() {
        let words = ["sh", "-c", "exit 3"].map(str::to_owned);
        let problem = Server::start(&words, false, None)
            .err()
            .unwrap()
            .to_string();
        assert!(problem.contains('3'), "{problem}");
    }
}
