//! A thousand fibers, but only so many at a time at the thing they share.
//!
//! `cargo run -p sinew --example bounded_parallelism`

use sinew::sync::{AcquireTimeoutError, Semaphore};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const FIBERS: usize = 1_000;
const AT_ONCE: usize = 20;

/// A service that must not be asked by too many at the same time.
struct Service {
    permits: Semaphore,
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Service {
    fn ask(&self) {
        // First come, first served. The permit comes back when it is dropped,
        // also if what follows panics.
        let _permit = self.permits.acquire().expect("it is open, nobody cancels");
        let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(inside, Ordering::Relaxed);
        sinew::sleep(Duration::from_millis(1)).expect("nobody cancels");
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

fn main() {
    let service = Arc::new(Service {
        permits: Semaphore::new(AT_ONCE),
        inside: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    sinew::run(|| {
        let start = Instant::now();
        let fibers: Vec<_> = (0..FIBERS)
            .map(|_| {
                let service = service.clone();
                sinew::spawn(move || service.ask())
            })
            .collect();
        for fiber in fibers {
            fiber.join().expect("nobody panics");
        }
        let most = service.most.load(Ordering::Relaxed);
        println!(
            "{FIBERS} fibers, {most} of them at a time: {:.1?}",
            start.elapsed()
        );
        assert!((1..=AT_ONCE).contains(&most));
        assert_eq!(service.permits.available_permits(), AT_ONCE);

        // All or nothing: for something that needs the service to be idle.
        let all = service.permits.acquire_many(AT_ONCE).expect("it is open");
        let late = service.permits.acquire_timeout(Duration::from_millis(1));
        assert_eq!(late.err(), Some(AcquireTimeoutError::Timeout));
        drop(all);
        println!("one held all {AT_ONCE} permits; who came meanwhile gave up, and took none");
        assert_eq!(service.permits.available_permits(), AT_ONCE);
    });
}
