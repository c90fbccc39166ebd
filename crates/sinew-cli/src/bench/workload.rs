//! What is measured, and which bars it must meet.

use super::rival::Rival;

/// One program that runs on Sinew and on some rivals.
pub struct Workload {
    pub name: &'static str,
    pub what: &'static str,
    pub workers: Workers,
    /// Who has it besides Sinew.
    pub rivals: &'static [Rival],
    pub figures: &'static [Figure],
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
}

use Bar::{AtLeast, AtMost, Times, TimesOwn};
use Rival::{Go, May, Raw, Threads, Tokio};

const fn figure(
    key: &'static str,
    title: &'static str,
    unit: Unit,
    bars: &'static [Bar],
) -> Figure {
    Figure {
        key,
        title,
        unit,
        compare: true,
        bars,
    }
}

const YIELD_FIGURES: &[Figure] = &[figure(
    "ns",
    "wall time / all yields",
    Unit::Nanoseconds,
    &[Times(0.6, &[May]), Times(0.1, &[Tokio])],
)];

const SKYNET_FIGURES: &[Figure] = &[figure(
    "ms",
    "total",
    Unit::Milliseconds,
    &[Times(0.6, &[Tokio, Go])],
)];

const WAKE_FIGURES: &[Figure] = &[
    figure(
        "ns",
        "round trip, asleep",
        Unit::Nanoseconds,
        &[Times(1.3, &[Threads])],
    ),
    figure("ns_busy", "round trip, no pause", Unit::Nanoseconds, &[]),
];

/// All workloads, in the order in which they run.
pub const ALL: &[Workload] = &[
    Workload {
        name: "yield_1",
        what: "one task per worker yields, with nobody else to run",
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Raw],
        figures: YIELD_FIGURES,
    },
    Workload {
        name: "yield_10",
        what: "ten tasks per worker yield to each other",
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Raw],
        figures: YIELD_FIGURES,
    },
    Workload {
        name: "yield_1k",
        what: "a thousand tasks per worker yield to each other (no bar: it is memory that counts)",
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Raw],
        figures: &[figure(
            "ns",
            "wall time / all yields",
            Unit::Nanoseconds,
            &[],
        )],
    },
    Workload {
        name: "spawn_join",
        what: "one task spawns and joins one at a time",
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Raw],
        figures: &[figure(
            "ns",
            "each",
            Unit::Nanoseconds,
            &[Times(0.5, &[Tokio])],
        )],
    },
    Workload {
        name: "spawn_1m",
        what: "spawn a million trivial tasks, then join all",
        workers: Workers::Any,
        rivals: &[Tokio, Go, May],
        figures: &[
            figure("ns", "each", Unit::Nanoseconds, &[Times(0.6, &[Tokio, Go])]),
            figure("ns_first", "each, first 100k", Unit::Nanoseconds, &[]),
            figure("ns_batched", "each, in 10k batches", Unit::Nanoseconds, &[]),
        ],
    },
    Workload {
        name: "skynet_cold",
        what: "a tree of ten children each, a million leaves, first thing in the process",
        workers: Workers::Any,
        rivals: &[Tokio, Go, May],
        figures: SKYNET_FIGURES,
    },
    Workload {
        name: "skynet_warm",
        what: "the same for the third time in the process",
        workers: Workers::Any,
        rivals: &[Tokio, Go, May],
        figures: SKYNET_FIGURES,
    },
    Workload {
        name: SLEEP,
        what: "a million tasks sleep for 3 s at once (sinew: on 64 KiB stacks)",
        workers: Workers::Any,
        rivals: &[Tokio, Go, May],
        figures: &[
            figure(
                "wall_s",
                "start to end",
                Unit::Seconds,
                &[Times(1.0, &[Go])],
            ),
            figure("bytes_each", "memory each", Unit::Bytes, &[]),
        ],
    },
    Workload {
        name: ASLEEP,
        what: "the same for 15 s, so that all have begun to sleep before the first wakes",
        workers: Workers::Any,
        rivals: &[],
        figures: &[
            figure("bytes_each", "memory each", Unit::Bytes, &[AtMost(4_600.0)]),
            Figure {
                key: "asleep_at_once",
                title: "asleep when weighed",
                unit: Unit::Count,
                compare: false,
                bars: &[AtLeast(1_000_000.0)],
            },
            Figure {
                key: "bytes_after",
                title: "kept 2 s after",
                unit: Unit::Bytes,
                compare: false,
                bars: &[AtMost(64e6)],
            },
        ],
    },
    Workload {
        name: "timers_1m",
        what: "insert, then cancel a million timers in random order",
        workers: Workers::Once,
        rivals: &[],
        figures: &[
            figure(
                "insert_ns",
                "insert",
                Unit::Nanoseconds,
                &[AtMost(150.0), TimesOwn(3.0, "list_ns")],
            ),
            figure(
                "cancel_ns",
                "cancel",
                Unit::Nanoseconds,
                &[AtMost(150.0), TimesOwn(3.0, "list_ns")],
            ),
            figure("list_ns", "bare linked list", Unit::Nanoseconds, &[]),
        ],
    },
    Workload {
        name: "wake_thread",
        what: "an OS thread wakes a task on a sleeping worker and waits for its answer",
        workers: Workers::Any,
        rivals: &[Threads, Tokio, May],
        figures: WAKE_FIGURES,
    },
    Workload {
        name: "wake_apart",
        what: "the same with the thread and the workers bound to different CPUs",
        workers: Workers::Any,
        rivals: &[Threads, Tokio, May],
        figures: WAKE_FIGURES,
    },
    Workload {
        name: "idle",
        what: "CPU used with ten thousand parked tasks and nothing to do",
        workers: Workers::Several,
        rivals: &[Tokio, Go, May],
        figures: &[figure(
            "cpu_ms_per_s",
            "CPU time",
            Unit::CpuPerSecond,
            &[AtMost(1.0)],
        )],
    },
    Workload {
        name: "balance",
        what: "100k tasks compute fib(20), then yield ten times (threads: fib only)",
        workers: Workers::Several,
        rivals: &[Threads, Tokio, Go, May],
        figures: &[
            figure("ms", "total", Unit::Milliseconds, &[Times(1.1, &[Threads])]),
            Figure {
                key: "unevenness",
                title: "most work / even share",
                unit: Unit::Plain,
                compare: false,
                bars: &[AtMost(1.3)],
            },
        ],
    },
    Workload {
        name: "latency_spawn",
        what: "until the child of a task that never suspends starts elsewhere (50 ms: not at all)",
        workers: Workers::Several,
        rivals: &[Tokio, Go, May],
        figures: &[
            figure("us", "median", Unit::Microseconds, &[]),
            figure("us_max", "longest", Unit::Microseconds, &[AtMost(1_000.0)]),
        ],
    },
    Workload {
        name: "allocs",
        what: "allocations for each spawn and join in the steady state",
        workers: Workers::Any,
        rivals: &[],
        figures: &[
            // Not 0: a queue may have to grow once in 100k.
            figure("small", "small closure", Unit::Plain, &[AtMost(0.001)]),
            figure("large", "closure of 1 KiB", Unit::Plain, &[AtMost(1.001)]),
        ],
    },
];

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
    use super::*;

    #[test]
    fn names_are_unique_and_figures_too() {
        for (i, workload) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|other| other.name != workload.name));
            for (j, figure) in workload.figures.iter().enumerate() {
                assert!(workload.figures[..j].iter().all(|o| o.key != figure.key));
            }
        }
    }

    #[test]
    fn every_bar_refers_to_something_measured() {
        for workload in ALL {
            for bar in workload.figures.iter().flat_map(|figure| figure.bars) {
                match *bar {
                    Times(_, to) => assert!(to.iter().all(|r| workload.rivals.contains(r))),
                    TimesOwn(_, key) => assert!(workload.figures.iter().any(|f| f.key == key)),
                    AtMost(_) | AtLeast(_) => {}
                }
            }
        }
    }

    #[test]
    fn workers_are_chosen_from_those_asked_for() {
        let of = |name: &str| ALL.iter().find(|w| w.name == name).unwrap();
        assert_eq!(of("yield_10").workers(&[1, 2]), [1, 2]);
        assert_eq!(of("balance").workers(&[1, 2, 4]), [2, 4]);
        assert_eq!(of("timers_1m").workers(&[2, 4]), [2]);
        assert!(of("idle").workers(&[1]).is_empty());
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
    }
}
