//! What all measured programs share: the line protocol, the clocks and scales
//! they are read with, and the parts of a workload that are the same code for
//! every rival.
//!
//! A child is started as `<program> [rival] NAME --workers N --scale S` and
//! prints one figure per line, `key value`. What it printed before it died
//! still counts, so figures go out as soon as they are known.
//!
//! `sinew-rivals` compiles this very file, so that "the same work" is not two
//! texts that drift apart. It uses std and libc only.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Tasks in one batch of the batched spawn.
pub const BATCH: u64 = 10_000;
/// How long each of the million sleepers sleeps.
pub const NAP: Duration = Duration::from_secs(3);
/// How long an idle process is watched.
pub const WATCH: Duration = Duration::from_secs(2);
/// Yields of each task of the balance workload, after its work.
pub const BALANCE_YIELDS: u32 = 10;
/// Argument of [`fib`] there.
pub const FIB: u32 = 20;

/// One order from the parent.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    pub workers: usize,
    /// 1 is the published size; smaller is for smoke tests.
    pub scale: f64,
}

impl Job {
    /// Reads `NAME --workers N --scale S`.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Job, String> {
        let mut args = args.into_iter();
        let mut job = Job {
            name: args.next().ok_or("workload name missing")?,
            workers: 1,
            scale: 1.0,
        };
        while let Some(key) = args.next() {
            let value = args.next().ok_or_else(|| format!("{key} needs a value"))?;
            let bad = || format!("{key}: `{value}` is not in range");
            match key.as_str() {
                "--workers" => job.workers = value.parse().map_err(|_| bad())?,
                "--scale" => job.scale = value.parse().map_err(|_| bad())?,
                _ => return Err(format!("unknown option `{key}`")),
            }
            if job.workers == 0 || !(job.scale > 0.0 && job.scale <= 1.0) {
                return Err(bad());
            }
        }
        Ok(job)
    }

    /// `full` at scale 1, less below, at least 1.
    pub fn count(&self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(1)
    }

    /// How long a calibrated workload should run.
    pub fn target(&self) -> Duration {
        Duration::from_millis(500).mul_f64(self.scale.max(0.02))
    }

    /// Tasks that yield to each other on each worker, if this is such a job.
    pub fn yielders(&self) -> Option<u64> {
        match self.name.as_str() {
            "yield_1" => Some(1),
            "yield_10" => Some(10),
            "yield_1k" => Some(1_000),
            _ => None,
        }
    }

    /// Whether the two sides of a [`Rally`] get a CPU of their own each.
    pub fn is_apart(&self) -> bool {
        matches!(self.name.as_str(), "wake_apart" | "wake_io_apart")
    }

    /// Leaves of the skynet tree: the largest power of ten that fits.
    pub fn leaves(&self) -> u64 {
        10u64.pow(self.count(1_000_000).ilog10())
    }
}

/// Hands one figure to the parent.
pub fn report(key: &str, value: f64) {
    println!("{key} {value}"); // stdout is line buffered, also into a pipe
}

/// `total` over `n`, in nanoseconds.
pub fn each(total: Duration, n: u64) -> f64 {
    total.as_nanos() as f64 / n as f64
}

/// Warms `run` up, finds how many operations take `target`, and measures that
/// many. `run` takes a number of operations and answers how long they took.
pub fn steady(target: Duration, mut run: impl FnMut(u64) -> Duration) -> f64 {
    let mut n = 1_000;
    loop {
        let took = run(n);
        if took >= target / 10 {
            n = (n as f64 * target.as_secs_f64() / took.as_secs_f64()) as u64;
            break;
        }
        n *= 4;
    }
    let n = n.max(1);
    each(run(n), n)
}

/// The tree that is cancelled has so many groups.
pub const CANCEL_GROUPS: u64 = 100;

/// The unit of honest work.
#[inline(never)]
pub fn fib(n: u32) -> u64 {
    if n < 2 {
        u64::from(n)
    } else {
        fib(black_box(n - 1)) + fib(black_box(n - 2))
    }
}

/// Sum that skynet must find.
pub fn skynet_sum(leaves: u64) -> u64 {
    leaves * (leaves - 1) / 2
}

/// The middle of `values`, 0 if there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Resident bytes of this process plus its page tables.
pub fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ["VmRSS:", "VmPTE:"]
        .iter()
        .map(|key| kilobytes(&status, key) * 1024)
        .sum()
}

/// The value of one `Key:  123 kB` line of a /proc file, 0 if it is not there.
pub fn kilobytes(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// CPU time that all threads of this process have used.
pub fn cpu_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec for the call to fill in.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    assert_eq!(failed, 0, "no CPU clock");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Watches this process do nothing and reports its CPU use.
///
/// Called on the main thread while every task is parked.
pub fn report_idle(job: &Job) {
    thread::sleep(Duration::from_millis(300)); // let everybody come to rest
    let watch = WATCH.mul_f64(job.scale.max(0.1));
    let (before, start) = (cpu_time(), Instant::now());
    thread::sleep(watch);
    let used = cpu_time() - before;
    report(
        "cpu_ms_per_s",
        used.as_secs_f64() * 1e3 / start.elapsed().as_secs_f64(),
    );
}

/// Counts sleepers and weighs the process when all are asleep.
pub struct Sleepers {
    n: u64,
    start: Instant,
    before: u64,
    all_spawned: AtomicBool,
    started: AtomicU64,
    woken: AtomicU64,
}

impl Sleepers {
    /// Starts the clock and a thread that takes the weight: when the last
    /// sleeper has started, or when the first wakes if that is earlier.
    ///
    /// Call it after the room for handles was made and touched: that is the
    /// harness's memory, not the runtime's.
    pub fn begin(n: u64) -> (Arc<Sleepers>, JoinHandle<()>) {
        let sleepers = Arc::new(Sleepers {
            n,
            start: Instant::now(),
            before: memory(),
            all_spawned: AtomicBool::new(false),
            started: AtomicU64::new(0),
            woken: AtomicU64::new(0),
        });
        let scales = thread::spawn({
            let sleepers = sleepers.clone();
            move || sleepers.weigh()
        });
        (sleepers, scales)
    }

    /// Called by the spawner after its last spawn.
    pub fn all_spawned(&self) {
        self.all_spawned.store(true, Ordering::Relaxed);
    }

    /// Called by each sleeper just before it sleeps.
    pub fn enter(&self) {
        self.started.fetch_add(1, Ordering::Relaxed); // a plain count
    }

    /// Called by each sleeper when it woke.
    pub fn leave(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    fn weigh(&self) {
        loop {
            let (woken, started) = (
                self.woken.load(Ordering::Relaxed),
                self.started.load(Ordering::Relaxed),
            );
            if started == self.n || woken > 0 {
                let asleep = started.saturating_sub(woken).max(1);
                // Who has been spawned but has not slept yet weighs too.
                let alive = if self.all_spawned.load(Ordering::Relaxed) {
                    self.n - woken.min(self.n - 1)
                } else {
                    asleep
                };
                let bytes = memory().saturating_sub(self.before);
                report("asleep_at_once", asleep as f64);
                report("bytes_each", bytes as f64 / alive as f64);
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reports the time from [`begin`](Sleepers::begin) to the last join.
    pub fn end(&self, scales: JoinHandle<()>) {
        report("wall_s", self.start.elapsed().as_secs_f64());
        scales.join().expect("the weighing thread panicked");
    }
}

/// Who did how much of the work, by OS thread.
pub struct Tally([AtomicU64; 64]);

static SLOTS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SLOT: usize = SLOTS.fetch_add(1, Ordering::Relaxed) % 64;
}

impl Default for Tally {
    fn default() -> Tally {
        Tally(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Tally {
    /// Books one piece of work on this thread. Does not suspend.
    pub fn book(&self) {
        SLOT.with(|&slot| self.0[slot].fetch_add(1, Ordering::Relaxed));
    }

    /// Largest share over the even share.
    pub fn unevenness(&self, workers: usize) -> f64 {
        let shares = self.0.iter().map(|n| n.load(Ordering::Relaxed));
        let (max, sum) = shares.fold((0, 0), |(max, sum), n| (max.max(n), sum + n));
        max as f64 * workers as f64 / (sum as f64).max(1.0)
    }
}

/// A ball between an OS thread, which serves, and somebody who sleeps until
/// it is woken, answers, and sleeps again.
pub struct Rally {
    ball: AtomicU32,
    server: Thread,
}

const WITH_SERVER: u32 = 0;
const WITH_SLEEPER: u32 = 1;
const OVER: u32 = 2;

impl Rally {
    /// Called before the sleeper's runtime starts, on the thread that starts
    /// it: where the job asks for it, that thread and those it starts are put
    /// on a CPU that the server does not use.
    pub fn prepare(job: &Job) {
        if job.is_apart() {
            stay_on(1);
        }
    }

    /// A rally that the calling thread serves.
    pub fn new() -> Arc<Rally> {
        Arc::new(Rally {
            ball: AtomicU32::new(WITH_SERVER),
            server: thread::current(),
        })
    }

    /// Whether the sleeper has to sleep on.
    pub fn is_away(&self) -> bool {
        // Acquire: pairs with the Release of the other side's store.
        self.ball.load(Ordering::Acquire) == WITH_SERVER
    }

    /// Sends the ball back; false when the rally is over.
    pub fn answer(&self) -> bool {
        if self.ball.load(Ordering::Acquire) == OVER {
            return false;
        }
        self.ball.store(WITH_SERVER, Ordering::Release);
        self.server.unpark();
        true
    }

    /// The sleeper's side, where it can block.
    pub fn play(&self, mut park: impl FnMut()) {
        loop {
            while self.is_away() {
                park();
            }
            if !self.answer() {
                return;
            }
        }
    }

    /// The server's side, on the thread that made this rally. Reports the
    /// median round trip to somebody fast asleep (`ns`) and the mean one
    /// without pauses (`ns_busy`).
    pub fn serve(&self, job: &Job, mut wake: impl FnMut()) {
        if job.is_apart() {
            stay_on(0);
        }
        let mut round = || {
            let start = Instant::now();
            self.ball.store(WITH_SLEEPER, Ordering::Release);
            wake();
            while self.ball.load(Ordering::Acquire) == WITH_SLEEPER {
                thread::park();
            }
            start.elapsed()
        };
        for _ in 0..100 {
            round();
        }
        let mut asleep: Vec<f64> = (0..job.count(3_000).max(20))
            .map(|_| {
                thread::sleep(Duration::from_micros(200));
                each(round(), 1)
            })
            .collect();
        report("ns", median(&mut asleep));
        let n = job.count(20_000).max(100);
        let busy: Duration = (0..n).map(|_| round()).sum();
        report("ns_busy", each(busy, n));
        self.ball.store(OVER, Ordering::Release);
        wake();
    }
}

/// The CPUs that this process began with.
pub fn usable_cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| {
        // SAFETY: an all-zero set is a valid, empty one; the call gets a set of
        // the size it is told, and CPU_ISSET indices below CPU_SETSIZE.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
            (0..libc::CPU_SETSIZE as usize)
                .filter(|&cpu| libc::CPU_ISSET(cpu, &set))
                .collect()
        }
    })
}

/// Binds the calling thread, and those it will start, to the first or second
/// of the CPUs that this process began with. With one CPU it does nothing.
pub fn stay_on(which: usize) {
    let cpus = usable_cpus();
    if cpus.len() > 1 {
        // SAFETY: an all-zero set is a valid, empty one; the call gets a set of
        // the size it is told, and CPU_SET an index below CPU_SETSIZE.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpus[which], &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        }
    }
}

/// Says that a child has started, and when.
pub struct Started(Instant, Arc<AtomicU64>);

impl Started {
    /// To be called by the child first of all.
    pub fn mark(self) {
        let took = (self.0.elapsed().as_nanos() as u64).max(1);
        self.1.store(took, Ordering::Release);
    }
}

/// How long one child may take to start before we stop waiting for it.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// Spawns children from a task that never suspends and reports how long they
/// take to start. `spawn` must start a task that calls [`Started::mark`].
///
/// In between we compute for 2 ms, long enough for the other worker to fall
/// asleep. Three children that did not start within [`PATIENCE`] end the try.
pub fn report_spawn_latency(job: &Job, mut spawn: impl FnMut(Started)) {
    let mut micros = Vec::new();
    let mut late = 0;
    for _ in 0..job.count(200).max(10) {
        spin_until(Duration::from_millis(2), || false);
        let start = Instant::now();
        let cell = Arc::new(AtomicU64::new(0));
        spawn(Started(start, cell.clone()));
        spin_until(PATIENCE, || cell.load(Ordering::Acquire) != 0);
        let took = match cell.load(Ordering::Acquire) {
            0 => {
                late += 1;
                PATIENCE.as_secs_f64() * 1e6
            }
            nanos => nanos as f64 / 1e3,
        };
        micros.push(took);
        if late == 3 {
            break;
        }
    }
    report("us", median(&mut micros));
    report("us_max", micros.iter().copied().fold(0.0, f64::max));
}

fn spin_until(limit: Duration, done: impl Fn() -> bool) {
    let start = Instant::now();
    while start.elapsed() < limit && !done() {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_job_is_read_from_its_words() {
        let job = Job::parse(words("yield --workers 2 --scale 0.5")).unwrap();
        assert_eq!((job.name.as_str(), job.workers), ("yield", 2));
        assert_eq!(job.count(1_000_000), 500_000);
        assert_eq!(job.leaves(), 100_000);
    }

    #[test]
    fn a_job_out_of_range_is_refused() {
        for bad in [
            "",
            "x --workers",
            "x --workers 0",
            "x --scale 0",
            "x --scale 2",
            "x --scale nan",
            "x --y 1",
        ] {
            assert!(Job::parse(words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn kilobytes_are_found_by_their_key() {
        let text = "VmPeak:\t  9 kB\nVmRSS:\t    1234 kB\n";
        assert_eq!(kilobytes(text, "VmRSS:"), 1234);
        assert_eq!(kilobytes(text, "VmPTE:"), 0);
        assert!(memory() > 0);
    }

    #[test]
    fn steady_measures_about_the_target() {
        let mut last = 0;
        let ns = steady(Duration::from_millis(100), |n| {
            last = n;
            Duration::from_nanos(50) * n as u32
        });
        assert!((ns - 50.0).abs() < 0.1);
        assert!((1_900_000..2_100_000).contains(&last));
    }

    #[test]
    fn an_even_tally_is_one_and_a_lonely_one_is_the_number_of_workers() {
        let tally = Tally::default();
        tally.0[3].store(50, Ordering::Relaxed);
        assert_eq!(tally.unevenness(2), 2.0);
        tally.0[9].store(50, Ordering::Relaxed);
        assert_eq!(tally.unevenness(2), 1.0);
    }

    #[test]
    fn fib_and_the_skynet_sum_are_right() {
        assert_eq!(fib(20), 6765);
        assert_eq!(skynet_sum(10), 45);
    }
}
