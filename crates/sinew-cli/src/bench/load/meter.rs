//! One measured stretch of load: a warm-up that does not count, a window that
//! does, and what the server used in it.

use std::io;
use std::time::{Duration, Instant};

use super::super::child::report;
use super::histogram::Histogram;
use super::server::{Process, unevenness};

/// How long the load goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Span {
    /// `seconds` are measured, after a quarter of that, at most half a second.
    pub fn of(seconds: f64) -> Span {
        Span {
            warm_up: Duration::from_secs_f64((seconds / 4.0).min(0.5)),
            measured: Duration::from_secs_f64(seconds),
        }
    }
}

/// What the server has used so far.
struct Used {
    at: Instant,
    cpu: Duration,
    threads: Vec<(u32, u64)>,
}

impl Used {
    fn by(server: Option<Process>) -> io::Result<Used> {
        Ok(Used {
            at: Instant::now(),
            cpu: server.map_or(Ok(Duration::ZERO), Process::cpu)?,
            threads: server.map_or(Ok(Vec::new()), Process::threads)?,
        })
    }
}

/// Counts what is done while the window is open.
pub struct Meter {
    server: Option<Process>,
    latencies: Histogram,
    done: u64,
    opens: Instant,
    closes: Instant,
    opened: Option<Used>,
    closed: Option<Used>,
}

impl Meter {
    /// The warm-up begins now.
    pub fn start(server: Option<Process>, span: Span) -> Meter {
        let opens = Instant::now() + span.warm_up;
        Meter {
            server,
            latencies: Histogram::new(),
            done: 0,
            opens,
            closes: opens + span.measured,
            opened: None,
            closed: None,
        }
    }

    /// Opens and closes the window; false when the load is over. To be called
    /// now and then, with the time.
    pub fn goes_on(&mut self, now: Instant) -> io::Result<bool> {
        if self.opened.is_none() && now >= self.opens {
            self.opened = Some(Used::by(self.server)?);
            self.latencies.clear();
            self.done = 0;
        }
        if self.closed.is_none() && now >= self.closes {
            self.closed = Some(Used::by(self.server)?);
        }
        Ok(self.closed.is_none())
    }

    /// Books `n` things done.
    #[inline]
    pub fn done(&mut self, n: u64) {
        if self.closed.is_none() {
            self.done += n;
        }
    }

    /// Books one thing done that took `latency`.
    #[inline]
    pub fn took(&mut self, latency: Duration) {
        if self.closed.is_none() {
            self.done += 1;
            self.latencies.add(latency.as_nanos() as u64);
        }
    }

    /// Hands the figures to the parent, each for `unit` things done; the
    /// number of workers is for what they share.
    pub fn report(&self, unit: u64, workers: usize) {
        let (Some(opened), Some(closed)) = (&self.opened, &self.closed) else {
            return;
        };
        let n = self.done as f64 / unit as f64;
        let per = |time: Duration| time.as_nanos() as f64 / n;
        report("msgs", n);
        report("wall_ns", per(closed.at - opened.at));
        if self.latencies.count() > 0 {
            report("p50_us", self.latencies.quantile(0.5) as f64 / 1e3);
            report("p99_us", self.latencies.quantile(0.99) as f64 / 1e3);
        }
        if self.server.is_some() {
            report("cpu_ns", per(closed.cpu - opened.cpu));
            if workers > 1 {
                let uneven = unevenness(&opened.threads, &closed.threads, workers);
                report("unevenness", uneven);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_done_while_the_window_is_open_counts() {
        let span = Span {
            warm_up: Duration::from_secs(10),
            measured: Duration::from_secs(20),
        };
        let start = Instant::now();
        let mut meter = Meter::start(None, span);
        assert!(meter.goes_on(start).unwrap());
        meter.took(Duration::from_secs(9));
        assert!(meter.goes_on(start + Duration::from_secs(11)).unwrap());
        meter.took(Duration::from_millis(1));
        meter.done(4);
        assert!(!meter.goes_on(start + Duration::from_secs(31)).unwrap());
        meter.took(Duration::from_secs(9));
        assert_eq!((meter.done, meter.latencies.count()), (5, 1));
        assert!(meter.latencies.quantile(1.0) < 2_000_000);
    }

    #[test]
    fn a_warm_up_is_a_quarter_but_not_too_long() {
        assert_eq!(Span::of(1.0).warm_up, Duration::from_millis(250));
        assert_eq!(Span::of(60.0).warm_up, Duration::from_millis(500));
    }
}
