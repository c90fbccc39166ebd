//! A program that is ported changes its `use` lines, and splits none.

use sinew as thread;
use sinew::sync::atomic::{AtomicU32, Ordering};
use sinew::sync::{Arc, LazyLock, Mutex, Weak};
use sinew::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[test]
fn std_s_names_are_found_beside_ours() {
    let count = Arc::new(AtomicU32::new(0));
    let weak: Weak<AtomicU32> = Arc::downgrade(&count);
    let start = Instant::now();
    thread::run(|| {
        assert!(!thread::panicking());
        assert!(thread::available_parallelism().unwrap().get() > 0);
        let shared = Arc::new(Mutex::new(count));
        let theirs = shared.clone();
        let child = thread::spawn(move || theirs.lock().fetch_add(1, Ordering::Relaxed));
        child.join().unwrap();
        assert_eq!(shared.lock().load(Ordering::Relaxed), 1);
    });
    assert!(weak.upgrade().is_none());
    assert!(start.elapsed() >= Duration::ZERO);
    assert!(SystemTime::now() > UNIX_EPOCH);
}

#[test]
fn a_fiber_that_unwinds_is_seen_to_panic_and_its_neighbour_is_not() {
    crate::harness::on_workers(|runtime| {
        struct Asks(sinew::channel::Sender<(bool, bool)>);
        impl Drop for Asks {
            fn drop(&mut self) {
                let neighbour = thread::spawn(thread::panicking).join().unwrap();
                self.0.send((thread::panicking(), neighbour)).unwrap();
            }
        }
        let (tx, rx) = sinew::channel::unbounded();
        let unlucky = runtime.spawn(move || {
            let _asks = Asks(tx);
            crate::harness::panic_expected(8);
        });
        assert!(unlucky.join().map(|()| ()).is_err());
        assert_eq!(rx.recv(), Ok((true, false)));
    });
}

#[test]
fn a_lazy_value_is_looked_at_and_changed() {
    let mut lazy = LazyLock::new(|| vec![1]);
    assert_eq!(LazyLock::get(&lazy), None);
    assert_eq!(LazyLock::get_mut(&mut lazy), None);
    lazy.push(2); // by `DerefMut`, which makes it
    LazyLock::force_mut(&mut lazy).push(3);
    LazyLock::get_mut(&mut lazy).unwrap().push(4);
    assert_eq!(LazyLock::get(&lazy), Some(&vec![1, 2, 3, 4]));

    let mut tries = 0;
    let mut unlucky = LazyLock::new(|| {
        tries += 1;
        if tries == 1 {
            crate::harness::panic_expected(9);
        }
        tries
    });
    let first = std::panic::AssertUnwindSafe(|| *LazyLock::force_mut(&mut unlucky));
    assert!(std::panic::catch_unwind(first).is_err());
    assert_eq!(*LazyLock::force_mut(&mut unlucky), 2);
}
