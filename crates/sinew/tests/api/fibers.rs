//! Lists of a runtime's fibers.

use crate::harness::{Gate, runtime, wait_until, watch};
use sinew::sync::Mutex;
use sinew::{Builder, FiberState, Handle, WaitReason};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_list_says_what_each_fiber_does_and_where() {
    let _watch = watch();
    let runtime = runtime(1);
    runtime.run(|| {
        let me = sinew::current();
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock();
        let theirs = lock.clone();
        let waits = Builder::new()
            .name("waits")
            .spawn(move || drop(theirs.lock()));
        let waits = waits.unwrap();
        let yields = sinew::spawn(|| while sinew::checkpoint().is_ok() {});
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Mutex);
        sinew::yield_now(); // the other has begun
        let unstarted = sinew::spawn(|| ());
        let on_pool = Gate::new();
        let theirs = on_pool.clone();
        let blocking = sinew::spawn_blocking(move || theirs.spin());

        let listed: HashMap<_, _> = Handle::current().fibers().map(|f| (f.id, f)).collect();
        assert_eq!(listed.len(), 5);
        assert_eq!(listed[&me.id()].state, FiberState::Running);
        assert_eq!(listed[&yields.fiber().id()].state, FiberState::Ready);
        assert_eq!(listed[&unstarted.fiber().id()].state, FiberState::Unstarted);
        assert_eq!(listed[&blocking.fiber().id()].state, FiberState::Blocking);
        let one = &listed[&waits.fiber().id()];
        assert_eq!(one.state, FiberState::Waiting);
        assert_eq!(one.waits_for, WaitReason::Mutex);
        assert_eq!(one.name.as_deref(), Some("waits"));
        assert_eq!(one.spawned_at.unwrap().file(), file!());
        assert_eq!(one.waits_at.unwrap().file(), file!());
        let text = one.to_string();
        for word in ["'waits'", "waits in Mutex at", "fibers.rs", "spawned at"] {
            assert!(text.contains(word), "no {word} in {text}");
        }

        drop(held);
        on_pool.open();
        yields.cancel();
        yields.join().unwrap();
        for handle in [waits, unstarted, blocking] {
            handle.join().unwrap();
        }
        assert_eq!(Handle::current().fibers().count(), 1);
    });
    assert_eq!(runtime.fibers().count(), 0);
}

#[test]
fn a_list_has_only_the_fibers_of_its_runtime() {
    let _watch = watch();
    let (one, other) = (runtime(1), runtime(2));
    let parked = one.spawn(sinew::park);
    assert_eq!(other.handle().fibers().count(), 0);
    let listed: Vec<_> = one.fibers().map(|fiber| fiber.id).collect();
    assert_eq!(listed, [parked.fiber().id()]);
    parked.fiber().unpark();
    parked.join().unwrap();
}

/// More than fit into one chunk of the registry, while others come and go.
#[test]
fn fibers_that_stay_are_listed_once_while_others_come_and_go() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let stop = Arc::new(AtomicBool::new(false));
        let stays: Vec<_> = (0..1000).map(|_| runtime.spawn(sinew::park)).collect();
        let theirs = stop.clone();
        let busy = runtime.spawn(move || {
            while !theirs.load(Ordering::Relaxed) {
                let few: Vec<_> = (0..300).map(|_| sinew::spawn(|| ())).collect();
                few.into_iter().for_each(|handle| handle.join().unwrap());
            }
        });
        for _ in 0..20 {
            let mut seen: HashMap<_, u32> = HashMap::new();
            for fiber in runtime.fibers() {
                *seen.entry(fiber.id).or_default() += 1;
            }
            for handle in &stays {
                assert_eq!(seen.get(&handle.fiber().id()), Some(&1));
            }
        }
        stop.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        for handle in stays {
            handle.fiber().unpark();
            handle.join().unwrap();
        }
    }
}
