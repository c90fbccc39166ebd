//! Defaults, limits and environment variables: the one place that knows them.
//!
//! | setting          | variable                 | default                          | range              |
//! |------------------|--------------------------|----------------------------------|--------------------|
//! | workers          | `SINEW_WORKERS`          | usable CPUs (affinity, quota)    | 1 to 1024          |
//! | stack size       | `SINEW_STACK_KB`         | 256 KiB; 1 MiB with debug asserts| 16 KiB to 1 GiB    |
//! | blocking threads | `SINEW_BLOCKING_THREADS` | 512                              | 1 to 65536         |
//! | I/O driver       | `SINEW_IO`               | `auto`                           | `auto`, `uring`, `epoll` |
//! | report panics    | `SINEW_REPORT_PANICS`    | 1                                | 0, 1               |
//! | limit of a test  | `SINEW_TEST_TIMEOUT`     | 60 s                             | 0 (none) to 86400 s |
//!
//! A setting made in the program wins over the variable, but for a limit of 0: a debugger needs
//! all the time there is.

use crate::reactor::IoDriver;
use crate::stack::StackClass;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

const WORKERS: RangeInclusive<usize> = 1..=1024;
const SPARE_WORKERS: RangeInclusive<usize> = 0..=1024;
const BLOCKING_THREADS: RangeInclusive<usize> = 1..=65536;

/// How long an idle pool thread stays.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a fiber may run before safepoints yield.
pub(super) const QUANTUM: Duration = Duration::from_millis(10);
/// How long a fiber may run before it is reported.
pub(super) const HOG_AFTER: Duration = Duration::from_millis(100);
/// How long fibers may wait for each other, while somebody waits for them, before they are
/// listed.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(5);
/// How long a test may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const TEST_TIMEOUTS: RangeInclusive<usize> = 0..=86400;
/// How long a dropped runtime waits for its cancelled daemons.
pub(super) const DAEMON_GRACE: Duration = Duration::from_secs(5);

fn default_stack_bytes() -> usize {
    // Unoptimised frames are several times as large.
    if cfg!(debug_assertions) {
        1 << 20
    } else {
        256 << 10
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn variable(name: &str) -> io::Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(value)) => Err(invalid(format!(
            "{name} is not valid unicode: {}",
            value.to_string_lossy()
        ))),
    }
}

/// A number from the program, else from the environment, else none.
fn number(
    setting: &str,
    set: Option<usize>,
    env_name: &str,
    range: RangeInclusive<usize>,
) -> io::Result<Option<usize>> {
    let (value, origin) = match (set, variable(env_name)?) {
        (Some(value), _) => (value, setting.to_owned()),
        (None, None) => return Ok(None),
        (None, Some(text)) => match text.trim().parse() {
            Ok(value) => (value, env_name.to_owned()),
            Err(_) => {
                return Err(invalid(format!(
                    "{env_name} is '{text}', but must be a number from {} to {}",
                    range.start(),
                    range.end()
                )));
            }
        },
    };
    if !range.contains(&value) {
        return Err(invalid(format!(
            "{origin} is {value}, but must be from {} to {}",
            range.start(),
            range.end()
        )));
    }
    Ok(Some(value))
}

pub(super) fn workers(set: Option<usize>) -> io::Result<usize> {
    let value = number("workers", set, "SINEW_WORKERS", WORKERS)?;
    Ok(value.unwrap_or_else(|| {
        // std looks at the affinity mask and at cgroup quotas.
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        usable.min(*WORKERS.end())
    }))
}

/// How many spares a runtime with that many workers has.
pub(super) fn spare_workers(set: Option<usize>, workers: usize) -> io::Result<usize> {
    let value = set.unwrap_or(workers);
    if !SPARE_WORKERS.contains(&value) {
        return Err(invalid(format!(
            "spare_workers is {value}, but must be from {} to {}",
            SPARE_WORKERS.start(),
            SPARE_WORKERS.end()
        )));
    }
    Ok(value)
}

pub(super) fn blocking_threads(set: Option<usize>) -> io::Result<usize> {
    let value = number(
        "blocking_threads",
        set,
        "SINEW_BLOCKING_THREADS",
        BLOCKING_THREADS,
    )?;
    Ok(value.unwrap_or(512))
}

/// The size class of `bytes`, or an error that names the setting.
pub(crate) fn stack_class(setting: &str, bytes: usize) -> io::Result<StackClass> {
    let range = StackClass::MIN_BYTES..=StackClass::MAX_BYTES;
    StackClass::for_size(bytes)
        .filter(|_| range.contains(&bytes))
        .ok_or_else(|| {
            invalid(format!(
                "{setting} is {bytes}, but must be from {} to {} bytes",
                range.start(),
                range.end()
            ))
        })
}

pub(super) fn default_stack_class(set: Option<usize>) -> io::Result<StackClass> {
    if let Some(bytes) = set {
        return stack_class("stack_size", bytes);
    }
    let kb = number(
        "stack_size",
        None,
        "SINEW_STACK_KB",
        StackClass::MIN_BYTES / 1024..=StackClass::MAX_BYTES / 1024,
    )?;
    let bytes = kb.map_or_else(default_stack_bytes, |kb| kb * 1024);
    stack_class("SINEW_STACK_KB", bytes)
}

/// The I/O driver, from the program or from the environment.
pub(super) fn io(set: Option<IoDriver>) -> io::Result<IoDriver> {
    let text = variable("SINEW_IO")?;
    match (set, text.as_deref().map(str::trim)) {
        (Some(set), _) => Ok(set),
        (None, None | Some("auto")) => Ok(IoDriver::Auto),
        (None, Some("uring")) => Ok(IoDriver::Uring),
        (None, Some("epoll")) => Ok(IoDriver::Epoll),
        (None, Some(other)) => Err(invalid(format!(
            "SINEW_IO is '{other}', but must be 'auto', 'uring' or 'epoll'"
        ))),
    }
}

/// Whether a panic on a fiber is preceded by a line that names the fiber.
pub(super) fn report_panics(set: Option<bool>) -> io::Result<bool> {
    let value = number("report_panics", None, "SINEW_REPORT_PANICS", 0..=1)?;
    Ok(set.unwrap_or(value != Some(0)))
}

/// How long a test may take that asks for `set`; none for as long as it likes.
pub(crate) fn test_timeout(set: Option<Duration>) -> io::Result<Option<Duration>> {
    let value = number("timeout", None, "SINEW_TEST_TIMEOUT", TEST_TIMEOUTS)?;
    Ok(match value {
        Some(0) => None,
        Some(seconds) => Some(set.unwrap_or(Duration::from_secs(seconds as u64))),
        None => Some(set.unwrap_or(TEST_TIMEOUT)),
    }
    .filter(|limit| !limit.is_zero()))
}
