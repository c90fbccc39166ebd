//! Rounds of child processes, and the samples they give.

use std::collections::{BTreeMap, HashMap};
use std::io::{IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::Options;
use super::child::{Job, kilobytes};
use super::rival::{Programs, Rival, Variant};
use super::workload::{self, ASLEEP, SLEEP, Workload};

/// One workload with one number of workers.
pub struct Item {
    pub workload: &'static Workload,
    pub job: Job,
    /// Sinew first.
    pub rivals: Vec<Rival>,
}

/// What a child said, and why it ended badly if it did.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    pub figures: Vec<(String, f64)>,
    pub failure: Option<String>,
}

/// All that was measured so far.
#[derive(Default)]
pub struct Samples {
    figures: HashMap<(&'static str, usize, Variant, String), Vec<f64>>,
    failures: HashMap<(&'static str, usize, Variant), (Rival, String)>,
}

impl Samples {
    /// What the rounds said about one figure, in order.
    pub fn of(&self, item: &Item, variant: Variant, key: &str) -> &[f64] {
        self.with_workers(item.job.workers, item, variant, key)
    }

    /// The same with another number of workers than `item` has.
    pub fn with_workers(&self, workers: usize, item: &Item, variant: Variant, key: &str) -> &[f64] {
        let place = (item.workload.name, workers, variant, key.to_owned());
        self.figures.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Why this child ended badly, if it ever did.
    pub fn failure(&self, item: &Item, variant: Variant) -> Option<&str> {
        self.failures
            .get(&(item.workload.name, item.job.workers, variant))
            .map(|(_, why)| why.as_str())
    }

    /// One line for each way in which somebody died, sorted.
    pub fn failures(&self) -> Vec<String> {
        let mut ways: BTreeMap<(Variant, &str), Vec<String>> = BTreeMap::new();
        for ((work, workers, variant), (_, why)) in &self.failures {
            let place = format!("{work} ({workers})");
            ways.entry((variant, why)).or_default().push(place);
        }
        ways.into_iter()
            .map(|((variant, why), mut places)| {
                places.sort();
                format!("{variant} died on {}: {why}", places.join(", "))
            })
            .collect()
    }

    /// How many of `rival`'s workloads ended badly.
    pub fn broken(&self, rival: Rival) -> usize {
        self.failures.values().filter(|(r, _)| *r == rival).count()
    }

    /// Books one answer.
    pub fn add(&mut self, item: &Item, rival: Rival, variant: Variant, answer: Answer) {
        let (name, workers) = (item.workload.name, item.job.workers);
        for (key, value) in answer.figures {
            self.figures
                .entry((name, workers, variant, key))
                .or_default()
                .push(value);
        }
        if let Some(why) = answer.failure {
            self.failures.insert((name, workers, variant), (rival, why));
        }
    }
}

/// What to run, in order.
pub fn plan(options: &Options, programs: &Programs) -> Vec<Item> {
    let scale = if options.quick { 0.01 } else { 1.0 };
    let wanted = |workload: &&Workload| {
        options.only.is_empty() || options.only.iter().any(|part| workload.name.contains(part))
    };
    workload::all()
        .filter(wanted)
        .flat_map(|workload| {
            let rivals: Vec<Rival> =
                std::iter::once(Rival::Sinew)
                    .chain(
                        workload.rivals.iter().copied().filter(|&rival| {
                            options.rivals.contains(&rival) && programs.has(rival)
                        }),
                    )
                    .collect();
            workload
                .workers(&options.workers)
                .into_iter()
                .map(move |workers| Item {
                    workload,
                    job: Job {
                        name: workload.name.to_owned(),
                        workers,
                        scale: scale * room(workload, scale),
                    },
                    rivals: rivals.clone(),
                })
        })
        .collect()
}

/// The part of the sleepers that memory has room for: 1, or less.
fn room(workload: &Workload, scale: f64) -> f64 {
    if ![SLEEP, ASLEEP].contains(&workload.name) {
        return 1.0;
    }
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = kilobytes(&info, "MemAvailable:") as f64 * 1024.0;
    fitting(available, scale)
}

/// The part of `scale` million sleepers, 5 KB each, that fits into four fifths
/// of `available` bytes; all if we do not know.
fn fitting(available: f64, scale: f64) -> f64 {
    if available <= 0.0 {
        return 1.0;
    }
    (available * 0.8 / (5e9 * scale)).min(1.0)
}

/// Runs each item once on each of its rivals.
///
/// `round` rotates who begins. A child that died is not tried again: it took
/// its time, and would die again.
pub fn run_round(
    plan: &[Item],
    programs: &Programs,
    options: &Options,
    round: usize,
    samples: &mut Samples,
) {
    // Some answers of `busy_10` take a rival a third of a second, and there are 300.
    let limit = Duration::from_secs(if options.quick { 30 } else { 240 });
    let mut progress = Progress::new(round + 1, options.rounds);
    for item in plan {
        let mut entries: Vec<(Rival, Variant)> = item
            .rivals
            .iter()
            .flat_map(|&rival| {
                let variants = rival.variants(item.workload.kind, item.job.workers);
                variants.iter().map(move |&variant| (rival, variant))
            })
            .collect();
        let first = round % entries.len();
        entries.rotate_left(first);
        for (rival, variant) in entries {
            if samples.failure(item, variant).is_some() {
                continue;
            }
            let Some(mut command) = programs.command(rival, variant, item.workload.kind, &item.job)
            else {
                continue;
            };
            progress.show(&item.job, variant);
            if [SLEEP, ASLEEP].contains(&item.job.name.as_str()) && !options.quick {
                warm_memory();
            }
            let answer = run_child(&mut command, limit);
            samples.add(item, rival, variant, answer);
        }
    }
    progress.clear();
}

/// Touches as much memory as a million sleepers need, and gives it back.
///
/// On a virtual machine the first touch of a page that the host has not backed
/// yet costs several times as much as a later one (6.6 and 1.6 µs, on the
/// machine this was written on). Without this the rival that runs first pays
/// for all.
fn warm_memory() {
    const BYTES: usize = 4_700_000_000;
    // SAFETY: a new private mapping of our own, unmapped right away; a failure
    // only leaves the memory cold.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0);
        if at != libc::MAP_FAILED {
            libc::munmap(at, BYTES);
        }
    }
}

/// Runs one child to its end, or until `limit`.
pub fn run_child(command: &mut Command, limit: Duration) -> Answer {
    let spawned = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(problem) => {
            return Answer {
                failure: Some(format!("can't start it: {problem}")),
                ..Answer::default()
            };
        }
    };
    // A pipe ends when its process does, so waiting needs no polling, which
    // would disturb what is measured.
    let (send, said) = mpsc::channel();
    let mut stdout = child.stdout.take().expect("stdout is a pipe");
    let mut stderr = child.stderr.take().expect("stderr is a pipe");
    let complaints = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text); // what came is what there is
        String::from_utf8_lossy(&text).into_owned()
    });
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.read_to_end(&mut text);
        let _ = send.send(());
        String::from_utf8_lossy(&text).into_owned()
    });
    let late = said.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
    if late {
        let _ = child.kill(); // it may have ended just now
    }
    let status = child.wait();
    let text = reader.join().expect("the reader panicked");
    let complaints = complaints.join().expect("the reader panicked");
    let failure = match status {
        _ if late => Some(format!("no end after {} s", limit.as_secs())),
        Ok(status) if status.success() => None,
        Ok(status) => Some(match last_words(&complaints) {
            Some(words) => format!("{status}: {words}"),
            None => status.to_string(),
        }),
        Err(problem) => Some(problem.to_string()),
    };
    Answer {
        figures: figures(&text),
        failure,
    }
}

/// The `key value` lines of a child's output.
pub fn figures(text: &str) -> Vec<(String, f64)> {
    text.lines()
        .filter_map(|line| {
            let (key, value) = line.split_once(' ')?;
            let value: f64 = value.trim().parse().ok()?;
            value.is_finite().then(|| (key.to_owned(), value))
        })
        .collect()
}

/// The first line of a child's complaints that says what went wrong.
fn last_words(complaints: &str) -> Option<String> {
    let mut lines = complaints.lines().filter(|line| !line.trim().is_empty());
    let line = match lines.clone().position(|line| line.contains("panicked at")) {
        // The message is on the line after "thread … panicked at …:".
        Some(at) => lines.nth(at + 1),
        None => lines.next(),
    }?;
    Some(line.trim().chars().take(160).collect())
}

/// A line on the terminal that says what runs.
struct Progress {
    round: usize,
    rounds: usize,
    terminal: bool,
}

impl Progress {
    fn new(round: usize, rounds: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        if !terminal {
            eprintln!("round {round} of {rounds}");
        }
        Progress {
            round,
            rounds,
            terminal,
        }
    }

    fn show(&mut self, job: &Job, variant: Variant) {
        if self.terminal {
            eprint!(
                "\r\x1b[2Kround {} of {}  {}  workers {}  {variant} ",
                self.round, self.rounds, job.name, job.workers
            );
            let _ = std::io::stderr().flush(); // only a progress line
        }
    }

    fn clear(&mut self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Answer {
        run_child(Command::new("sh").args(["-c", script]), limit)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn figures_are_read_and_other_lines_left() {
        let answer = shell(
            "echo ns 12.5; echo hello; echo bytes_each 1e3; echo x nan",
            LONG,
        );
        let expected = [("ns".to_owned(), 12.5), ("bytes_each".to_owned(), 1000.0)];
        assert_eq!(answer.figures, expected);
        assert_eq!(answer.failure, None);
    }

    #[test]
    fn what_a_child_said_before_it_died_counts() {
        let answer = shell("echo ns 3; echo no room >&2; exit 7", LONG);
        assert_eq!(answer.figures, [("ns".to_owned(), 3.0)]);
        let why = answer.failure.unwrap();
        assert!(why.contains('7') && why.contains("no room"), "{why}");
    }

    #[test]
    fn a_child_that_does_not_end_is_stopped() {
        let answer = shell("echo ns 3; exec sleep 100", Duration::from_millis(300));
        assert_eq!(answer.figures.len(), 1);
        assert!(answer.failure.unwrap().contains("no end"));
    }

    #[test]
    fn a_program_that_is_not_there_is_a_failure() {
        let answer = run_child(&mut Command::new("/nowhere/rivals"), LONG);
        assert!(answer.failure.unwrap().contains("can't start"));
    }

    #[test]
    fn the_message_of_a_panic_is_what_is_kept() {
        let text = "\nthread 'main' (7) panicked at src/x.rs:1:2:\nno stack\nnote: run with\n";
        assert_eq!(last_words(text).as_deref(), Some("no stack"));
        assert_eq!(
            last_words("fatal error\nmore\n").as_deref(),
            Some("fatal error")
        );
        assert_eq!(last_words(" \n"), None);
    }

    #[test]
    fn the_plan_has_only_what_was_asked_for_and_is_there() {
        let options = Options {
            only: vec!["skynet".to_owned(), "balance".to_owned()],
            quick: true,
            ..Options::default()
        };
        let plan = plan(&options, &Programs::none());
        let names: Vec<_> = plan
            .iter()
            .map(|item| (item.workload.name, item.job.workers, item.rivals.len()))
            .collect();
        assert_eq!(
            names,
            [
                ("skynet_cold", 1, 1),
                ("skynet_cold", 2, 1),
                ("skynet_warm", 1, 1),
                ("skynet_warm", 2, 1),
                ("balance", 2, 2), // plain threads are always there
            ]
        );
        assert!(plan.iter().all(|item| item.job.scale == 0.01));
    }

    #[test]
    fn fewer_sleepers_where_memory_is_short() {
        assert_eq!(fitting(16e9, 1.0), 1.0);
        assert_eq!(fitting(2.5e9, 1.0), 0.4);
        assert_eq!(fitting(2.5e9, 0.01), 1.0);
        assert_eq!(fitting(0.0, 1.0), 1.0);
    }
}
