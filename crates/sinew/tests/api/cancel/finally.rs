//! Cleaning up, however it ends.

use super::{HOUR, SHORT, everywhere, parked, spawn_parked};
use crate::harness::{Log, in_fibers, is_expected, panic_expected, runtime, watch};
use sinew::channel::bounded;
use sinew::{Cancelled, finally, timeout};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The panic that `f` ends with.
fn panic_of<T>(f: impl FnOnce() -> T) -> Box<dyn Any + Send> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("it returned"),
        Err(panic) => panic,
    }
}

#[test]
fn the_cleanup_runs_once_after_a_return() {
    everywhere(|| {
        let log = Log::new();
        let value = finally(
            || {
                log.push("body");
                5
            },
            || log.push("cleanup"),
        );
        assert_eq!(value, 5);
        assert_eq!(log.take(), ["body", "cleanup"]);
    });
}

#[test]
fn the_cleanup_runs_once_after_a_panic_which_goes_on() {
    everywhere(|| {
        let log = Log::new();
        let panic = panic_of(|| {
            finally(
                || panic_expected(1),
                || {
                    // Caught meanwhile: what is done here may wait.
                    assert!(!std::thread::panicking());
                    assert_eq!(sinew::sleep(SHORT), Ok(()));
                    log.push("cleanup");
                },
            )
        });
        assert!(is_expected(&*panic, 1));
        assert_eq!(log.take(), ["cleanup"]);
    });
}

#[test]
fn the_cleanup_runs_once_after_a_cancel_and_may_wait_and_send() {
    in_fibers(|| {
        let (tx, rx) = bounded(0);
        let fiber = spawn_parked(move || {
            finally(
                || sinew::sleep(HOUR),
                || {
                    assert_eq!(sinew::check_cancelled(), Ok(()));
                    assert_eq!(sinew::sleep(SHORT), Ok(()));
                    for i in 0..10 {
                        tx.send(i).unwrap(); // each waits for its receiver
                    }
                },
            )
        });
        fiber.cancel();
        assert!(rx.iter().eq(0..10));
        assert_eq!(fiber.join().unwrap(), Err(Cancelled));
    });
}

#[test]
fn the_cleanup_runs_once_when_time_is_over() {
    everywhere(|| {
        let cleaned = Cell::new(0);
        let outcome = timeout(SHORT, || {
            finally(
                || sinew::sleep(HOUR),
                || {
                    sinew::sleep(SHORT).unwrap();
                    cleaned.set(cleaned.get() + 1);
                },
            )
        });
        assert_eq!(outcome.unwrap_err().into_inner(), Err(Cancelled));
        assert_eq!(cleaned.get(), 1);
    });
}

#[test]
fn a_panic_of_the_cleanup_goes_on_unless_the_body_panicked_first() {
    everywhere(|| {
        let panic = panic_of(|| finally(|| 5, || panic_expected(2)));
        assert!(is_expected(&*panic, 2));
        let panic = panic_of(|| finally(|| panic_expected(1), || panic_expected(2)));
        assert!(is_expected(&*panic, 1));
    });
}

/// Panics when it is dropped.
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_expected(self.0);
    }
}

#[test]
fn values_and_payloads_that_panic_when_dropped_do_not_hide_the_panic() {
    everywhere(|| {
        let panic = panic_of(|| finally(|| Bomb(3), || panic_expected(2)));
        assert!(is_expected(&*panic, 2));
        let panic = panic_of(|| {
            finally(
                || panic_expected(1),
                || std::panic::resume_unwind(Box::new(Bomb(3))),
            )
        });
        assert!(is_expected(&*panic, 1));
    });
}

#[test]
fn of_nested_ones_the_innermost_runs_first() {
    everywhere(|| {
        let log = Log::new();
        let value = finally(
            || {
                finally(
                    || finally(|| log.push("body"), || log.push("inner")),
                    || log.push("middle"),
                );
                5
            },
            || log.push("outer"),
        );
        assert_eq!(value, 5);
        assert_eq!(log.take(), ["body", "inner", "middle", "outer"]);
        // Also if a cleanup panics on the way.
        let panic = panic_of(|| {
            finally(
                || finally(|| log.push("body"), || panic_expected(1)),
                || log.push("outer"),
            )
        });
        assert!(is_expected(&*panic, 1));
        assert_eq!(log.take(), ["body", "outer"]);
    });
}

#[test]
fn a_cleanup_may_have_one_of_its_own() {
    everywhere(|| {
        let log = Log::new();
        finally(
            || log.push("body"),
            || finally(|| log.push("cleanup"), || log.push("after that")),
        );
        assert_eq!(log.take(), ["body", "cleanup", "after that"]);
    });
}

#[test]
fn the_body_is_not_shielded_and_what_follows_is_not_either() {
    in_fibers(|| {
        sinew::current().cancel();
        let body = finally(sinew::check_cancelled, || {
            assert_eq!(sinew::check_cancelled(), Ok(()));
        });
        assert_eq!(body, Err(Cancelled));
        assert_eq!(sinew::check_cancelled(), Err(Cancelled));
    });
}

#[test]
fn a_cleanup_may_spawn_in_a_scope() {
    in_fibers(|| {
        let fiber = spawn_parked(|| {
            let mut cleaned = false;
            let body = finally(
                || sinew::sleep(HOUR),
                || {
                    sinew::scope(|s| {
                        s.spawn(|| {
                            sinew::sleep(SHORT).unwrap();
                            cleaned = true;
                        });
                    });
                },
            );
            (body, cleaned)
        });
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), (Err(Cancelled), true));
    });
}

#[test]
fn every_child_of_a_cancelled_scope_cleans_up_before_the_scope_ends() {
    everywhere(|| {
        let log = Log::new();
        sinew::scope(|s| {
            for i in 0..20 {
                let log = log.clone();
                let child = s.spawn(move || {
                    finally(
                        || sinew::sleep(HOUR),
                        || {
                            sinew::sleep(SHORT).unwrap();
                            log.push(i);
                        },
                    )
                });
                parked(&child.fiber());
            }
            s.cancel();
        });
        let mut cleaned = log.take();
        cleaned.sort_unstable();
        assert!(cleaned.into_iter().eq(0..20));
    });
}

#[test]
fn a_fiber_that_was_cancelled_before_it_began_has_nothing_to_clean_up() {
    let _watch = watch();
    runtime(1).run(|| {
        let log = Log::new();
        let theirs = log.clone();
        let fiber = sinew::spawn(move || {
            finally(|| theirs.push("body"), || theirs.push("cleanup"));
        });
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert!(log.take().is_empty());
    });
}
