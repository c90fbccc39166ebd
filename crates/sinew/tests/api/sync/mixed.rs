//! One primitive shared by fibers of two runtimes, OS threads, and async tasks
//! of tokio and of `block_on`.

use crate::harness::{runtime, watch};
use sinew::Builder;
use sinew::sync::{
    Barrier, Condvar, Event, FairMutex, Futex, Mutex, Notify, OnceLock, RwLock, Semaphore,
    Sequencer, WaitGroup, promise,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many call blocking functions: fibers of two runtimes, and threads.
const CALLERS: usize = 6;
/// How many `.await`: tokio's tasks, and `block_on` on a fiber and a thread.
const TASKS: usize = 4;
const ALL: usize = CALLERS + TASKS;

/// Whoever takes part.
struct Crowd {
    one: sinew::Runtime,
    two: sinew::Runtime,
    tokio: tokio::runtime::Runtime,
    ends: Vec<Box<dyn FnOnce()>>,
}

impl Crowd {
    fn new() -> Self {
        Self {
            one: runtime(1),
            two: runtime(2),
            tokio: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .build()
                .unwrap(),
            ends: Vec::new(),
        }
    }

    /// Starts callers number 0 to `CALLERS`.
    fn callers(&mut self, f: impl FnOnce(usize) + Clone + Send + 'static) {
        for i in 0..CALLERS {
            let f = f.clone();
            match i % 3 {
                0 => {
                    let fiber = self.one.spawn(move || f(i));
                    self.ends.push(Box::new(|| fiber.join().unwrap()));
                }
                1 => {
                    let fiber = self.two.spawn(move || f(i));
                    self.ends.push(Box::new(|| fiber.join().unwrap()));
                }
                _ => {
                    let thread = std::thread::spawn(move || f(i));
                    self.ends.push(Box::new(|| thread.join().unwrap()));
                }
            }
        }
    }

    /// Starts tasks number `CALLERS` to `ALL`.
    fn tasks<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        f: impl FnOnce(usize) -> F + Clone + Send + 'static,
    ) {
        for i in CALLERS..ALL {
            let f = f.clone();
            match i % 4 {
                0 => {
                    let fiber = self.one.spawn(move || sinew::block_on(f(i)));
                    self.ends.push(Box::new(|| fiber.join().unwrap()));
                }
                1 => {
                    let thread = std::thread::spawn(move || sinew::block_on(f(i)));
                    self.ends.push(Box::new(|| thread.join().unwrap()));
                }
                _ => {
                    let task = self.tokio.spawn(f(i));
                    let handle = self.tokio.handle().clone();
                    self.ends
                        .push(Box::new(move || handle.block_on(task).unwrap()));
                }
            }
        }
    }

    /// Waits for all of them.
    fn end(mut self) {
        for end in self.ends.drain(..) {
            end();
        }
    }
}

#[test]
fn no_update_under_a_mutex_is_lost() {
    let _watch = watch();
    let mutex = Arc::new(Mutex::new(0));
    let mut crowd = Crowd::new();
    let theirs = mutex.clone();
    crowd.callers(move |_| {
        for i in 0..200 {
            let mut guard = theirs.lock();
            let before = *guard;
            if i % 10 == 0 {
                sinew::yield_now();
            }
            *guard = before + 1;
        }
    });
    let theirs = mutex.clone();
    crowd.tasks(move |_| async move {
        for _ in 0..200 {
            *theirs.lock_async().await += 1;
        }
    });
    crowd.end();
    assert_eq!(*mutex.lock(), 200 * ALL);
}

#[test]
fn no_update_under_a_fair_mutex_is_lost() {
    let _watch = watch();
    let mutex = Arc::new(FairMutex::new(0));
    let mut crowd = Crowd::new();
    let theirs = mutex.clone();
    crowd.callers(move |_| {
        for i in 0..100 {
            let mut guard = if i % 2 == 0 {
                theirs.lock()
            } else {
                theirs.ticket().lock()
            };
            let before = *guard;
            if i % 10 == 0 {
                sinew::yield_now();
            }
            *guard = before + 1;
        }
    });
    let theirs = mutex.clone();
    crowd.tasks(move |_| async move {
        for _ in 0..100 {
            *theirs.lock_async().await += 1;
        }
    });
    crowd.end();
    assert_eq!(*mutex.lock(), 100 * ALL);
}

#[test]
fn readers_see_no_half_of_a_write() {
    let _watch = watch();
    let lock = Arc::new(RwLock::new((0, 0)));
    let mut crowd = Crowd::new();
    let theirs = lock.clone();
    crowd.callers(move |i| {
        for round in 0..100 {
            if (i + round) % 4 == 0 {
                let mut guard = theirs.write();
                guard.0 += 1;
                sinew::yield_now();
                guard.1 += 1;
            } else {
                let guard = theirs.read();
                assert_eq!(guard.0, guard.1);
            }
        }
    });
    let theirs = lock.clone();
    crowd.tasks(move |i| async move {
        for round in 0..100 {
            if (i + round) % 4 == 0 {
                let mut guard = theirs.write_async().await;
                guard.0 += 1;
                guard.1 += 1;
            } else {
                let guard = theirs.read_async().await;
                assert_eq!(guard.0, guard.1);
            }
        }
    });
    crowd.end();
    assert_eq!(*lock.read(), (25 * ALL, 25 * ALL));
}

#[test]
fn a_queue_between_all_of_them_hands_everything_over() {
    #[derive(Default)]
    struct Queue {
        items: Mutex<VecDeque<usize>>,
        filled: Condvar,
        emptied: Condvar,
    }
    const EACH: usize = 40;
    let _watch = watch();
    let queue: Arc<Queue> = Arc::default();
    let sum = Arc::new(AtomicUsize::new(0));
    let mut crowd = Crowd::new();
    // Even numbers produce, odd ones consume: as many of each.
    let (theirs, total) = (queue.clone(), sum.clone());
    crowd.callers(move |i| {
        for k in 0..EACH {
            let items = theirs.items.lock();
            if i % 2 == 0 {
                let mut items = theirs.emptied.wait_while(items, |q| q.len() >= 2);
                items.push_back(k);
                theirs.filled.notify_one();
            } else {
                let mut items = theirs.filled.wait_while(items, |q| q.is_empty());
                total.fetch_add(items.pop_front().unwrap(), Ordering::Relaxed);
                theirs.emptied.notify_one();
            }
        }
    });
    let (theirs, total) = (queue.clone(), sum.clone());
    crowd.tasks(move |i| async move {
        for k in 0..EACH {
            let mut items = theirs.items.lock_async().await;
            if i % 2 == 0 {
                while items.len() >= 2 {
                    items = theirs.emptied.wait_async(items).await;
                }
                items.push_back(k);
                theirs.filled.notify_one();
            } else {
                while items.is_empty() {
                    items = theirs.filled.wait_async(items).await;
                }
                total.fetch_add(items.pop_front().unwrap(), Ordering::Relaxed);
                theirs.emptied.notify_one();
            }
        }
    });
    crowd.end();
    assert!(queue.items.lock().is_empty());
    let each: usize = (0..EACH).sum();
    assert_eq!(sum.load(Ordering::Relaxed), each * ALL / 2);
}

#[test]
fn no_more_are_inside_a_semaphore_than_it_has_permits() {
    let _watch = watch();
    let semaphore = Arc::new(Semaphore::new(3));
    let inside = Arc::new(AtomicUsize::new(0));
    let mut crowd = Crowd::new();
    let (theirs, count) = (semaphore.clone(), inside.clone());
    crowd.callers(move |i| {
        for round in 0..60 {
            let n = 1 + (i + round) % 3;
            let _permits = theirs.acquire_many(n).unwrap();
            assert!(count.fetch_add(n, Ordering::SeqCst) + n <= 3);
            sinew::yield_now();
            count.fetch_sub(n, Ordering::SeqCst);
        }
    });
    let (theirs, count) = (semaphore.clone(), inside.clone());
    crowd.tasks(move |i| async move {
        for round in 0..60 {
            let n = 1 + (i + round) % 3;
            let _permits = theirs.clone().acquire_many_owned_async(n).await.unwrap();
            assert!(count.fetch_add(n, Ordering::SeqCst) + n <= 3);
            count.fetch_sub(n, Ordering::SeqCst);
        }
    });
    crowd.end();
    assert_eq!(semaphore.available_permits(), 3);
}

#[test]
fn all_meet_at_a_barrier_and_one_leads() {
    const ROUNDS: usize = 30;
    let _watch = watch();
    let barrier = Arc::new(Barrier::new(ALL));
    let leaders = Arc::new(AtomicUsize::new(0));
    let arrived = Arc::new(AtomicUsize::new(0));
    let mut crowd = Crowd::new();
    let all = (barrier.clone(), leaders.clone(), arrived.clone());
    crowd.callers(move |_| {
        for round in 1..=ROUNDS {
            all.2.fetch_add(1, Ordering::SeqCst);
            let leads = all.0.wait().is_leader();
            all.1.fetch_add(usize::from(leads), Ordering::SeqCst);
            assert!(all.2.load(Ordering::SeqCst) >= round * ALL);
        }
    });
    let all = (barrier.clone(), leaders.clone(), arrived.clone());
    crowd.tasks(move |_| async move {
        for round in 1..=ROUNDS {
            all.2.fetch_add(1, Ordering::SeqCst);
            let leads = all.0.wait_async().await.is_leader();
            all.1.fetch_add(usize::from(leads), Ordering::SeqCst);
            assert!(all.2.load(Ordering::SeqCst) >= round * ALL);
        }
    });
    crowd.end();
    assert_eq!(leaders.load(Ordering::SeqCst), ROUNDS);
}

#[test]
fn an_event_releases_all_of_them() {
    let _watch = watch();
    for _ in 0..5 {
        let event = Arc::new(Event::new());
        let mut crowd = Crowd::new();
        let theirs = event.clone();
        crowd.callers(move |_| theirs.wait().unwrap());
        let theirs = event.clone();
        crowd.tasks(move |_| async move { theirs.wait_async().await });
        event.set();
        event.reset(); // who comes only now waits for the next
        event.set();
        crowd.end();
    }
}

#[test]
fn a_group_waits_for_all_of_them() {
    let _watch = watch();
    let group = WaitGroup::new();
    let mut crowd = Crowd::new();
    let theirs = group.clone();
    crowd.callers(move |_| theirs.wait());
    let theirs = group.clone();
    crowd.tasks(move |_| async move { theirs.wait_async().await });
    group.wait();
    crowd.end();
}

#[test]
fn a_notification_goes_round_among_them() {
    const ROUNDS: usize = 30;
    let _watch = watch();
    let ring: Arc<Vec<Notify>> = Arc::new((0..ALL).map(|_| Notify::new()).collect());
    let mut crowd = Crowd::new();
    let theirs = ring.clone();
    crowd.callers(move |i| {
        for _ in 0..ROUNDS {
            theirs[i].wait().unwrap();
            theirs[(i + 1) % ALL].notify_one();
        }
    });
    let theirs = ring.clone();
    crowd.tasks(move |i| async move {
        for _ in 0..ROUNDS {
            theirs[i].wait_async().await;
            theirs[(i + 1) % ALL].notify_one();
        }
    });
    ring[0].notify_one();
    crowd.end();
    // It came back to where it began, and there is only one.
    assert!(ring[0].try_wait());
    assert!(ring.iter().all(|notify| !notify.try_wait()));
}

#[test]
fn all_take_turns_by_a_sequencer() {
    const ROUNDS: usize = 30;
    let _watch = watch();
    let sequencer = Arc::new(Sequencer::new());
    let mut crowd = Crowd::new();
    let theirs = sequencer.clone();
    crowd.callers(move |i| {
        for round in 0..ROUNDS {
            let turn = (round * ALL + i) as u64;
            theirs.wait(turn).unwrap();
            assert_eq!(theirs.increment(), turn + 1);
        }
    });
    let theirs = sequencer.clone();
    crowd.tasks(move |i| async move {
        for round in 0..ROUNDS {
            let turn = (round * ALL + i) as u64;
            theirs.wait_async(turn).await;
            assert_eq!(theirs.increment(), turn + 1);
        }
    });
    crowd.end();
    assert_eq!(sequencer.get(), (ROUNDS * ALL) as u64);
}

#[test]
fn posts_reach_all_who_wait_for_them() {
    let _watch = watch();
    let futex = Arc::new(Futex::new());
    let mut crowd = Crowd::new();
    let theirs = futex.clone();
    crowd.callers(move |i| {
        for token in 1..=50 {
            theirs.wait(token).unwrap();
        }
        if i == 0 {
            theirs.post();
        }
        theirs.wait(51).unwrap();
    });
    let theirs = futex.clone();
    crowd.tasks(move |_| async move {
        for token in 1..=51 {
            theirs.wait_async(token).await.unwrap();
        }
    });
    for _ in 0..50 {
        futex.post();
        std::thread::yield_now();
    }
    crowd.end();
}

#[test]
fn one_of_them_initialises_for_all() {
    let _watch = watch();
    let lock: Arc<OnceLock<usize>> = Arc::default();
    let made = Arc::new(AtomicUsize::new(0));
    let mut crowd = Crowd::new();
    let theirs = lock.clone();
    crowd.tasks(move |_| async move {
        assert!(*theirs.wait_async().await < CALLERS);
    });
    let (theirs, count) = (lock.clone(), made.clone());
    crowd.callers(move |i| {
        let value = theirs.get_or_init(|| {
            sinew::yield_now();
            count.fetch_add(1, Ordering::SeqCst);
            i
        });
        assert!(*value < CALLERS);
    });
    crowd.end();
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn a_value_is_passed_along_a_chain_of_promises() {
    let _watch = watch();
    let (first, future) = promise::<usize>();
    let mut futures = vec![std::sync::Mutex::new(Some(future))];
    let mut promises = Vec::new();
    for _ in 0..ALL {
        let (promise, future) = promise::<usize>();
        promises.push(std::sync::Mutex::new(Some(promise)));
        futures.push(std::sync::Mutex::new(Some(future)));
    }
    let links = Arc::new((futures, promises));
    let mut crowd = Crowd::new();
    let theirs = links.clone();
    crowd.callers(move |i| {
        let mut future = theirs.0[i].lock().unwrap().take().unwrap();
        let promise = theirs.1[i].lock().unwrap().take().unwrap();
        let value = future.wait().unwrap();
        promise.set(value + 1).unwrap();
    });
    let theirs = links.clone();
    crowd.tasks(move |i| {
        let future = theirs.0[i].lock().unwrap().take().unwrap();
        let promise = theirs.1[i].lock().unwrap().take().unwrap();
        async move { promise.set(future.await.unwrap() + 1).unwrap() }
    });
    first.set(0).unwrap();
    let mut last = links.0[ALL].lock().unwrap().take().unwrap();
    assert_eq!(last.wait(), Ok(ALL));
    crowd.end();
}

#[test]
fn fibers_that_change_workers_wait_as_others_do() {
    let _watch = watch();
    let runtime = runtime(2);
    let shared = Arc::new((Mutex::new(0), Semaphore::new(2), Barrier::new(8)));
    let fibers: Vec<_> = (0..8)
        .map(|i| {
            let shared = shared.clone();
            let body = move || {
                let (mutex, semaphore, barrier) = &*shared;
                for _ in 0..50 {
                    let permit = semaphore.acquire().unwrap();
                    let mut guard = mutex.lock();
                    sinew::yield_now(); // perhaps to the other worker
                    *guard += 1;
                    drop((guard, permit));
                    drop(mutex.lock_timeout(Duration::from_micros(20)));
                    barrier.wait();
                }
                i
            };
            // SAFETY: the closure holds nothing over a suspension that belongs to
            // a thread, and uses no thread-local but the runtime's.
            let builder = unsafe { Builder::new().migratable() };
            builder.spawn_on(&runtime.handle(), body).unwrap()
        })
        .collect();
    for (i, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().unwrap(), i);
    }
    assert_eq!(*shared.0.lock(), 400);
    assert_eq!(shared.1.available_permits(), 2);
}
