//! `#[sinew::test]`: its limit of time, and panics that nobody takes. Tests that are to fail do
//! so in a child process: this same binary with a variable set.

use crate::harness::child::this_program;
use crate::harness::watch;
use std::process::Stdio;
use std::time::Duration;

const FAILS: &str = "SINEW_TEST_FAILS";

fn is_child() -> bool {
    std::env::var(FAILS).is_ok()
}

mod failing {
    use super::is_child;
    use crate::harness::wait_until;
    use sinew::{Builder, Cancelled, WaitReason};
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_millis(600);

    #[sinew::test]
    fn detached_panic() {
        if is_child() {
            drop(
                Builder::new()
                    .name("lost")
                    .spawn(|| panic!("unheard"))
                    .unwrap(),
            );
        }
    }

    #[sinew::test(workers = 2)]
    fn handle_dropped_after_the_end() {
        if is_child() {
            let handle = Builder::new()
                .name("lost")
                .spawn(|| panic!("unheard"))
                .unwrap();
            handle.fiber().wait().unwrap();
            drop(
                handle
                    .try_join()
                    .map(|outcome| outcome.map(|()| ()))
                    .map_err(drop)
                    .ok(),
            );
            let handle = Builder::new()
                .name("lost")
                .spawn(|| panic!("unheard"))
                .unwrap();
            handle.fiber().wait().unwrap();
            drop(handle);
        }
    }

    #[sinew::test]
    fn detached_daemon() {
        if is_child() {
            let daemon = Builder::new().name("lost").daemon(true);
            let daemon = daemon.spawn(|| {
                assert_eq!(sinew::sleep(Duration::from_secs(3600)), Err(Cancelled));
                panic!("unheard");
            });
            let daemon = daemon.unwrap();
            // Cancelled before it began it would not panic.
            wait_until(|| daemon.fiber().wait_reason() == WaitReason::Sleep);
            drop(daemon);
        }
    }

    #[sinew::test]
    fn detached_on_the_pool() {
        if is_child() {
            drop(sinew::spawn_blocking(|| panic!("unheard")));
        }
    }

    #[sinew::test]
    fn loser_of_a_race() {
        if is_child() {
            let won = sinew::scope::race(|race| {
                let loser = race.spawn(|| {
                    assert_eq!(sinew::sleep(Duration::from_secs(3600)), Err(Cancelled));
                    panic!("unheard")
                });
                race.spawn(move || {
                    wait_until(|| loser.wait_reason() == WaitReason::Sleep);
                    Ok::<_, ()>(7)
                });
            });
            assert_eq!(won.ok(), Some(7));
        }
    }

    #[sinew::test]
    fn second_panic_in_a_nursery() {
        if is_child() {
            let failed: Result<(), _> = sinew::scope::nursery(|nursery| {
                let second = nursery.spawn(|| -> Result<(), ()> {
                    assert_eq!(sinew::sleep(Duration::from_secs(3600)), Err(Cancelled));
                    panic!("unheard")
                });
                wait_until(|| second.fiber().wait_reason() == WaitReason::Sleep);
                nursery.spawn(|| -> Result<(), ()> { panic!("heard") });
                Ok(())
            });
            let sinew::scope::Failure::Panic(panic) = failed.unwrap_err() else {
                panic!("the first failure is a panic");
            };
            assert_eq!(panic.text(), Some("heard"));
        }
    }

    #[sinew::test]
    fn value_that_panics_when_dropped() {
        struct Bad;
        impl Drop for Bad {
            fn drop(&mut self) {
                panic!("unheard");
            }
        }
        if is_child() {
            drop(Builder::new().name("lost").spawn(|| Bad).unwrap());
        }
    }

    #[sinew::test]
    fn local_that_panics_when_dropped() {
        struct Bad;
        impl Drop for Bad {
            fn drop(&mut self) {
                panic!("unheard");
            }
        }
        sinew::fiber_local!(static BAD: Bad = Bad);
        if is_child() {
            let fiber = Builder::new().name("lost").spawn(|| BAD.with(|_| 7));
            assert_eq!(fiber.unwrap().join().unwrap(), 7);
        }
    }

    #[sinew::test(timeout = LIMIT)]
    fn body_that_sleeps() {
        if is_child() {
            let slept = sinew::sleep(Duration::from_secs(3600));
            assert_eq!(slept, Err(Cancelled));
            eprintln!("was cancelled");
        }
    }

    #[sinew::test(timeout = LIMIT)]
    fn body_that_parks() {
        while is_child() {
            sinew::park();
        }
    }

    #[sinew::test(timeout = LIMIT)]
    fn fiber_that_parks() {
        if is_child() {
            let stuck = Builder::new().name("stuck");
            drop(stuck.spawn(|| {
                loop {
                    sinew::park()
                }
            }));
        }
    }

    #[sinew::test(timeout = LIMIT)]
    fn panic_beside_a_fiber_that_parks() {
        if is_child() {
            drop(sinew::spawn(|| {
                loop {
                    sinew::park()
                }
            }));
            panic!("the first cause");
        }
    }

    #[sinew::test(timeout = Duration::ZERO)]
    fn body_without_a_limit() {
        if is_child() {
            sinew::sleep(Duration::from_millis(5)).unwrap();
        }
    }

    #[sinew::test]
    fn body_that_sleeps_by_the_default() {
        if is_child() {
            let _ = sinew::sleep(Duration::from_secs(3600));
        }
    }
}

mod passing {
    use crate::harness::{is_expected, panic_expected, watch};

    /// A panic that somebody takes is nobody else's business.
    #[sinew::test(workers = 2)]
    fn panics_that_are_taken() {
        let _watch = watch();
        let joined = sinew::spawn(|| panic_expected(1)).join().map(|()| ());
        assert!(is_expected(&*joined.unwrap_err().into_panic(), 1));
        let polled = sinew::block_on(sinew::spawn(|| panic_expected(2)));
        assert!(polled.map(|()| ()).unwrap_err().is_panic());
        let caught = std::panic::catch_unwind(|| {
            sinew::scope(|s| {
                s.spawn(|| panic_expected(3));
            });
        });
        assert!(caught.is_err());
        let failed = sinew::scope::nursery(|n| {
            n.spawn(|| -> Result<(), ()> { panic_expected(4) });
            Ok(())
        });
        assert!(failed.unwrap_err().is_panic());
        let caught = sinew::spawn(|| {
            std::panic::catch_unwind(|| panic_expected(5))
                .map(|()| ())
                .is_err()
        });
        assert!(caught.join().unwrap());
    }

    /// Cancelled before it ran, or ended with an error: neither is a panic.
    #[sinew::test]
    fn detached_fibers_that_do_not_panic() {
        let never = sinew::spawn(|| ());
        never.cancel();
        drop(never);
        drop(sinew::spawn(|| Err::<(), _>("an error")));
    }
}

fn run(test: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let output = this_program()
        .args(["--exact", &format!("trial::failing::{test}"), "--nocapture"])
        .env(FAILS, "1")
        .env_remove("SINEW_TEST_TIMEOUT")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("1 passed") || stdout.contains("1 failed"),
        "{stdout}{said}"
    );
    (output.status.success(), said)
}

#[track_caller]
fn assert_fails(test: &str, variables: &[(&str, &str)], words: &[&str]) {
    let (passed, said) = run(test, variables);
    assert!(!passed, "{test} passed: {said}");
    for word in words {
        assert!(said.contains(word), "{test}: no '{word}' in: {said}");
    }
}

#[test]
fn a_panic_that_nobody_can_take_fails_the_test() {
    let _watch = watch();
    let words = [
        "nobody could hear of a panic",
        "'lost'",
        "spawned at",
        "unheard",
    ];
    assert_fails("detached_panic", &[], &words);
    assert_fails("handle_dropped_after_the_end", &[], &words);
    assert_fails("detached_daemon", &[], &words);
    let words = ["nobody could hear of a panic", "trial.rs:", "unheard"];
    for test in [
        "detached_on_the_pool",
        "loser_of_a_race",
        "second_panic_in_a_nursery",
    ] {
        assert_fails(test, &[], &words);
    }
    let words = [
        "nobody could hear of a panic",
        "'lost'",
        "panicked when dropped",
    ];
    assert_fails("value_that_panics_when_dropped", &[], &words);
    let words = ["the drop of a fiber-local panicked", "'lost'", "trial.rs:"];
    assert_fails("local_that_panics_when_dropped", &[], &words);
}

#[test]
fn a_test_whose_time_is_over_lists_and_cancels_its_fibers_and_fails() {
    let _watch = watch();
    let words = [
        "has not ended within 600ms",
        "waits in Sleep at",
        "trial.rs",
        "was cancelled",
        "have ended",
    ];
    assert_fails("body_that_sleeps", &[], &words);
    let words = ["has not ended within 600ms", "waits in Park at", "leaked"];
    assert_fails("body_that_parks", &[], &words);
    let words = [
        "not its fibers, within 600ms",
        "'stuck'",
        "waits in Park at",
    ];
    assert_fails("fiber_that_parks", &[], &words);
    assert_fails("panic_beside_a_fiber_that_parks", &[], &["the first cause"]);
}

#[test]
fn the_variable_sets_the_usual_limit_and_takes_all_limits_away() {
    let _watch = watch();
    let words = ["has not ended within 1s"];
    assert_fails(
        "body_that_sleeps_by_the_default",
        &[("SINEW_TEST_TIMEOUT", "1")],
        &words,
    );
    let words = ["SINEW_TEST_TIMEOUT is 'soon'"];
    assert_fails(
        "body_that_sleeps_by_the_default",
        &[("SINEW_TEST_TIMEOUT", "soon")],
        &words,
    );

    let (passed, said) = run("body_without_a_limit", &[]);
    assert!(passed, "{said}");

    // Without a limit it hangs: it is ended here.
    let mut child = this_program()
        .args(["--exact", "trial::failing::body_that_parks", "--nocapture"])
        .env(FAILS, "1")
        .env("SINEW_TEST_TIMEOUT", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // More than its own limit: if it has not ended by then it had none. A slow machine cannot
    // make this fail.
    std::thread::sleep(Duration::from_secs(2));
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ended, None);
}
