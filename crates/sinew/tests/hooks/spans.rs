//! Spans of `tracing` with the feature of that name: they stay with their fiber.

use crate::alone;
use crate::harness::{on_workers, panic_expected, runtime};
use sinew::sync::Barrier;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Span, Subscriber, info, info_span, instrument};
use tracing_core::span::Current;

/// What the global subscriber has written.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Makes `tracing_subscriber`'s usual subscriber the process's, writing here.
    fn install() -> Self {
        let log = Self::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        log
    }

    /// The lines since the last call, without their level, in order of the alphabet.
    fn take(&self) -> BTreeSet<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        let lines = text
            .lines()
            .map(|line| line.trim_start().strip_prefix("INFO ").unwrap());
        lines.map(|line| line.trim().to_owned()).collect()
    }
}

fn lines<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.map(str::to_owned).into()
}

const USERS: [&str; 3] = ["alice", "bob", "carol"];

#[instrument(skip(all_inside))]
fn inner(user: &str, all_inside: &Barrier) {
    all_inside.wait();
    info!("in inner");
    let deeper = info_span!("deeper").entered();
    all_inside.wait();
    sinew::yield_now();
    info!("deeper");
    drop(deeper);
    info!("out again");
}

#[test]
fn instrumented_functions_that_wait_keep_their_spans() {
    alone(
        "spans::instrumented_functions_that_wait_keep_their_spans",
        || {
            let log = Log::install();
            on_workers(|runtime| {
                runtime.run(|| {
                    let all_inside = Arc::new(Barrier::new(3));
                    let fibers = USERS.map(|user| {
                        let all_inside = all_inside.clone();
                        sinew::spawn(move || inner(user, &all_inside))
                    });
                    for fiber in fibers {
                        fiber.join().unwrap();
                    }
                    info!("outside");
                });
                let expected = lines([
                    "inner{user=\"alice\"}: in inner",
                    "inner{user=\"alice\"}:deeper: deeper",
                    "inner{user=\"alice\"}: out again",
                    "inner{user=\"bob\"}: in inner",
                    "inner{user=\"bob\"}:deeper: deeper",
                    "inner{user=\"bob\"}: out again",
                    "inner{user=\"carol\"}: in inner",
                    "inner{user=\"carol\"}:deeper: deeper",
                    "inner{user=\"carol\"}: out again",
                    "outside",
                ]);
                assert_eq!(log.take(), expected);
            });
        },
    );
}

#[test]
fn guards_that_are_held_across_waits_keep_their_spans() {
    alone(
        "spans::guards_that_are_held_across_waits_keep_their_spans",
        || {
            let log = Log::install();
            on_workers(|runtime| {
                runtime.run(|| {
                    let all_inside = Arc::new(Barrier::new(3));
                    let fibers = USERS.map(|user| {
                        let all_inside = all_inside.clone();
                        sinew::spawn(move || {
                            let request = info_span!("request", user);
                            let again = request.enter();
                            let twice = request.enter();
                            let query = info_span!("query").entered();
                            let third = request.enter();
                            let before = Span::current().id();
                            all_inside.wait();
                            assert_eq!(Span::current().id(), before);
                            info!("after the wait as {user}");
                            drop((third, query));
                            all_inside.wait();
                            assert_eq!(Span::current().id(), request.id());
                            drop(twice);
                            sinew::yield_now();
                            info!("and again as {user}");
                            drop(again);
                            sinew::yield_now();
                            assert_eq!(Span::current().id(), None);
                        })
                    });
                    for fiber in fibers {
                        fiber.join().unwrap();
                    }
                });
                let expected = USERS.iter().flat_map(|user| {
                    [
                        format!("request{{user=\"{user}\"}}:query: after the wait as {user}"),
                        format!("request{{user=\"{user}\"}}: and again as {user}"),
                    ]
                });
                assert_eq!(log.take(), expected.collect());
            });
        },
    );
}

#[test]
fn a_fiber_that_unwinds_through_a_span_takes_it_along() {
    alone(
        "spans::a_fiber_that_unwinds_through_a_span_takes_it_along",
        || {
            let log = Log::install();
            struct Farewell;
            impl Drop for Farewell {
                fn drop(&mut self) {
                    sinew::yield_now(); // the bystander runs
                    info!("farewell");
                }
            }
            #[instrument]
            fn doomed() {
                let _farewell = Farewell;
                panic_expected(1);
            }
            on_workers(|runtime| {
                runtime.run(|| {
                    let unwinds = sinew::spawn(doomed);
                    let bystander = sinew::spawn(|| {
                        for _ in 0..3 {
                            info!("bystander");
                            sinew::yield_now();
                        }
                    });
                    assert!(unwinds.join().unwrap_err().is_panic());
                    bystander.join().unwrap();
                    sinew::spawn(|| info!("later")).join().unwrap();
                });
                assert_eq!(
                    log.take(),
                    lines(["doomed: farewell", "bystander", "later"])
                );
            });
        },
    );
}

#[test]
fn a_guard_that_is_leaked_ends_with_its_fiber() {
    alone("spans::a_guard_that_is_leaked_ends_with_its_fiber", || {
        let log = Log::install();
        on_workers(|runtime| {
            runtime.run(|| {
                let leaks = sinew::spawn(|| std::mem::forget(info_span!("leaked").entered()));
                leaks.join().unwrap();
                info!("who joined");
                // On every worker.
                for _ in 0..20 {
                    sinew::spawn(|| info!("next")).join().unwrap();
                }
            });
            assert_eq!(log.take(), lines(["who joined", "next"]));
        });
    });
}

#[test]
fn a_thread_keeps_its_own_span() {
    alone("spans::a_thread_keeps_its_own_span", || {
        let log = Log::install();
        on_workers(|runtime| {
            let _own = info_span!("thread").entered();
            runtime.run(|| {
                info!("on a fiber");
                let _request = info_span!("request").entered();
                sinew::blocking(|| info!("on a pool thread"));
                let span = Span::current();
                sinew::blocking(|| span.in_scope(|| info!("carried there")));
            });
            sinew::yield_now();
            info!("on the thread");
            let expected = lines([
                "on a fiber",
                "on a pool thread",
                "request: carried there",
                "thread: on the thread",
            ]);
            assert_eq!(log.take(), expected);
        });
    });
}

#[test]
fn a_subscriber_may_come_while_fibers_wait() {
    alone("spans::a_subscriber_may_come_while_fibers_wait", || {
        let runtime = runtime(1);
        let log = runtime.run(|| {
            let waits = sinew::spawn(|| {
                let _nobody_sees_it = info_span!("early").entered();
                sinew::park();
                let _request = info_span!("request").entered();
                sinew::yield_now();
                info!("seen");
            });
            sinew::yield_now();
            let log = Log::install();
            waits.fiber().unpark();
            waits.join().unwrap();
            log
        });
        assert_eq!(log.take(), lines(["request: seen"]));
    });
}

/// A subscriber that has nothing to do with a registry: numbers, and a stack per thread.
#[derive(Default)]
struct Plain {
    next: AtomicU64,
    spans: Mutex<Vec<&'static Metadata<'static>>>,
}

thread_local!(static ENTERED: RefCell<Vec<Id>> = const { RefCell::new(Vec::new()) });
static ENTERS: AtomicUsize = AtomicUsize::new(0);
static EXITS: AtomicUsize = AtomicUsize::new(0);

impl Subscriber for Plain {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.spans.lock().unwrap();
        spans.push(span.metadata());
        self.next.store(spans.len() as u64, Ordering::SeqCst);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        ENTERS.fetch_add(1, Ordering::SeqCst);
        ENTERED.with_borrow_mut(|entered| entered.push(span.clone()));
    }

    fn exit(&self, span: &Id) {
        EXITS.fetch_add(1, Ordering::SeqCst);
        // Exits come from the innermost outward, or something is mixed up.
        let innermost = ENTERED.with_borrow_mut(Vec::pop);
        assert_eq!(innermost.as_ref(), Some(span));
    }

    fn current_span(&self) -> Current {
        let Some(id) = ENTERED.with_borrow(|entered| entered.last().cloned()) else {
            return Current::none();
        };
        let index = usize::try_from(id.into_u64()).unwrap() - 1;
        let metadata = self.spans.lock().unwrap()[index];
        Current::new(id, metadata)
    }
}

#[test]
fn any_subscriber_that_knows_its_current_span_will_do() {
    alone(
        "spans::any_subscriber_that_knows_its_current_span_will_do",
        || {
            tracing::subscriber::set_global_default(Plain::default()).unwrap();
            on_workers(|runtime| {
                runtime.run(|| {
                    let all_inside = Arc::new(Barrier::new(3));
                    let fibers = [0, 1, 2].map(|depth| {
                        let all_inside = all_inside.clone();
                        sinew::spawn(move || {
                            let spans: Vec<_> =
                                (0..=depth).map(|_| info_span!("s").entered()).collect();
                            let before = Span::current().id();
                            assert!(before.is_some());
                            all_inside.wait();
                            assert_eq!(Span::current().id(), before);
                            for span in spans.into_iter().rev() {
                                assert_eq!(Span::current().id(), span.id());
                                sinew::yield_now();
                                drop(span);
                            }
                            assert_eq!(Span::current().id(), None);
                        })
                    });
                    for fiber in fibers {
                        fiber.join().unwrap();
                    }
                });
            });
            assert_eq!(ENTERS.load(Ordering::SeqCst), EXITS.load(Ordering::SeqCst));
        },
    );
}
