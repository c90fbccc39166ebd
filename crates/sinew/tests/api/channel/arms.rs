//! What `select!` has beyond channels and defaults: many arms, `join`, `race!`.

use super::{HOUR, MS, assert_fair, everywhere, scenes};
use crate::harness::{
    Gate, Log, in_fibers, is_expected, on_workers, panic_expected, runtime, wait_until, watch,
};
use sinew::channel::{RecvError, never, unbounded};
use sinew::{WaitReason, race, select, select_biased};

/// For each number of arms from one to forty a select with that many, which
/// answers with the arm's number.
macro_rules! growing {
    ($channels:ident $check:ident [$($done:tt)*]) => {};
    ($channels:ident $check:ident [$($done:tt)*] $next:tt $($rest:tt)*) => {
        $check($next + 1, &|| select! {
            $(recv($channels[$done].1) -> got => got.map(|()| $done),)*
            recv($channels[$next].1) -> got => got.map(|()| $next),
        });
        growing!($channels $check [$($done)* $next] $($rest)*);
    };
}

#[test]
fn a_select_has_one_to_forty_arms() {
    let _watch = watch();
    let channels: Vec<_> = (0..40).map(|_| unbounded::<()>()).collect();
    let check = |arms: usize, select: &dyn Fn() -> Result<usize, RecvError>| {
        for (i, (tx, _)) in channels.iter().enumerate().take(arms) {
            tx.send(()).unwrap();
            assert_eq!(select(), Ok(i), "of {arms} arms");
        }
    };
    growing!(channels check []
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19
        20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
}

macro_rules! forty {
    ($select:ident $channels:ident $counts:ident) => {
        forty!($select $channels $counts
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19
            20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39)
    };
    ($select:ident $channels:ident $counts:ident $($n:tt)+) => {
        $select! {
            $(send($channels[$n].0, $n) -> sent => {
                sent.unwrap();
                $counts[$n] += 1;
            })+
            default => panic!("default"),
        }
    };
}

#[test]
fn forty_arms_that_can_go_have_their_share_or_are_taken_from_the_top() {
    in_fibers(|| {
        let channels: Vec<_> = (0..40).map(|_| unbounded::<usize>()).collect();
        let mut counts = vec![0_usize; 40];
        for _ in 0..10_000 {
            forty!(select channels counts);
        }
        assert_fair(&counts);
        for (i, (_, rx)) in channels.iter().enumerate() {
            assert_eq!(rx.try_iter().filter(|n| *n == i).count(), counts[i]);
        }
        let mut counts = vec![0_usize; 40];
        for _ in 0..100 {
            forty!(select_biased channels counts);
        }
        assert_eq!(counts[0], 100);
    });
}

#[test]
fn a_join_arm_gives_the_fiber_s_result() {
    everywhere(|| {
        let mut handle = sinew::spawn(|| 5);
        let got = select! {
            join(handle) -> result => result.unwrap(),
        };
        assert_eq!(got, 5);
        let mut handle = sinew::spawn(|| -> u8 { panic_expected(6) });
        let error = select! {
            join(handle) -> result => result.unwrap_err(),
            default(HOUR) => panic!("timeout"),
        };
        assert!(is_expected(&*error.into_panic(), 6));
    });
}

#[test]
fn a_join_arm_that_loses_leaves_the_handle_as_it_is() {
    everywhere(|| {
        let go = Gate::new();
        let gate = go.clone();
        let mut slow = sinew::spawn(move || {
            gate.pass();
            (3, sinew::is_cancelled())
        });
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        select! {
            join(slow) -> _ => panic!("it cannot have ended"),
            recv(rx) -> got => assert_eq!(got, Ok(1)),
        }
        select! {
            join(slow) -> _ => panic!("it cannot have ended"),
            default => {}
        }
        select! {
            join(slow) -> _ => panic!("it cannot have ended"),
            default(MS) => {}
        }
        go.open();
        assert_eq!(slow.join().unwrap(), (3, false));
    });
}

#[test]
fn whoever_ends_first_wins_a_select_of_joins() {
    scenes(|scene| {
        let runtime = runtime(1);
        let gates = [Gate::new(), Gate::new(), Gate::new()];
        let [mut a, mut b, mut c] = [0, 1, 2].map(|n| {
            let gate = gates[n].clone();
            runtime.spawn(move || {
                gate.pass();
                n
            })
        });
        let joiner = scene.left(move || {
            let first = select! {
                join(a) -> n => n.unwrap(),
                join(b) -> n => n.unwrap(),
                join(c) -> n => n.unwrap(),
            };
            (first, a, c)
        });
        joiner.until_waiting();
        gates[1].open();
        let (first, a, c) = joiner.join();
        assert_eq!(first, 1);
        gates.iter().for_each(Gate::open);
        assert_eq!((a.join().unwrap(), c.join().unwrap()), (0, 2));
    });
}

#[test]
fn a_select_of_joins_only_is_no_point() {
    on_workers(|runtime| {
        let go = Gate::new();
        let gate = go.clone();
        let mut child = runtime.spawn(move || {
            gate.pass();
            7
        });
        let joiner = runtime.spawn(move || {
            let got = select! {
                join(child) -> result => result.unwrap(),
            };
            (got, sinew::is_cancelled())
        });
        wait_until(|| joiner.fiber().wait_reason() != WaitReason::None);
        joiner.cancel();
        for _ in 0..100 {
            std::thread::yield_now();
        }
        assert!(!joiner.is_finished());
        go.open();
        assert_eq!(joiner.join().unwrap(), (7, true));
    });
}

#[test]
fn beside_a_join_it_is_the_channel_arm_that_is_told_of_the_cancel() {
    on_workers(|runtime| {
        let go = Gate::new();
        let gate = go.clone();
        let mut child = runtime.spawn(move || gate.pass());
        let rx = never::<u8>();
        let joiner = runtime.spawn(move || {
            let told = select! {
                join(child) -> _ => panic!("it cannot have ended"),
                recv(rx) -> got => got == Err(RecvError::Cancelled),
            };
            (told, child)
        });
        wait_until(|| joiner.fiber().wait_reason() != WaitReason::None);
        joiner.cancel();
        let (told, child) = joiner.join().unwrap();
        assert!(told);
        go.open();
        child.join().unwrap();
    });
}

#[test]
fn beside_a_join_a_cancelled_arm_makes_a_point() {
    on_workers(|runtime| {
        let go = Gate::new();
        let gate = go.clone();
        let mut child = runtime.spawn(move || gate.pass());
        let joiner = runtime.spawn(move || {
            let told = select! {
                join(child) -> _ => false,
                cancelled => true,
            };
            (told, child)
        });
        wait_until(|| joiner.fiber().wait_reason() != WaitReason::None);
        joiner.cancel();
        let (told, child) = joiner.join().unwrap();
        assert!(told);
        go.open();
        child.join().unwrap();
    });
}

#[test]
fn race_cancels_the_handles_that_lose() {
    everywhere(|| {
        let log = Log::new();
        let sleeper = |name| {
            let log = log.clone();
            let handle = sinew::spawn(move || {
                let slept = sinew::sleep(HOUR);
                log.push((name, slept.is_err()));
            });
            wait_until(|| handle.fiber().wait_reason() == WaitReason::Sleep);
            handle
        };
        let (mut one, mut two) = (sleeper("one"), sleeper("two"));
        let mut quick = sinew::spawn(|| 4);
        let won = race! {
            join(one) -> _ => panic!("an hour is over"),
            join(quick) -> result => result.unwrap(),
            join(two) -> _ => panic!("an hour is over"),
        };
        assert_eq!(won, 4);
        wait_until(|| log.len() == 2);
        let mut log = log.take();
        log.sort_unstable();
        assert_eq!(log, [("one", true), ("two", true)]);
    });
}

#[test]
fn a_message_that_wins_a_race_cancels_the_handles_too() {
    everywhere(|| {
        let mut sleeper = sinew::spawn(|| sinew::sleep(HOUR).is_err());
        wait_until(|| sleeper.fiber().wait_reason() == WaitReason::Sleep);
        let fiber = sleeper.fiber();
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        race! {
            join(sleeper) -> _ => panic!("an hour is over"),
            recv(rx) -> got => assert_eq!(got, Ok(1)),
        }
        wait_until(|| fiber.is_finished());
        let mut sleeper = sinew::spawn(|| sinew::sleep(HOUR).is_err());
        wait_until(|| sleeper.fiber().wait_reason() == WaitReason::Sleep);
        let fiber = sleeper.fiber();
        race! {
            join(sleeper) -> _ => panic!("an hour is over"),
            default(MS) => {}
        }
        wait_until(|| fiber.is_finished());
    });
}

#[test]
fn a_race_s_winner_is_not_cancelled() {
    everywhere(|| {
        let mut winner = sinew::spawn(sinew::is_cancelled);
        let was_cancelled = race! {
            join(winner) -> result => result.unwrap(),
            default(HOUR) => panic!("timeout"),
        };
        assert!(!was_cancelled);
    });
}
