//! Runtimes that are given up while their fibers have lent what is their thread's, and
//! runtimes that end while others still know their fibers.

use crate::harness::kept::Tid;
use crate::harness::{Gate, Rng, wait_until};
use crate::seeded;
use sinew::sync::Mutex;
use sinew::{Builder, IoDriver, Priority, Runtime};
use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

const TEXT: &str = "lent by a thread";

thread_local! {
    static LENT: RefCell<String> = RefCell::new(TEXT.to_owned());
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256]);
}

/// How many have borrowed, and how many of them have read what they borrowed.
#[derive(Default)]
struct Reads {
    begun: AtomicUsize,
    done: AtomicUsize,
}

impl Reads {
    /// Reads `lent` when the gate is open, on whichever fiber or thread.
    fn read(&self, lent: &String, gate: &Gate) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        while !gate.is_open() {
            // Also past the end of its runtime, whose workers run no fiber any more.
            std::thread::yield_now();
        }
        assert_eq!(lent, TEXT);
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Fibers that read into the buffer of their worker's thread, also past the end of their
/// runtime.
#[derive(Default)]
struct DeafReaders {
    spawned: usize,
    /// The threads whose buffers are lent.
    lent: Arc<StdMutex<Vec<Tid>>>,
    /// Those that found the buffer lent to another.
    refused: Arc<AtomicUsize>,
}

impl DeafReaders {
    fn lent(&self) -> Vec<Tid> {
        self.lent.lock().unwrap().clone()
    }

    /// Whether each has begun to read, or found that it cannot.
    fn have_begun(&self) -> bool {
        self.lent().len() + self.refused.load(Ordering::SeqCst) == self.spawned
    }
}

/// Lends the string of its worker's thread to somebody, and waits for that.
fn lend(mut rng: Rng, reads: &Reads, gate: &Gate, other: &Runtime) {
    LENT.with_borrow(|lent| match rng.below(3) {
        0 => sinew::blocking(|| reads.read(lent, gate)),
        1 => sinew::scope(|s| {
            s.spawn(|| sinew::blocking(|| reads.read(lent, gate)));
            s.spawn(sinew::yield_now);
        }),
        _ => other.run(|| sinew::blocking(|| reads.read(lent, gate))),
    });
}

fn drivers() -> Vec<IoDriver> {
    [IoDriver::Epoll, IoDriver::Uring]
        .into_iter()
        .filter(|driver| {
            let built = Runtime::builder().workers(1).io_driver(*driver).build();
            built.is_ok()
        })
        .collect()
}

#[test]
fn what_was_lent_by_the_thread_of_a_given_up_runtime_can_be_used() {
    let drivers = drivers();
    seeded("leaks", 12, |rng| {
        let driver = drivers[rng.below(drivers.len() as u64) as usize];
        let build = |workers| {
            let builder = Runtime::builder().workers(workers).io_driver(driver);
            builder.build().unwrap()
        };
        let runtime = build(1 + rng.below(2) as usize);
        let other = Arc::new(build(1));
        let (gate, reads) = (Gate::new(), Arc::new(Reads::default()));
        let (mut near, mut lenders) = (Vec::new(), 0);
        let mut readers = DeafReaders::default();
        for _ in 0..1 + rng.below(6) {
            if rng.chance(4) {
                let (one, two) = std::os::unix::net::UnixStream::pair().unwrap();
                near.push(one);
                let deaf = rng.chance(2);
                readers.spawned += usize::from(deaf);
                let (lent, refused) = (readers.lent.clone(), readers.refused.clone());
                let read = move || {
                    let mut stream = sinew::net::UnixStream::from(two);
                    BUFFER.with(|buffer| {
                        // Another fiber of the worker may have it.
                        let Ok(mut buffer) = buffer.try_borrow_mut() else {
                            refused.fetch_add(usize::from(deaf), Ordering::SeqCst);
                            return;
                        };
                        if deaf {
                            let tid = Tid::default();
                            tid.note();
                            lent.lock().unwrap().push(tid);
                            let _ = sinew::shield(|| stream.read(&mut buffer));
                        } else {
                            let _ = stream.read(&mut buffer);
                        }
                    });
                };
                drop(runtime.spawn(read));
                continue;
            }
            lenders += 1;
            let theirs = (rng.split(), reads.clone(), gate.clone(), other.clone());
            let fiber = Builder::new().daemon(rng.chance(3));
            let fiber = fiber.spawn_on(&runtime.handle(), move || {
                let (rng, reads, gate, other) = theirs;
                lend(rng, &reads, &gate, &other);
            });
            drop(fiber.unwrap());
        }
        if rng.chance(2) {
            wait_until(|| lenders == 0 || reads.begun.load(Ordering::SeqCst) > 0);
        }
        if rng.chance(2) {
            wait_until(|| readers.have_begun());
        }
        let patience = Duration::from_micros(rng.below(2000));
        let lent = readers.lent();
        let ended = runtime.shutdown_timeout(patience);
        if let Err(error) = &ended {
            // A fiber that had not started keeps no thread.
            assert!(error.kept_threads() <= 2, "{error}");
        }
        if !lent.is_empty() {
            let kept = ended.expect_err("a read goes on").kept_threads();
            assert!(kept >= lent.len(), "{kept} of {}", lent.len());
        }
        lent.iter().for_each(Tid::is_kept);
        for one in &mut near {
            // The other end may be closed.
            let _ = one.write_all(&[1; 64]);
        }
        lent.iter().for_each(Tid::is_kept);
        gate.open();
        // Those that came late have nothing to wait for.
        wait_until(|| reads.begun.load(Ordering::SeqCst) == reads.done.load(Ordering::SeqCst));
    });
}

/// Locks that outlive the runtime of the fiber that has locked them.
#[test]
fn a_lock_held_by_a_fiber_of_a_dead_runtime_lends_to_nobody() {
    seeded("dead lenders", 40, |rng| {
        let theirs: &'static Mutex<()> = Box::leak(Box::new(Mutex::new(())));
        let first = Runtime::builder().workers(1 + rng.below(3) as usize);
        let first = first.build().unwrap();
        let holder = first.spawn(move || theirs.lock());
        let kept = holder.fiber(); // keeps the block
        let guard = holder.join().unwrap();
        drop(first);
        // Its shared state often gets the address of the first one's.
        let second = Runtime::builder().workers(1 + rng.below(3) as usize);
        let second = second.build().unwrap();
        let canary = vec![0u8; 4096];
        let urgent = Builder::new().priority(Priority::Critical);
        let waits = urgent.spawn_on(&second.handle(), move || drop(theirs.lock()));
        let waits = waits.unwrap();
        wait_until(|| waits.fiber().wait_reason() == sinew::WaitReason::Mutex);
        assert!(canary.iter().all(|&byte| byte == 0));
        drop(guard);
        waits.join().unwrap();
        drop(kept);
    });
}
