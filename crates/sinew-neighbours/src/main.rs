//! Clients of other projects on fibers: which of them block the worker, and what makes only
//! the fiber wait. Every line of the guide's table "Other crates on fibers" is a case here.
//!
//! ```text
//! cargo run --manifest-path crates/sinew-neighbours/Cargo.toml [WORDS]
//! ```
//!
//! Each case starts 20 fibers on *one* worker, and each fiber makes one call that takes 100 ms.
//! If the calls block the worker they come one after the other, and no two of them are ever
//! under way at a time. That number, not the time, decides whether a case has passed, so a
//! slow machine does not matter; the time is printed beside it.
//!
//! Servers are small stand-ins on loopback. Cases that need a real one are skipped, with a
//! line that says so, unless these variables name it:
//!
//! | variable | for example |
//! |---|---|
//! | `SINEW_NEIGHBOURS_POSTGRES` | `postgres://postgres@127.0.0.1:5432/postgres`; `.ci/postgres` starts one and sets it |
//! | `SINEW_NEIGHBOURS_REDIS` | `127.0.0.1:6379`, in place of the stand-in |

mod cases;
mod stand_ins;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a call takes at the server.
const DELAY: Duration = Duration::from_millis(100);
const FIBERS: usize = 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;
/// One call; each fiber makes one.
type Call = Arc<dyn Fn() -> Result<(), Failure> + Send + Sync>;

/// What a case is expected to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// Only the fiber waits: calls overlap.
    Waits,
    /// The worker is blocked: no two calls are under way at a time.
    Blocks,
    /// At least two calls panic, and their messages have these words.
    Panics(&'static str),
}

struct Case {
    /// The crate, and how it is used.
    name: &'static str,
    expect: Expect,
    /// Makes the call that is measured, on a fiber; or says why that cannot be tried here.
    prepare: Box<dyn FnOnce() -> Result<Call, Failure> + Send>,
}

/// What was seen.
struct Seen {
    at_a_time: usize,
    elapsed: Duration,
    panics: Vec<String>,
}

/// Makes the calls of a case.
fn observe(call: &Call) -> Result<Seen, Failure> {
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| {
            let (call, under_way, most) = (call.clone(), under_way.clone(), most.clone());
            sinew::spawn(move || {
                let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                let outcome = catch_unwind(AssertUnwindSafe(|| call()));
                under_way.fetch_sub(1, Ordering::SeqCst);
                outcome
            })
        })
        .collect();
    let mut panics = Vec::new();
    for fiber in fibers {
        match fiber.join().expect("its panics were caught") {
            Ok(outcome) => outcome?,
            Err(payload) => panics.push(text_of(&*payload)),
        }
    }
    Ok(Seen {
        at_a_time: most.load(Ordering::SeqCst),
        elapsed: begun.elapsed(),
        panics,
    })
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

fn fits(expect: Expect, seen: &Seen) -> bool {
    match expect {
        Expect::Waits => seen.panics.is_empty() && seen.at_a_time > 1,
        Expect::Blocks => seen.panics.is_empty() && seen.at_a_time == 1,
        Expect::Panics(words) => {
            let expected = seen.panics.iter().filter(|text| text.contains(words));
            expected.count() >= 2
        }
    }
}

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    // Panics are part of what is tried, and are counted; their lines would bury the table.
    std::panic::set_hook(Box::new(|_| ()));
    let (mut ran, mut failed, mut skipped) = (0, 0, 0);
    println!("| crate | expected | at a time | {FIBERS} calls of {DELAY:?} | panics |");
    println!("|---|---|---|---|---|");
    for case in cases::all() {
        if !wanted.is_empty() && !wanted.iter().any(|word| case.name.contains(word.as_str())) {
            continue;
        }
        let (name, expect) = (case.name, case.expect);
        // A runtime for each: whatever blocks one has no effect on the next.
        let runtime = sinew::Runtime::builder()
            .workers(1)
            .stack_size(1 << 20)
            .report_hogs_after(Duration::from_secs(3600))
            .build()
            .expect("a runtime of one worker");
        let outcome = runtime.run(|| match (case.prepare)() {
            Err(why) => Err(why),
            Ok(call) => Ok(observe(&call)),
        });
        match outcome {
            Err(why) => {
                skipped += 1;
                println!("| {name} | {expect:?} | skipped: {why} |");
            }
            Ok(Err(error)) => {
                ran += 1;
                failed += 1;
                println!("| {name} | {expect:?} | FAILED: {error} |");
            }
            Ok(Ok(seen)) => {
                let fits = fits(expect, &seen);
                ran += 1;
                failed += usize::from(!fits);
                let mark = if fits { "" } else { " NOT AS EXPECTED" };
                println!(
                    "| {name} | {expect:?} | {} | {:.2} s | {}{mark} |",
                    seen.at_a_time,
                    seen.elapsed.as_secs_f64(),
                    seen.panics.len(),
                );
                if let Some(text) = seen.panics.first() {
                    println!("  {text}");
                }
            }
        }
    }
    println!("{ran} cases ran, {failed} of them not as expected; {skipped} were skipped");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
