//! What a server meets in its life, in processes of their own: many connections, storms
//! of them, slow and rude clients, a lack of descriptors, a kernel that refuses; and
//! whether anything was left behind.
//!
//! Bounded for every day; `SINEW_SOAK=1` makes it large.

pub mod child;
mod echoes;
mod kernel;
mod leaks;
mod limits;
mod many;
mod server;
mod soak;

use sinew::{Runtime, RuntimeStats};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Whether it may take long.
fn at_length() -> bool {
    std::env::var_os("SINEW_SOAK").is_some()
}

/// How many descriptors this process may have.
fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a place for the answer.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(told, 0);
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// What the descriptors of this process are, by number.
fn descriptors() -> BTreeMap<String, PathBuf> {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap())
        // The one that looks is gone by now.
        .filter_map(|entry| {
            let what = std::fs::read_link(entry.path()).ok()?;
            Some((entry.file_name().into_string().unwrap(), what))
        })
        .filter(|(_, what)| !what.starts_with("/proc"))
        .collect()
}

/// Waits until nobody is left, which takes a moment after the last join: a fiber is
/// joined before its stack is free.
fn until_idle(runtime: &Runtime) -> RuntimeStats {
    loop {
        let stats = runtime.stats();
        if stats.live == 0 && stats.stacks == 0 {
            return stats;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has threads wait, so many as ever do at once: what a thread waits with is kept for the
/// next one, so it is no leak.
fn keep_bells_for_threads() {
    const THREADS: usize = 4;
    let all = std::sync::Barrier::new(THREADS);
    let wait = || {
        let (_client, mut server) = crate::tcp::pair();
        let limit = Some(Duration::from_millis(1));
        server.set_read_timeout(limit).unwrap();
        assert!(std::io::Read::read(&mut server, &mut [0; 1]).is_err());
        all.wait();
    };
    std::thread::scope(|threads| {
        for _ in 1..THREADS {
            threads.spawn(wait);
        }
        wait();
    });
}

/// Runs `test` on a runtime of this process's driver (`SINEW_IO`), and checks that
/// neither stacks nor timers nor descriptors are left.
fn leaving_nothing(workers: usize, test: impl FnOnce(&Runtime)) {
    keep_bells_for_threads();
    let before = descriptors();
    let runtime = Runtime::builder().workers(workers).build().unwrap();
    test(&runtime);
    let stats = until_idle(&runtime);
    assert_eq!(stats.timers, 0, "{stats:?}");
    drop(runtime);
    assert_eq!(descriptors(), before, "descriptors were left");
}
