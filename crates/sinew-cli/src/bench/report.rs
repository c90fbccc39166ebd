//! From samples to medians, ratios and verdicts.

use super::Options;
use super::rival::{Rival, Variant, driver};
use super::runner::{Item, Samples};
use super::stats::{Summary, ratio};
use super::workload::{Bar, Figure, SLEEP};

/// One figure of one workload with one number of workers.
pub struct Row {
    pub workload: &'static str,
    /// Which of Sinew's set-ups this is about.
    pub set_up: Variant,
    pub workers: usize,
    pub figure: &'static Figure,
    /// Sinew first.
    pub cells: Vec<(Rival, Cell)>,
    pub verdicts: Vec<Verdict>,
}

/// What one rival did.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// The better of its set-ups.
    Value(Variant, Summary),
    /// It did not live to say.
    Died,
    /// It has no such figure.
    Absent,
}

impl Cell {
    pub fn median(&self) -> Option<f64> {
        match self {
            Cell::Value(_, summary) => Some(summary.median),
            Cell::Died | Cell::Absent => None,
        }
    }
}

/// How a bar was met.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub bar: String,
    /// The ratio, where the bar is one.
    pub got: Option<f64>,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Missed,
    /// Nothing to compare with.
    Unknown,
}

impl Row {
    /// The workload, and Sinew's I/O driver where there is a choice.
    pub fn title(&self) -> String {
        match driver(self.set_up) {
            Some(driver) if *self.cell(Rival::Sinew) != Cell::Absent => {
                format!("{} {driver}", self.workload)
            }
            _ => self.workload.to_owned(),
        }
    }

    pub fn cell(&self, rival: Rival) -> &Cell {
        self.cells
            .iter()
            .find(|(r, _)| *r == rival)
            .map_or(&Cell::Absent, |(_, cell)| cell)
    }

    /// Sinew's figure over `rival`'s.
    pub fn ratio(&self, rival: Rival) -> Option<f64> {
        if !self.figure.compare {
            return None;
        }
        ratio(
            self.cell(Rival::Sinew).median()?,
            self.cell(rival).median()?,
        )
    }
}

/// One row for each figure of `plan` that anybody gave, and for each set-up of
/// Sinew.
pub fn rows(plan: &[Item], samples: &Samples) -> Vec<Row> {
    let mut rows = Vec::new();
    for item in plan {
        for figure in item.workload.figures {
            let set_ups = Rival::Sinew.variants(item.workload.kind, item.job.workers);
            for &set_up in set_ups {
                rows.extend(row(item, samples, figure, set_up));
            }
        }
    }
    rows
}

/// One row, unless nobody gave its figure.
fn row(item: &Item, samples: &Samples, figure: &'static Figure, set_up: Variant) -> Option<Row> {
    let cells: Vec<(Rival, Cell)> = item
        .rivals
        .iter()
        .map(|&rival| {
            let cell = match rival {
                Rival::Sinew => cell(item, samples, &[set_up], figure),
                _ => {
                    let variants = rival.variants(item.workload.kind, item.job.workers);
                    cell(item, samples, variants, figure)
                }
            };
            (rival, cell)
        })
        .collect();
    let mut given = cells.iter().filter(|(_, cell)| *cell != Cell::Absent);
    let first = Rival::Sinew.variants(item.workload.kind, item.job.workers)[0];
    match given.next() {
        None => return None,
        // Nothing of Sinew's: the same for all of its set-ups.
        Some((rival, _)) if *rival != Rival::Sinew && set_up != first => return None,
        Some(_) => {}
    }
    let mut row = Row {
        workload: item.workload.name,
        set_up,
        workers: item.job.workers,
        figure,
        cells,
        verdicts: Vec::new(),
    };
    row.verdicts = figure
        .bars
        .iter()
        .filter_map(|bar| bar.with(item.job.workers))
        .map(|bar| verdict(item, samples, &row, bar))
        .collect();
    Some(row)
}

/// The best of some set-ups of a rival: the one with the lowest median.
fn cell(item: &Item, samples: &Samples, variants: &[Variant], figure: &Figure) -> Cell {
    let best = variants
        .iter()
        .filter_map(|&variant| {
            Summary::of(samples.of(item, variant, figure.key)).map(|summary| (variant, summary))
        })
        .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    match best {
        Some((variant, summary)) => Cell::Value(variant, summary),
        None if variants.iter().any(|v| samples.failure(item, v).is_some()) => Cell::Died,
        None => Cell::Absent,
    }
}

fn verdict(item: &Item, samples: &Samples, row: &Row, bar: &Bar) -> Verdict {
    let own = row.cell(Rival::Sinew).median();
    let (got, kept) = match *bar {
        Bar::AtMost(limit) => (None, own.map(|own| own <= limit)),
        Bar::AtLeast(full) => (None, own.map(|own| own >= (full * item.job.scale).floor())),
        Bar::Times(limit, to) => {
            let best = to
                .iter()
                .filter_map(|&rival| row.cell(rival).median())
                .min_by(f64::total_cmp);
            let got = own.zip(best).and_then(|(own, best)| ratio(own, best));
            (got, got.map(|got| got <= limit))
        }
        Bar::TimesOwn(limit, key) => {
            let other = Summary::of(samples.of(item, row.set_up, key)).map(|s| s.median);
            let got = own.zip(other).and_then(|(own, other)| ratio(own, other));
            (got, got.map(|got| got <= limit))
        }
        Bar::TimesAlone(limit) => {
            let alone = samples.with_workers(1, item, row.set_up, row.figure.key);
            let alone = Summary::of(alone).map(|s| s.median);
            let got = own.zip(alone).and_then(|(own, alone)| ratio(own, alone));
            (got, got.map(|got| got <= limit))
        }
        Bar::WithOne(bar) | Bar::WithMore(bar) => return verdict(item, samples, row, bar),
    };
    let outcome = match (kept, row.cell(Rival::Sinew)) {
        (Some(true), _) => Outcome::Ok,
        (Some(false), _) | (None, Cell::Died) => Outcome::Missed,
        (None, _) => Outcome::Unknown,
    };
    Verdict {
        bar: bar.text(row.figure.unit),
        got,
        outcome,
    }
}

/// Takes the verdicts away: what ran at a tiny size meets or misses nothing.
pub fn without_verdicts(mut rows: Vec<Row>) -> Vec<Row> {
    for row in &mut rows {
        row.verdicts.clear();
    }
    rows
}

/// How many bars came out so.
pub fn count(rows: &[Row], outcome: Outcome) -> usize {
    rows.iter()
        .flat_map(|row| &row.verdicts)
        .filter(|verdict| verdict.outcome == outcome)
        .count()
}

/// What the reader of the table should know.
pub fn notes(options: &Options, samples: &Samples) -> Vec<String> {
    let mut notes = vec![
        String::new(),
        format!(
            "medians of {} round{}, one process per measurement; in brackets: sinew / rival",
            options.rounds,
            if options.rounds == 1 { "" } else { "s" }
        ),
        "yield: wall time over the yields of all workers together; raw: corosensei without a \
         runtime, or the better of bare loops around epoll and io_uring; tokio with 1 worker: \
         the better of current_thread and multi_thread"
            .to_owned(),
    ];
    if options.quick {
        notes.push(format!(
            "--quick: sizes are a hundredth ({SLEEP} and skynet too); no figure here is a result"
        ));
    }
    notes.extend(samples.failures());
    notes
}

#[cfg(test)]
pub mod tests {
    use super::super::child::Job;
    use super::super::runner::Answer;
    use super::super::workload;
    use super::*;

    /// Rows of one workload from `(rival, variant, key, samples)`; a rival
    /// without samples has died.
    pub fn rows_of(
        name: &str,
        workers: usize,
        given: &[(Rival, Variant, &str, &[f64])],
    ) -> Vec<Row> {
        let workload = workload::all().find(|w| w.name == name).unwrap();
        let item = Item {
            workload,
            job: Job {
                name: name.to_owned(),
                workers,
                scale: 1.0,
            },
            rivals: std::iter::once(Rival::Sinew)
                .chain(workload.rivals.iter().copied())
                .collect(),
        };
        let mut samples = Samples::default();
        for &(rival, variant, key, values) in given {
            for &value in values {
                let answer = Answer {
                    figures: vec![(key.to_owned(), value)],
                    failure: None,
                };
                samples.add(&item, rival, variant, answer);
            }
            if values.is_empty() {
                let answer = Answer {
                    figures: Vec::new(),
                    failure: Some("no map".to_owned()),
                };
                samples.add(&item, rival, variant, answer);
            }
        }
        rows(&[item], &samples)
    }

    #[test]
    fn the_better_set_up_of_a_rival_counts() {
        let rows = rows_of(
            "yield_10",
            1,
            &[
                (Rival::Sinew, "sinew", "ns", &[10.0, 12.0, 11.0]),
                (Rival::Tokio, "tokio-ct", "ns", &[220.0]),
                (Rival::Tokio, "tokio-mt", "ns", &[330.0]),
            ],
        );
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].ratio(Rival::Tokio), Some(0.05));
        assert!(matches!(
            rows[0].cell(Rival::Tokio),
            Cell::Value("tokio-ct", _)
        ));
    }

    #[test]
    fn a_bar_to_somebody_absent_is_unknown() {
        let rows = rows_of(
            "yield_10",
            2,
            &[
                (Rival::Sinew, "sinew", "ns", &[10.0]),
                (Rival::Tokio, "tokio-mt", "ns", &[50.0]),
            ],
        );
        let outcomes: Vec<_> = rows[0].verdicts.iter().map(|v| v.outcome).collect();
        assert_eq!(outcomes, [Outcome::Unknown, Outcome::Missed]); // may, tokio
        assert_eq!(rows[0].verdicts[1].got, Some(0.2));
        assert_eq!(count(&rows, Outcome::Missed), 1);
    }

    #[test]
    fn the_best_of_several_rivals_is_the_measure() {
        let rows = rows_of(
            "skynet_warm",
            2,
            &[
                (Rival::Sinew, "sinew", "ms", &[300.0]),
                (Rival::Tokio, "tokio-mt", "ms", &[600.0]),
                (Rival::Go, "go", "ms", &[400.0]),
                (Rival::May, "may", "ms", &[]),
            ],
        );
        assert_eq!(rows[0].verdicts[0].got, Some(0.75));
        assert_eq!(rows[0].verdicts[0].outcome, Outcome::Missed);
        assert_eq!(*rows[0].cell(Rival::May), Cell::Died);
    }

    #[test]
    fn a_bar_may_refer_to_another_figure() {
        let rows = rows_of(
            "timers_1m",
            1,
            &[
                (Rival::Sinew, "sinew", "insert_ns", &[100.0]),
                (Rival::Sinew, "sinew", "list_ns", &[40.0]),
            ],
        );
        // Nobody gave cancel_ns: no row for it.
        assert_eq!(rows.len(), 2);
        let outcomes: Vec<_> = rows[0].verdicts.iter().map(|v| v.outcome).collect();
        assert_eq!(outcomes, [Outcome::Ok, Outcome::Ok]);
        assert_eq!(rows[0].verdicts[1].got, Some(2.5));
    }

    #[test]
    fn a_bar_may_refer_to_the_same_with_one_worker() {
        let workload = workload::all().find(|w| w.name == "pingpong_1m").unwrap();
        let mut samples = Samples::default();
        let plan = [(1, 200.0), (2, 500.0)].map(|(workers, ms)| {
            let item = Item {
                workload,
                job: Job {
                    name: workload.name.to_owned(),
                    workers,
                    scale: 1.0,
                },
                rivals: vec![Rival::Sinew],
            };
            let answer = Answer {
                figures: vec![("ms".to_owned(), ms)],
                failure: None,
            };
            samples.add(&item, Rival::Sinew, "sinew", answer);
            item
        });
        let rows = rows(&plan, &samples);
        let outcomes = |row: &Row| row.verdicts.iter().map(|v| v.outcome).collect::<Vec<_>>();
        assert_eq!(outcomes(&rows[0]), [Outcome::Ok]);
        assert_eq!(outcomes(&rows[1]), [Outcome::Ok, Outcome::Missed]);
        assert_eq!(rows[1].verdicts[1].got, Some(2.5));
    }

    #[test]
    fn each_driver_of_sinew_has_a_row_and_is_held_against_the_better_rival() {
        let rows = rows_of(
            "echo_100",
            1,
            &[
                (Rival::Sinew, "sinew-epoll", "cpu_ns", &[5_000.0]),
                (Rival::Sinew, "sinew-uring", "cpu_ns", &[3_000.0]),
                (Rival::Tokio, "tokio-ct", "cpu_ns", &[4_500.0]),
                (Rival::Raw, "raw-epoll", "cpu_ns", &[4_000.0]),
                (Rival::Raw, "raw-uring", "cpu_ns", &[3_000.0]),
            ],
        );
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (row.title(), row.verdicts[0].outcome, row.verdicts[1].got))
            .collect();
        let expected = [
            (
                "echo_100 epoll".to_owned(),
                Outcome::Missed,
                Some(5.0 / 3.0),
            ),
            ("echo_100 uring".to_owned(), Outcome::Ok, Some(1.0)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_only_rivals_gave_is_told_once() {
        let rows = rows_of(
            "file_read",
            1,
            &[
                (Rival::Sinew, "sinew-epoll", "ns", &[900.0]),
                (Rival::Sinew, "sinew-uring", "ns", &[900.0]),
                (Rival::Tokio, "tokio-ct", "ns", &[9_000.0]),
                (Rival::Tokio, "tokio-ct", "ns_hop", &[4_500.0]),
            ],
        );
        let titles: Vec<_> = rows.iter().map(Row::title).collect();
        assert_eq!(titles, ["file_read epoll", "file_read uring", "file_read"]);
    }

    #[test]
    fn a_bar_is_missed_when_sinew_itself_dies() {
        let rows = rows_of("idle", 2, &[(Rival::Sinew, "sinew", "", &[])]);
        assert_eq!(rows[0].verdicts[0].outcome, Outcome::Missed);
    }
}
