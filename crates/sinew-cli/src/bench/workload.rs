//! What is measured, and which bars it must meet.

use super::list::PLAIN;
use super::list_io::IO;
use super::rival::Rival;

/// All workloads, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Workload> {
    PLAIN.iter().chain(IO)
}

/// One program that runs on Sinew and on some rivals.
pub struct Workload {
    pub name: &'static str,
    pub what: &'static str,
    pub kind: Kind,
    pub workers: Workers,
    /// Who has it besides Sinew.
    pub rivals: &'static [Rival],
    pub figures: &'static [Figure],
}

/// What a workload's child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It measures itself, and needs no I/O driver.
    Plain,
    /// It measures itself, with each I/O driver.
    Io,
    /// It serves, with each I/O driver, and `load` measures it.
    Served,
}

/// With which numbers of workers a workload makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Any.
    Any,
    /// It needs another worker beside its own.
    Several,
    /// The number does not matter: once is enough.
    Once,
}

/// One number that a workload gives.
pub struct Figure {
    /// What the child calls it.
    pub key: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    /// Whether ratios to rivals say something.
    pub compare: bool,
    pub bars: &'static [Bar],
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Bytes,
    /// Milliseconds of CPU time in a second.
    CpuPerSecond,
    /// A count of things.
    Count,
    /// A plain number.
    Plain,
}

/// What a figure of Sinew must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// At most so many times the best of these rivals.
    Times(f64, &'static [Rival]),
    /// At most so many times another figure of the same workload.
    TimesOwn(f64, &'static str),
    /// At most this.
    AtMost(f64),
    /// At least this part of the full size.
    AtLeast(f64),
    /// At most so many times the same figure with one worker.
    TimesAlone(f64),
    /// What it must be with one worker; nothing with more.
    WithOne(&'static Bar),
    /// What it must be with more than one worker; nothing with one.
    WithMore(&'static Bar),
}

use Bar::{AtLeast, AtMost, Times, TimesAlone, TimesOwn, WithMore, WithOne};

/// The workload that needs the memory.
pub const SLEEP: &str = "sleep_1m";
/// Its longer sister; it needs as much memory.
pub const ASLEEP: &str = "asleep_1m";

impl Workload {
    /// Which of `asked` (sorted) to run this with.
    pub fn workers(&self, asked: &[usize]) -> Vec<usize> {
        match self.workers {
            Workers::Any => asked.to_vec(),
            Workers::Several => asked.iter().copied().filter(|&n| n > 1).collect(),
            Workers::Once => asked.first().copied().into_iter().collect(),
        }
    }
}

impl Bar {
    /// The bar that `workers` workers have to meet, if there is one.
    pub fn with(&self, workers: usize) -> Option<&Bar> {
        match self {
            WithOne(bar) => (workers == 1).then_some(*bar),
            WithMore(bar) => (workers > 1).then_some(*bar),
            TimesAlone(_) => (workers > 1).then_some(self),
            Times(..) | TimesOwn(..) | AtMost(_) | AtLeast(_) => Some(self),
        }
    }

    /// Words for the table.
    pub fn text(&self, unit: Unit) -> String {
        match *self {
            Times(limit, [one]) => format!("≤ {limit}× {}", one.name()),
            Times(limit, many) => {
                let names: Vec<_> = many.iter().map(|rival| rival.name()).collect();
                format!("≤ {limit}× best of {}", names.join(", "))
            }
            TimesOwn(limit, key) => format!("≤ {limit}× {}", key.trim_end_matches("_ns")),
            AtMost(limit) => format!("≤ {}", unit.show(limit)),
            AtLeast(limit) => format!("≥ {}", unit.show(limit)),
            TimesAlone(limit) => format!("≤ {limit}× 1 worker"),
            WithOne(bar) | WithMore(bar) => bar.text(unit),
        }
    }
}

impl Unit {
    /// A number for people: three digits that matter, and its unit.
    pub fn show(self, value: f64) -> String {
        const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
        const BYTES: [(f64, &str); 4] = [(1e9, "GB"), (1e6, "MB"), (1e4, "KB"), (1.0, "B")];
        let scaled = |value: f64, units: [(f64, &str); 4]| {
            let (size, name) = units
                .into_iter()
                .find(|(size, _)| value.abs() >= *size)
                .unwrap_or(units[3]);
            let size = if name == "KB" { 1e3 } else { size };
            format!("{} {name}", digits(value / size))
        };
        match self {
            Unit::Nanoseconds => scaled(value, TIMES),
            Unit::Microseconds => scaled(value * 1e3, TIMES),
            Unit::Milliseconds => scaled(value * 1e6, TIMES),
            Unit::Seconds => scaled(value * 1e9, TIMES),
            Unit::Bytes => scaled(value, BYTES),
            Unit::CpuPerSecond => format!("{} ms/s", digits(value)),
            Unit::Count => format!("{value:.0}"),
            Unit::Plain => digits(value),
        }
    }
}

/// `value` with about three digits that matter.
pub fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rival::Rival::{Go, Tokio};
    use super::*;

    #[test]
    fn names_are_unique_and_figures_too() {
        for (i, workload) in all().enumerate() {
            assert!(all().take(i).all(|other| other.name != workload.name));
            for (j, figure) in workload.figures.iter().enumerate() {
                assert!(workload.figures[..j].iter().all(|o| o.key != figure.key));
            }
        }
    }

    #[test]
    fn every_bar_refers_to_something_measured() {
        for workload in all() {
            let bars = workload.figures.iter().flat_map(|figure| figure.bars);
            for bar in bars.flat_map(|bar| [bar.with(1), bar.with(2)]).flatten() {
                match *bar {
                    Times(_, to) => assert!(to.iter().all(|r| workload.rivals.contains(r))),
                    TimesOwn(_, key) => assert!(workload.figures.iter().any(|f| f.key == key)),
                    TimesAlone(_) => assert_eq!(workload.workers, Workers::Any),
                    AtMost(_) | AtLeast(_) => {}
                    WithOne(_) | WithMore(_) => panic!("{}: a condition in one", workload.name),
                }
            }
        }
    }

    #[test]
    fn workers_are_chosen_from_those_asked_for() {
        let of = |name: &str| all().find(|w| w.name == name).unwrap();
        assert_eq!(of("yield_10").workers(&[1, 2]), [1, 2]);
        assert_eq!(of("balance").workers(&[1, 2, 4]), [2, 4]);
        assert_eq!(of("timers_1m").workers(&[2, 4]), [2]);
        assert!(of("idle").workers(&[1]).is_empty());
    }

    #[test]
    fn a_bar_may_hold_for_some_numbers_of_workers_only() {
        let bars = [WithOne(&AtMost(1.0)), WithMore(&AtMost(2.0))];
        let with = |workers| {
            bars.iter()
                .filter_map(|b| b.with(workers))
                .collect::<Vec<_>>()
        };
        assert_eq!(with(1), [&AtMost(1.0)]);
        assert_eq!(with(4), [&AtMost(2.0)]);
        assert_eq!(TimesAlone(2.0).with(1), None); // that is itself
    }

    #[test]
    fn numbers_are_shown_with_three_digits_and_a_unit() {
        assert_eq!(Unit::Nanoseconds.show(11.234), "11.2 ns");
        assert_eq!(Unit::Nanoseconds.show(27_245.0), "27.2 µs");
        assert_eq!(Unit::Milliseconds.show(618.8), "619 ms");
        assert_eq!(Unit::Seconds.show(4.1115), "4.11 s");
        assert_eq!(Unit::Bytes.show(4221.4), "4221 B");
        assert_eq!(Unit::Bytes.show(64e6), "64.0 MB");
        assert_eq!(Unit::Bytes.show(0.0), "0 B");
        assert_eq!(Unit::CpuPerSecond.show(0.0301), "0.030 ms/s");
        assert_eq!(Unit::Count.show(450_959.0), "450959");
        assert_eq!(Unit::Bytes.show(-12_000.0), "-12.0 KB");
    }

    #[test]
    fn a_bar_says_what_it_asks_for() {
        assert_eq!(
            Times(0.6, &[Tokio, Go]).text(Unit::Milliseconds),
            "≤ 0.6× best of tokio, go"
        );
        assert_eq!(
            TimesOwn(3.0, "list_ns").text(Unit::Nanoseconds),
            "≤ 3× list"
        );
        assert_eq!(AtMost(4_600.0).text(Unit::Bytes), "≤ 4600 B");
        assert_eq!(TimesAlone(2.0).text(Unit::Milliseconds), "≤ 2× 1 worker");
    }
}
