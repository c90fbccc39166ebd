//! The workloads without I/O: what each is, who has it besides Sinew, and its bars.

use super::rival::Rival::{Crossbeam, Go, May, ParkingLot, Raw, Threads, Tokio};
use super::workload::Bar::{self, AtLeast, AtMost, Times, TimesAlone, TimesOwn, WithMore, WithOne};
use super::workload::{ASLEEP, Figure, Kind, SLEEP, Unit, Workers, Workload};

pub const fn figure(
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

pub const WAKE_FIGURES: &[Figure] = &[
    figure(
        "ns",
        "round trip, asleep",
        Unit::Nanoseconds,
        &[Times(1.3, &[Threads])],
    ),
    figure("ns_busy", "round trip, no pause", Unit::Nanoseconds, &[]),
];

const APART_FIGURES: &[Figure] = &[
    figure(
        "ns",
        "round trip",
        Unit::Nanoseconds,
        &[AtMost(1_000.0), Times(0.7, &[Go])],
    ),
    figure("runtimes", "of two runtimes", Unit::Nanoseconds, &[]),
];

const UNCONTENDED: &[Bar] = &[Times(0.7, &[Tokio])];

const SHARED_FIGURES: &[Figure] = &[
    figure("ns", "each", Unit::Nanoseconds, &[Times(0.8, &[Tokio])]),
    figure(
        "held",
        "each, held across a yield",
        Unit::Nanoseconds,
        &[Times(0.8, &[Tokio])],
    ),
];

const SELECT_FIGURES: &[Figure] = &[
    figure(
        "ready",
        "send, then select",
        Unit::Nanoseconds,
        &[Times(0.7, &[Tokio, Go])],
    ),
    figure(
        "parked",
        "round trip",
        Unit::Nanoseconds,
        &[Times(0.7, &[Tokio, Go])],
    ),
];

/// Those without I/O, in the order in which they run.
pub const PLAIN: &[Workload] = &[
    Workload {
        name: "yield_1",
        what: "one task per worker yields, with nobody else to run",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Raw],
        figures: YIELD_FIGURES,
    },
    Workload {
        name: "yield_10",
        what: "ten tasks per worker yield to each other",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Raw],
        figures: YIELD_FIGURES,
    },
    Workload {
        name: "yield_1k",
        what: "a thousand tasks per worker yield to each other (no bar: it is memory that counts)",
        kind: Kind::Plain,
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
        kind: Kind::Plain,
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
        kind: Kind::Plain,
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
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May],
        figures: SKYNET_FIGURES,
    },
    Workload {
        name: "skynet_warm",
        what: "the same for the third time in the process",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May],
        figures: SKYNET_FIGURES,
    },
    Workload {
        name: SLEEP,
        what: "a million tasks sleep for 3 s at once (sinew: on 64 KiB stacks)",
        kind: Kind::Plain,
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
        kind: Kind::Plain,
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
        kind: Kind::Plain,
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
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Threads, Tokio, May],
        figures: WAKE_FIGURES,
    },
    Workload {
        name: "wake_apart",
        what: "the same with the thread and the workers bound to different CPUs",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Threads, Tokio, May],
        figures: WAKE_FIGURES,
    },
    Workload {
        name: "idle",
        what: "CPU used with ten thousand parked tasks and nothing to do",
        kind: Kind::Plain,
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
        kind: Kind::Plain,
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
        name: "blocked_tenth",
        what: "each tenth of 400 tasks blocks its worker for 20 ms (std's sleep)",
        kind: Kind::Plain,
        workers: Workers::Several,
        rivals: &[],
        figures: &[
            figure("without", "without spares", Unit::Milliseconds, &[]),
            // Less than 1.3 times as fast would not be worth a thread.
            figure(
                "with",
                "with spares",
                Unit::Milliseconds,
                &[TimesOwn(0.77, "without")],
            ),
        ],
    },
    Workload {
        name: "latency_spawn",
        what: "until the child of a task that never suspends starts elsewhere (50 ms: not at all)",
        kind: Kind::Plain,
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
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[],
        figures: &[
            // Not 0: a queue may have to grow once in 100k.
            figure("small", "small closure", Unit::Plain, &[AtMost(0.001)]),
            figure("large", "closure of 1 KiB", Unit::Plain, &[AtMost(1.001)]),
        ],
    },
    Workload {
        name: "pingpong_1",
        what: "two tasks send each other a message, with room for one (may: without limit)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Crossbeam],
        figures: &[figure(
            "ns",
            "round trip",
            Unit::Nanoseconds,
            &[Times(0.5, &[Tokio, Go])],
        )],
    },
    Workload {
        name: "pingpong_0",
        what: "the same without room: sender and receiver meet (tokio and may have no such channel)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Go, Crossbeam],
        figures: &[figure(
            "ns",
            "round trip",
            Unit::Nanoseconds,
            &[Times(0.5, &[Go])],
        )],
    },
    Workload {
        name: "pingpong_1m",
        what: "a million round trips with room for one, first thing in the process",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Crossbeam],
        figures: &[figure(
            "ms",
            "total",
            Unit::Milliseconds,
            &[AtMost(1_000.0), TimesAlone(2.0)],
        )],
    },
    Workload {
        name: "apart_1",
        what: "ping-pong with room for one between two tasks that are kept on two threads",
        kind: Kind::Plain,
        workers: Workers::Several,
        rivals: &[Tokio, Go, Crossbeam],
        figures: APART_FIGURES,
    },
    Workload {
        name: "apart_0",
        what: "the same without room",
        kind: Kind::Plain,
        workers: Workers::Several,
        rivals: &[Go, Crossbeam],
        figures: APART_FIGURES,
    },
    Workload {
        name: "mpsc_4p1c",
        what: "4 producers, 1 consumer, room for 100 (crossbeam: 5 threads)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, Crossbeam],
        figures: &[figure(
            "ns",
            "each message",
            Unit::Nanoseconds,
            &[Times(1.0, &[Go])],
        )],
    },
    Workload {
        name: "mpmc_4p4c",
        what: "4 producers, 4 consumers, room for 1000 (tokio: by kanal; crossbeam: 8 threads)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, Crossbeam],
        figures: &[figure(
            "ns",
            "each message",
            Unit::Nanoseconds,
            &[Times(1.0, &[Tokio]), Times(1.2, &[Crossbeam])],
        )],
    },
    Workload {
        name: "uncontended",
        what: "what nobody else wants (go: a channel for the semaphore and the oneshot)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Threads, Crossbeam, ParkingLot],
        figures: &[
            figure("lock", "lock, unlock", Unit::Nanoseconds, UNCONTENDED),
            figure(
                "semaphore",
                "acquire, release",
                Unit::Nanoseconds,
                UNCONTENDED,
            ),
            figure(
                "oneshot",
                "oneshot: make, send, receive",
                Unit::Nanoseconds,
                UNCONTENDED,
            ),
            figure("try", "try_send, try_recv", Unit::Nanoseconds, UNCONTENDED),
        ],
    },
    Workload {
        name: "mutex_100",
        what: "100 tasks take a mutex 10k times each (threads: as many in all, a thread per worker)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Threads, ParkingLot],
        figures: &[figure(
            "ns",
            "each lock",
            Unit::Nanoseconds,
            &[WithOne(&Times(1.6, &[Go])), WithMore(&Times(1.0, &[Go]))],
        )],
    },
    Workload {
        name: "rwlock_4r2w",
        what: "4 readers and 2 writers of one lock (threads: 6 of them)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May, Threads, ParkingLot],
        figures: SHARED_FIGURES,
    },
    Workload {
        name: "semaphore_8_2",
        what: "8 tasks, 2 permits (go: a channel)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, May],
        figures: SHARED_FIGURES,
    },
    Workload {
        name: "select_2",
        what: "select over 2 receivers: a message to a random one first, or from a partner",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, Crossbeam],
        figures: SELECT_FIGURES,
    },
    Workload {
        name: "select_8",
        what: "the same with 8 receivers",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, Crossbeam],
        figures: SELECT_FIGURES,
    },
    Workload {
        name: "select_32",
        what: "the same with 32 receivers",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio, Go, Crossbeam],
        figures: SELECT_FIGURES,
    },
    Workload {
        name: "scope_2",
        what: "two children that do nothing: each spawned and joined, or in a scope (tokio: a JoinSet)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio],
        figures: &[
            figure("spawned", "spawn and join two", Unit::Nanoseconds, &[]),
            figure(
                "scoped",
                "scope with two",
                Unit::Nanoseconds,
                &[TimesOwn(2.2, "spawned")],
            ),
        ],
    },
    Workload {
        name: "limits",
        what: "asking whether one is cancelled; a limit of time around nothing",
        kind: Kind::Plain,
        workers: Workers::Once,
        rivals: &[Tokio],
        figures: &[
            figure(
                "check",
                "check_cancelled",
                Unit::Nanoseconds,
                &[AtMost(2.0)],
            ),
            figure("timeout", "timeout", Unit::Nanoseconds, &[AtMost(60.0)]),
        ],
    },
    Workload {
        name: "cancel_100k",
        what: "a tree of scopes with 100 000 sleepers is cancelled at its root (tokio: JoinSets, abort_all)",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[Tokio],
        figures: &[
            // tokio's call marks the tasks that own the others, no more: no ratio.
            Figure {
                key: "ns",
                title: "the call, each",
                unit: Unit::Nanoseconds,
                compare: false,
                bars: &[AtMost(300.0)],
            },
            figure(
                "ended",
                "until all have ended, each",
                Unit::Nanoseconds,
                &[],
            ),
        ],
    },
    Workload {
        name: "allocs_parked",
        what: "allocations for each wait in the steady state",
        kind: Kind::Plain,
        workers: Workers::Any,
        rivals: &[],
        figures: &[
            figure("lock", "lock", Unit::Plain, &[AtMost(0.0)]),
            figure("semaphore", "acquire", Unit::Plain, &[AtMost(0.0)]),
            figure(
                "channel",
                "send and recv, room for 1",
                Unit::Plain,
                &[AtMost(0.0)],
            ),
            figure(
                "rendezvous",
                "send and recv, no room",
                Unit::Plain,
                &[AtMost(0.0)],
            ),
            figure("select", "select of 8", Unit::Plain, &[AtMost(0.0)]),
        ],
    },
];
