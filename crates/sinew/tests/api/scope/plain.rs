//! What children borrow, what a scope returns, and that it waits.

use super::{Counts, count, everywhere, panic_of, waits_in};
use crate::harness::{Gate, is_expected, on_workers, panic_expected, wait_until};
use sinew::sync::Event;
use sinew::{Builder, Priority, Scope, ScopedJoinHandle, WaitReason, scope};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn children_borrow_shared_and_mutably_at_once() {
    everywhere(|| {
        let words = vec![String::from("one"), String::from("three")];
        let (mut first, mut second) = (0, 0);
        let mut list = vec![1, 2, 3];
        scope(|s| {
            s.spawn(|| first = words[0].len());
            s.spawn(|| second = words[1].len());
            s.spawn(|| list.push(4));
            assert_eq!(words.len(), 2); // the body reads as well
        });
        // All loans have ended.
        list.push(5);
        drop(words);
        assert_eq!((first, second, list), (3, 5, vec![1, 2, 3, 4, 5]));
    });
}

#[test]
fn each_child_may_have_its_own_part_of_a_slice() {
    everywhere(|| {
        let mut numbers: Vec<u64> = (0..1000).collect();
        scope(|s| {
            for part in numbers.chunks_mut(7) {
                s.spawn(move || {
                    for number in part {
                        *number *= 2;
                        sinew::safepoint();
                    }
                });
            }
        });
        assert!((0..1000).all(|i| numbers[i as usize] == 2 * i));
    });
}

#[test]
fn scopes_nest_to_any_depth_in_parallel() {
    fn sort(numbers: &mut [u32]) {
        let Some((pivot, rest)) = numbers.split_first_mut() else {
            return;
        };
        // Lomuto, on what comes after the pivot.
        let mut low = 0;
        for i in 0..rest.len() {
            if rest[i] < *pivot {
                rest.swap(low, i);
                low += 1;
            }
        }
        numbers.swap(0, low);
        let (below, above) = numbers.split_at_mut(low);
        scope(|s| {
            s.spawn(|| sort(below));
            sort(&mut above[1..]);
        });
    }
    everywhere(|| {
        let mut numbers: Vec<u32> = (0..300).map(|i| i * 7919 % 1009).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        sort(&mut numbers);
        assert_eq!(numbers, sorted);
    });
}

#[test]
fn a_scope_returns_what_its_body_returns() {
    everywhere(|| {
        let text = String::from("outer");
        let kept: &str = scope(|_| text.as_str());
        let sum: i32 = scope(|s| {
            let children: Vec<_> = (0..10).map(|i| s.spawn(move || i)).collect();
            children
                .into_iter()
                .map(|child| child.join().unwrap())
                .sum()
        });
        assert_eq!((kept, sum), ("outer", 45));
        // Also what is not `Send`: it stays on this stack.
        assert_eq!(*scope(|_| std::rc::Rc::new(1)), 1);
        // A child may answer with a loan of what is outside.
        let found = scope(|s| s.spawn(|| &text[1..]).join().unwrap());
        assert_eq!(found, "uter");
    });
}

#[test]
fn an_owner_waits_at_the_end_for_who_was_not_joined() {
    on_workers(|runtime| {
        let go = Gate::new();
        let gate = go.clone();
        let owner = runtime.spawn(move || {
            let mut done = [false; 3];
            scope(|s| {
                for done in &mut done {
                    s.spawn(|| {
                        gate.pass();
                        *done = true;
                    });
                }
            });
            done
        });
        waits_in(&owner.fiber(), WaitReason::Scope);
        go.open();
        assert_eq!(owner.join().unwrap(), [true; 3]);
    });
}

#[test]
fn a_panic_of_the_body_goes_on_after_all_children_have_ended() {
    on_workers(|runtime| {
        let go = Gate::new();
        let gate = go.clone();
        let owner = runtime.spawn(move || {
            let mut done = false;
            let payload = panic_of(|| {
                scope(|s| {
                    s.spawn(|| {
                        gate.pass();
                        done = true;
                    });
                    panic_expected(1);
                })
            });
            (done, is_expected(&*payload, 1))
        });
        waits_in(&owner.fiber(), WaitReason::Scope);
        go.open();
        assert_eq!(owner.join().unwrap(), (true, true));
    });
}

#[test]
fn a_panic_of_the_body_cancels_nobody() {
    everywhere(|| {
        let mut told = None;
        let payload = panic_of(|| {
            scope(|s| {
                s.spawn(|| told = Some(sinew::sleep(Duration::from_millis(1))));
                panic_expected(2);
            })
        });
        assert!(is_expected(&*payload, 2));
        assert_eq!(told, Some(Ok(())));
    });
}

#[test]
fn children_start_others_of_the_same_scope() {
    fn grow<'scope>(s: &'scope Scope<'scope, '_>, depth: u32, count: &'scope AtomicUsize) {
        count.fetch_add(1, Ordering::Relaxed);
        if depth > 0 {
            s.spawn(move || grow(s, depth - 1, count));
            s.spawn(move || grow(s, depth - 1, count));
        }
    }
    everywhere(|| {
        let count = AtomicUsize::new(0);
        scope(|s| {
            s.spawn(|| grow(s, 7, &count));
        });
        assert_eq!(count.into_inner(), (1 << 8) - 1);
    });
}

#[test]
fn a_result_with_loans_is_dropped_before_the_scope_returns() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        scope(|s| {
            // Nobody has the handle when it ends.
            drop(s.spawn(|| Counts(&drops)));
            // It is dropped after the child has ended.
            let ended = s.spawn(|| Counts(&drops));
            wait_until(|| ended.is_finished());
            drop(ended);
            // By a sibling.
            let third = s.spawn(|| Counts(&drops));
            s.spawn(|| drop(third));
        });
        assert_eq!(count(&drops), 3);
    });
}

#[test]
fn a_leaked_handle_leaks_the_result_and_nothing_else() {
    everywhere(|| {
        let (captures, results) = (AtomicUsize::new(0), AtomicUsize::new(0));
        scope(|s| {
            let captured = Counts(&captures);
            std::mem::forget(s.spawn(|| {
                drop(captured);
                Counts(&results)
            }));
        });
        assert_eq!((count(&captures), count(&results)), (1, 0));
    });
}

/// std's `test_scoped_threads_drop_result_before_join`.
#[test]
fn the_drop_of_a_result_may_start_another_child() {
    struct Starts<'scope, 'env>(&'scope Scope<'scope, 'env>, &'env AtomicBool);
    impl Drop for Starts<'_, '_> {
        fn drop(&mut self) {
            sinew::yield_now();
            let ended = self.1;
            self.0.spawn(move || {
                sinew::sleep(Duration::from_millis(2)).unwrap();
                ended.store(true, Ordering::Relaxed);
            });
        }
    }
    everywhere(|| {
        let ended = AtomicBool::new(false);
        scope(|s| {
            let ended = &ended;
            s.spawn(move || {
                sinew::yield_now();
                Starts(s, ended)
            });
        });
        assert!(ended.into_inner());
    });
}

#[test]
fn what_a_child_captured_is_dropped_before_its_join_returns() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        scope(|s| {
            let captured = Counts(&drops);
            let child = s.spawn(move || {
                let _captured = &captured;
            });
            child.join().unwrap();
            assert_eq!(count(&drops), 1);
        });
    });
}

#[test]
fn a_builder_starts_children_with_its_settings() {
    everywhere(|| {
        let name = String::from("a child");
        scope(|s| {
            let settings = Builder::new().name(&name).priority(Priority::High);
            let child = settings.spawn_scoped(s, || {
                assert_eq!(sinew::current().name(), Some(name.as_str()));
                name.len()
            });
            let child = child.unwrap();
            assert_eq!(child.fiber().name(), Some("a child"));
            assert_eq!(child.join().unwrap(), 7);
            // The scope waits for a daemon, too, which borrows as the others do.
            let daemon = Builder::new().daemon(true);
            drop(daemon.spawn_scoped(s, || sinew::sleep(Duration::from_millis(1))));
        });
    });
}

#[test]
fn a_handle_tells_of_its_child_while_it_runs_and_after() {
    everywhere(|| {
        let go = Event::new();
        scope(|s| {
            let child = s.spawn(|| go.wait());
            let fiber = child.fiber();
            assert!(!child.is_finished() && !fiber.is_finished());
            assert!(format!("{child:?}").starts_with("ScopedJoinHandle"));
            let child = child.try_join().unwrap_err();
            let child = child.join_timeout(Duration::from_millis(1)).unwrap_err();
            go.set();
            fiber.wait().unwrap();
            assert!(child.is_finished());
            assert_eq!(child.try_join().unwrap().unwrap(), Ok(()));
        });
    });
}

#[test]
fn handles_may_be_joined_by_siblings() {
    everywhere(|| {
        let sum = scope(|s| {
            let first = s.spawn(|| 1);
            let second = s.spawn(|| 10 + first.join().unwrap());
            s.spawn(|| 100 + second.join().unwrap()).join().unwrap()
        });
        assert_eq!(sum, 111);
    });
}

#[test]
fn the_types_are_what_std_s_are() {
    fn sync<T: Sync + std::panic::RefUnwindSafe>() {}
    fn send<T: Send + std::panic::UnwindSafe>() {}
    sync::<Scope<'_, '_>>();
    send::<&Scope<'_, '_>>();
    sync::<ScopedJoinHandle<'_, String>>();
    send::<ScopedJoinHandle<'_, String>>();
    scope(|s| assert_eq!(format!("{s:?}"), "Scope { is_cancelled: false, .. }"));
}

#[test]
fn ten_thousand_children_end_before_their_scope_does() {
    everywhere(|| {
        let ended = AtomicUsize::new(0);
        scope(|s| {
            for i in 0..10_000 {
                let ended = &ended;
                s.spawn(move || {
                    if i % 3 == 0 {
                        sinew::yield_now();
                    }
                    ended.fetch_add(1, Ordering::Relaxed)
                });
            }
        });
        assert_eq!(ended.into_inner(), 10_000);
    });
}
