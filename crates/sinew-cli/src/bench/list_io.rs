//! The workloads with I/O: what each is, who has it besides Sinew, and its bars.

use super::list::{WAKE_FIGURES, figure};
use super::rival::Rival::{Go, May, Raw, Threads, Tokio};
use super::workload::Bar::{AtMost, Times};
use super::workload::{Figure, Kind, Unit, Workers, Workload};

const CPU_EACH: &str = "CPU of the server, a message";
const WALL_EACH: &str = "wall time, a message";

/// Of servers whose other tasks compute.
const BUSY_FIGURES: &[Figure] = &[
    figure(
        "sleep_p50_us",
        "sleep of 1 ms, late by: median",
        Unit::Microseconds,
        &[Times(1.0, &[Go])],
    ),
    figure(
        "sleep_p99_us",
        "the same: 99 %",
        Unit::Microseconds,
        &[Times(1.0, &[Go]), AtMost(20_000.0)],
    ),
    figure(
        "echo_p50_us",
        "answer: median",
        Unit::Microseconds,
        &[Times(1.0, &[Go])],
    ),
    figure(
        "echo_p99_us",
        "the same: 99 %",
        Unit::Microseconds,
        &[Times(1.0, &[Go]), AtMost(20_000.0)],
    ),
    figure(
        "piece_ns",
        "a worker's time for a piece of work",
        Unit::Nanoseconds,
        &[],
    ),
];

/// The same without bars.
const BUSY_FEWER_FIGURES: &[Figure] = &[
    figure(
        "sleep_p50_us",
        "sleep of 1 ms, late by: median",
        Unit::Microseconds,
        &[],
    ),
    figure("sleep_p99_us", "the same: 99 %", Unit::Microseconds, &[]),
    figure("echo_p50_us", "answer: median", Unit::Microseconds, &[]),
    figure("echo_p99_us", "the same: 99 %", Unit::Microseconds, &[]),
];

const fn busy(name: &'static str, what: &'static str) -> Workload {
    Workload {
        name,
        what,
        kind: Kind::Served,
        workers: Workers::Any,
        rivals: &[Go],
        figures: BUSY_FIGURES,
    }
}

/// In the order in which they run.
pub const IO: &[Workload] = &[
    Workload {
        name: "echo_100",
        what: "messages of 64 bytes there and back on 100 connections, one in flight on each",
        kind: Kind::Served,
        workers: Workers::Once,
        rivals: &[Tokio, Go, May, Raw],
        figures: &[
            figure(
                "cpu_ns",
                CPU_EACH,
                Unit::Nanoseconds,
                &[Times(1.0, &[Tokio]), Times(1.1, &[Raw])],
            ),
            figure("wall_ns", WALL_EACH, Unit::Nanoseconds, &[]),
            figure("p50_us", "median latency", Unit::Microseconds, &[]),
            figure("p99_us", "99 % of latencies", Unit::Microseconds, &[]),
        ],
    },
    Workload {
        name: "echo_9000",
        what: "the same on 9000 connections",
        kind: Kind::Served,
        workers: Workers::Once,
        rivals: &[Tokio, Go, May, Raw],
        figures: &[
            figure(
                "cpu_ns",
                CPU_EACH,
                Unit::Nanoseconds,
                &[Times(1.0, &[Tokio])],
            ),
            figure("wall_ns", WALL_EACH, Unit::Nanoseconds, &[]),
            figure("p50_us", "median latency", Unit::Microseconds, &[]),
            figure(
                "p99_us",
                "99 % of latencies",
                Unit::Microseconds,
                &[Times(0.5, &[Tokio]), Times(1.2, &[Raw])],
            ),
        ],
    },
    Workload {
        name: "short",
        what: "connect, one request, one response of 64 bytes, close; 64 at once",
        kind: Kind::Served,
        workers: Workers::Once,
        rivals: &[Tokio, Go, May, Raw],
        figures: &[
            figure(
                "cpu_ns",
                "CPU of the server, each",
                Unit::Nanoseconds,
                &[Times(0.85, &[Tokio])],
            ),
            figure("wall_ns", "wall time, each", Unit::Nanoseconds, &[]),
            figure("p99_us", "99 % of latencies", Unit::Microseconds, &[]),
        ],
    },
    Workload {
        name: "io_even",
        what: "1000 connections are accepted by one listener, then all are busy (not pinned)",
        kind: Kind::Served,
        workers: Workers::Several,
        rivals: &[Tokio, May],
        figures: &[
            Figure {
                key: "unevenness",
                title: "most CPU / even share",
                unit: Unit::Plain,
                compare: false,
                bars: &[AtMost(1.5)],
            },
            figure("wall_ns", WALL_EACH, Unit::Nanoseconds, &[]),
        ],
    },
    Workload {
        name: "idle_conn",
        what: "5000 connections that were used once and are quiet",
        kind: Kind::Served,
        workers: Workers::Once,
        rivals: &[Tokio, Go, May],
        // A page of stack, and 1.5 KB.
        figures: &[figure(
            "bytes_each",
            "memory each",
            Unit::Bytes,
            &[AtMost(5_596.0)],
        )],
    },
    Workload {
        name: "proxy",
        what: "8 connections through a proxy, both ways at once, in chunks of 64 KiB",
        kind: Kind::Served,
        workers: Workers::Once,
        rivals: &[Tokio, Go, May],
        figures: &[
            figure(
                "cpu_ns",
                "CPU of the server, a chunk",
                Unit::Nanoseconds,
                &[Times(1.0, &[Tokio])],
            ),
            figure(
                "wall_ns",
                "wall time, a chunk",
                Unit::Nanoseconds,
                &[Times(1.0, &[Tokio])],
            ),
        ],
    },
    busy(
        "busy_1",
        "sleeps and answers beside one task per worker that computes (not pinned)",
    ),
    busy("busy_3", "the same beside three per worker"),
    busy("busy_10", "the same beside ten per worker"),
    Workload {
        name: "busy_fewer",
        what: "the same beside one for all workers but one, which began first",
        kind: Kind::Served,
        workers: Workers::Several,
        rivals: &[Go],
        figures: BUSY_FEWER_FIGURES,
    },
    Workload {
        name: "file_read",
        what: "random reads of 4 KiB from the page cache, 64 in flight (raw: a loop; a ring)",
        kind: Kind::Io,
        workers: Workers::Any,
        rivals: &[Tokio, Go, Raw],
        figures: &[
            figure("ns", "each", Unit::Nanoseconds, &[Times(0.5, &[Tokio])]),
            figure("ns_hop", "each, spawn_blocking", Unit::Nanoseconds, &[]),
        ],
    },
    Workload {
        name: "wake_io",
        what: "wake_thread while the worker waits for a socket, too",
        kind: Kind::Io,
        workers: Workers::Any,
        rivals: &[Threads, Tokio, May],
        figures: WAKE_FIGURES,
    },
    Workload {
        name: "wake_io_apart",
        what: "the same with the thread and the workers bound to different CPUs",
        kind: Kind::Io,
        workers: Workers::Any,
        rivals: &[Threads, Tokio, May],
        figures: WAKE_FIGURES,
    },
];
