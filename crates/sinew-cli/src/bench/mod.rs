//! `sinew bench`: every workload on Sinew and on its rivals, in one run.
//!
//! ```text
//! workload   what a workload is: its figures, and bars that they must meet
//! list       all of them
//! rival      who is measured, and how its programs are built and started
//! work       Sinew's side of the workloads   ┐ run in child processes,
//! threads    the same with plain threads     │ `sinew __work RUNTIME NAME …`
//! child      what all children share         │
//! waits      … where tasks wait for another  │
//! serve      … where they serve sockets      ┘
//! load       who keeps those servers busy, and measures them
//! runner     rounds of child processes -> samples
//! report     samples -> medians, ratios and verdicts
//! table csv svg   how those are shown
//! ```
//!
//! Each measurement has a process of its own, so that no workload inherits
//! another's warm caches, stacks or threads. Within a round the rivals take
//! turns, and each round begins with another one: what disturbs the machine
//! for a while disturbs all of them. Ratios are ratios of medians.

pub mod alloc;
pub mod child;
pub mod csv;
pub mod list;
mod list_io;
pub mod load;
pub mod report;
pub mod rival;
pub mod runner;
pub mod serve;
pub mod stats;
pub mod svg;
pub mod table;
pub mod threads;
pub mod waits;
pub mod work;
pub mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use report::Outcome;
use rival::{Programs, Rival};

/// What the command line asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Parts of names; empty for all workloads.
    pub only: Vec<String>,
    pub rivals: Vec<Rival>,
    /// Sorted, without duplicates.
    pub workers: Vec<usize>,
    pub rounds: usize,
    pub quick: bool,
    pub csv: Option<PathBuf>,
    pub svg: Option<PathBuf>,
    pub rivals_dir: PathBuf,
    pub build: bool,
    pub check: bool,
    pub list: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            only: Vec::new(),
            rivals: Rival::ALL.to_vec(),
            workers: vec![1, 2],
            rounds: 5,
            quick: false,
            csv: None,
            svg: None,
            rivals_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("../sinew-rivals"),
            build: true,
            check: false,
            list: false,
        }
    }
}

/// Runs the benchmarks and prints their table.
pub fn run(options: &Options) -> ExitCode {
    if options.list {
        for workload in workload::all() {
            println!("{:14} {}", workload.name, workload.what);
        }
        return ExitCode::SUCCESS;
    }
    let programs = match Programs::prepare(options) {
        Ok(programs) => programs,
        Err(problem) => {
            eprintln!("sinew bench: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let plan = runner::plan(options, &programs);
    if plan.is_empty() {
        eprintln!("sinew bench: none of these workloads runs with so few workers");
        return ExitCode::from(2);
    }
    let mut samples = runner::Samples::default();
    for round in 0..options.rounds {
        runner::run_round(&plan, &programs, options, round, &mut samples);
        // After each round, so that a run that is cut short leaves something.
        if let Err(problem) = write_files(options, &report::rows(&plan, &samples)) {
            eprintln!("sinew bench: {problem}");
            return ExitCode::FAILURE;
        }
    }
    let mut rows = report::rows(&plan, &samples);
    if options.quick {
        rows = report::without_verdicts(rows);
    }
    print!("{}", table::render(&rows));
    for note in report::notes(options, &samples) {
        println!("{note}");
    }
    let missed = report::count(&rows, Outcome::Missed);
    let met = report::count(&rows, Outcome::Ok);
    if met + missed > 0 {
        println!("\n{met} bars met, {missed} missed");
    }
    let broken = samples.broken(Rival::Sinew);
    if broken > 0 {
        println!("{broken} workloads of sinew itself failed");
    }
    if broken > 0 || (options.check && missed > 0) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn write_files(options: &Options, rows: &[report::Row]) -> io::Result<()> {
    let write = |path: &Path, text: String| {
        fs::write(path, text)
            .map_err(|e| io::Error::new(e.kind(), format!("can't write {}: {e}", path.display())))
    };
    if let Some(path) = &options.csv {
        write(path, csv::render(rows))?;
    }
    if let Some(path) = &options.svg {
        write(path, svg::render(rows))?;
    }
    Ok(())
}
