//! `sinew tour`: a few seconds of what fibers can do.
//!
//! Everything here goes through the public API, so it is also an example. A
//! second OS thread draws the progress bars; the fibers only count.

use std::hint::black_box;
use std::io::{IsTerminal, Write};
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sinew::{JoinHandle, Runtime, spawn, yield_now};

use crate::bench::child::{kilobytes, memory};
use crate::bench::workload::Unit;

/// What the command line asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    pub fibers: Option<usize>,
    pub workers: Option<usize>,
}

/// Enough for what these fibers do, and a million of them need few page tables.
const STACK: usize = 64 * 1024;
/// Memory that a fiber needs: a page of its stack, its share of page tables,
/// its control block and our handle; rounded up.
const BYTES_EACH: u64 = 4_600;
/// The longest of the million sleeps.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// Shows everything and ends with a table.
pub fn run(options: &Options) -> ExitCode {
    let workers = options
        .workers
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let built = Runtime::builder()
        .workers(workers)
        .stack_size(STACK)
        .build();
    let rt = match built {
        Ok(rt) => rt,
        Err(problem) => {
            eprintln!("sinew tour: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let available = available_memory();
    let fibers = options
        .fibers
        .map_or_else(|| fibers_for(available), |n| n as u64);
    println!("sinew: fibers on {workers} OS threads\n");
    if options.fibers.is_none() && fibers < 1_000_000 {
        println!(
            "a million fibers need 4.6 GB and {} are free: taking {}\n",
            Unit::Bytes.show(available as f64),
            thousands(fibers)
        );
    }
    let mut table = Table::default();
    crowd(&rt, fibers, &mut table);
    spawn_and_join(&rt, &mut table);
    yields(&rt, workers, &mut table);
    borrowed(&rt, &mut table);
    contained(&rt, &mut table);
    table.row(
        "ran on",
        format!(
            "{workers} workers, stacks of {} KiB, overflow guard: {:?}",
            STACK / 1024,
            rt.stats().guard
        ),
    );
    print!("\n{}", table.render());
    ExitCode::SUCCESS
}

/// Bytes that we can take without pushing anybody out.
fn available_memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kilobytes(&info, "MemAvailable:") * 1024
}

/// A million, or what fits into four fifths of `available` bytes.
fn fibers_for(available: u64) -> u64 {
    (available / 5 * 4 / BYTES_EACH).clamp(1_000, 1_000_000)
}

/// All fibers alive at once; then each sets a timer of its own.
fn crowd(rt: &Runtime, n: u64, table: &mut Table) {
    let alive = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let late = Arc::new(AtomicU64::new(0)); // nanoseconds, the worst
    let before = memory();

    let (handles, took) = with_bar("fibers alive", n, &alive, || {
        let start = Instant::now();
        let handles: Vec<JoinHandle<()>> = rt.run(|| {
            let spawn_one = |i| {
                sinew::safepoint();
                let (alive, done, late) = (alive.clone(), done.clone(), late.clone());
                spawn(move || {
                    alive.fetch_add(1, Ordering::Relaxed);
                    sinew::park();
                    let nap = nap(i);
                    let start = Instant::now();
                    sinew::sleep(nap).expect("nobody cancels the tour");
                    let over = start.elapsed().saturating_sub(nap);
                    late.fetch_max(over.as_nanos() as u64, Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                })
            };
            let handles = (0..n).map(spawn_one).collect();
            while alive.load(Ordering::Relaxed) < n {
                yield_now();
            }
            handles
        });
        (handles, start.elapsed())
    });
    let bytes = memory().saturating_sub(before) / n;
    table.row(
        &format!("{} fibers alive at once", thousands(n)),
        format!(
            "{} each, up in {:.2} s",
            Unit::Bytes.show(bytes as f64),
            took.as_secs_f64()
        ),
    );

    let took = with_bar("timers fired", n, &done, || {
        let start = Instant::now();
        for handle in &handles {
            handle.fiber().unpark();
        }
        rt.run(|| {
            for handle in handles {
                handle.join().expect("a fiber of the tour panicked");
            }
        });
        start.elapsed()
    });
    table.row(
        &format!("{} timers, random order", thousands(n)),
        format!(
            "all fired in {:.2} s; the last one waited {} for its turn to run",
            took.as_secs_f64(),
            Unit::Nanoseconds.show(late.load(Ordering::Relaxed) as f64)
        ),
    );
}

/// A different sleep for each fiber, without a random number generator: the
/// golden ratio spreads any sequence of numbers evenly.
fn nap(i: u64) -> Duration {
    let part = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) as f64 / u64::MAX as f64;
    LONGEST_NAP.mul_f64(part)
}

fn spawn_and_join(rt: &Runtime, table: &mut Table) {
    const N: u64 = 500_000;
    let count = AtomicU64::new(0);
    let took = with_bar("spawn and join", N, &count, || {
        rt.run(|| {
            let start = Instant::now();
            for i in 0..N {
                let answer = spawn(move || i)
                    .join()
                    .expect("a fiber of the tour panicked");
                count.store(black_box(answer), Ordering::Relaxed);
            }
            start.elapsed()
        })
    });
    let each = took.as_nanos() as f64 / N as f64;
    table.row(
        "spawn and join",
        format!("{} a fiber", Unit::Nanoseconds.show(each)),
    );
}

fn yields(rt: &Runtime, workers: usize, table: &mut Table) {
    const EACH: u64 = 1_000_000;
    let fibers = 10 * workers as u64;
    let count = Arc::new(AtomicU64::new(0));
    let took = with_bar("yields", fibers * EACH, &count, || {
        rt.run(|| {
            let start = Instant::now();
            let handles: Vec<JoinHandle<()>> = (0..fibers)
                .map(|_| {
                    let count = count.clone();
                    spawn(move || {
                        for _ in 0..100 {
                            for _ in 0..EACH / 100 {
                                yield_now();
                            }
                            count.fetch_add(EACH / 100, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for handle in handles {
                handle.join().expect("a fiber of the tour panicked");
            }
            start.elapsed()
        })
    });
    let millions = (fibers * EACH) as f64 / took.as_secs_f64() / 1e6;
    table.row("yields", format!("{millions:.0} million a second"));
}

/// A pool thread works on a buffer that lives on the fiber's stack frame,
/// while the fiber's worker runs others.
fn borrowed(rt: &Runtime, table: &mut Table) {
    let (took, yields) = rt.run(|| {
        let mut words = vec![1_u64; 4 << 20];
        let stop = Arc::new(AtomicBool::new(false));
        let other = spawn({
            let stop = stop.clone();
            move || {
                let mut yields = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    yield_now();
                    yields += 1;
                }
                yields
            }
        });
        let start = Instant::now();
        sinew::blocking(|| {
            for round in 1..=20 {
                for word in &mut words {
                    *word = word.wrapping_mul(round) ^ round;
                }
            }
        });
        let took = start.elapsed();
        black_box(&words);
        stop.store(true, Ordering::Relaxed);
        (took, other.join().expect("a fiber of the tour panicked"))
    });
    table.row(
        "work borrowed by a pool thread",
        format!(
            "{:.0} ms; fibers yielded {} times meanwhile",
            took.as_secs_f64() * 1e3,
            thousands(yields)
        ),
    );
}

fn contained(rt: &Runtime, table: &mut Table) {
    // The default hook would print a trace into our table.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let joined = rt.run(|| spawn(|| -> () { panic!("a bad day") }).join());
    panic::set_hook(hook);
    let said = match joined {
        Ok(()) => "was lost".to_owned(),
        Err(error) => match error.into_panic().downcast_ref::<&str>() {
            Some(message) => format!("join returned \"{message}\"; everybody else went on"),
            None => "join returned it; everybody else went on".to_owned(),
        },
    };
    table.row("a panic", said);
}

/// Runs `work` while a bar shows how far `count` has come to `total`.
fn with_bar<T>(title: &str, total: u64, count: &AtomicU64, work: impl FnOnce() -> T) -> T {
    if !std::io::stdout().is_terminal() {
        return work();
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let painter = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                draw(title, count.load(Ordering::Relaxed), total);
                thread::park_timeout(Duration::from_millis(50));
            }
            draw(title, total, total);
            println!();
        });
        // Also when `work` panics: the scope waits for the painter.
        let stop = Stop(&over, painter.thread().clone());
        let answer = work();
        drop(stop);
        answer
    })
}

/// Ends the painter of a bar when dropped.
struct Stop<'a>(&'a AtomicBool, thread::Thread);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

fn draw(title: &str, count: u64, total: u64) {
    print!("\r{}", bar(title, count, total));
    let _ = std::io::stdout().flush(); // only a progress bar
}

/// One line: title, thirty cells, the number.
fn bar(title: &str, count: u64, total: u64) -> String {
    let full = (count.min(total) * 30 / total.max(1)) as usize;
    format!(
        "{title:16} {}{} {:>13}",
        "█".repeat(full),
        "░".repeat(30 - full),
        thousands(count)
    )
}

/// `1234567` as `1,234,567`.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What the tour found, in two columns.
#[derive(Default)]
struct Table(Vec<(String, String)>);

impl Table {
    fn row(&mut self, what: &str, found: String) {
        self.0.push((what.to_owned(), found));
    }

    fn render(&self) -> String {
        let wide = self.0.iter().map(|(what, _)| what.len()).max().unwrap_or(0);
        self.0
            .iter()
            .map(|(what, found)| format!("{what:wide$}  {found}\n"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_less_memory_there_are_fewer_fibers() {
        assert_eq!(fibers_for(16 << 30), 1_000_000);
        assert_eq!(fibers_for(2_300_000_000), 400_000);
        assert_eq!(fibers_for(0), 1_000);
    }

    #[test]
    fn naps_are_spread_over_the_second() {
        let mut buckets = [0; 10];
        for i in 0..1_000 {
            buckets[(nap(i).as_secs_f64() * 9.999) as usize] += 1;
        }
        assert!(
            buckets.iter().all(|&n| (90..=110).contains(&n)),
            "{buckets:?}"
        );
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(thousands(7), "7");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }

    #[test]
    fn a_bar_is_full_at_its_total_and_never_longer() {
        assert_eq!(bar("x", 0, 10).matches('█').count(), 0);
        assert_eq!(bar("x", 5, 10).matches('█').count(), 15);
        assert_eq!(bar("x", 99, 10).matches('█').count(), 30);
        assert_eq!(bar("x", 0, 0).matches('░').count(), 30);
    }

    #[test]
    fn a_table_aligns_its_second_column() {
        let mut table = Table::default();
        table.row("a", "1".to_owned());
        table.row("long", "2".to_owned());
        assert_eq!(table.render(), "a     1\nlong  2\n");
    }
}
