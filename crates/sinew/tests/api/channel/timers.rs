//! `after`, `at`, `tick` and `never`.

use super::{HOUR, MS, NO_TIME, Scene, assert_fair, everywhere, scenes};
use crate::harness::{in_fibers, wait_until, watch};
use sinew::channel::{
    Receiver, RecvTimeoutError, Select, TryRecvError, after, at, bounded, never, tick, unbounded,
};
use sinew::select;
use sinew::time::Instant;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn after_yields_once_and_not_before_its_time() {
    everywhere(|| {
        let start = Instant::now();
        let rx = after(5 * MS);
        let due = rx.recv().unwrap();
        let now = Instant::now();
        assert!(
            due >= start + 5 * MS && due <= now,
            "{start:?} {due:?} {now:?}"
        );
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(rx.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
    });
}

#[test]
fn after_has_room_for_its_one_instant() {
    everywhere(|| {
        let rx = after(HOUR);
        assert_eq!(rx.capacity(), Some(1));
        assert_eq!((rx.len(), rx.is_empty(), rx.is_full()), (0, true, false));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        let rx = after(MS);
        wait_until(|| !rx.is_empty());
        assert_eq!((rx.len(), rx.is_full()), (1, true));
        assert!(rx.try_recv().is_ok());
        assert_eq!((rx.len(), rx.is_empty(), rx.is_full()), (0, true, false));
    });
}

#[test]
fn at_yields_the_instant_it_was_given() {
    everywhere(|| {
        let due = Instant::now() + 5 * MS;
        let rx = at(due);
        assert_eq!(rx.capacity(), Some(1));
        assert_eq!(rx.recv(), Ok(due));
        assert!(Instant::now() >= due);
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn what_is_due_already_is_there_at_once() {
    everywhere(|| {
        assert!(after(NO_TIME).try_recv().is_ok());
        assert!(tick(NO_TIME).try_recv().is_ok());
        let past = Instant::now();
        assert_eq!(at(past).try_recv(), Ok(past));
        assert_eq!(at(past).recv_timeout(NO_TIME), Ok(past));
    });
}

#[test]
fn waits_for_a_timer_can_time_out_before_it() {
    everywhere(|| {
        for rx in [after(HOUR), at(Instant::now() + HOUR), tick(HOUR), never()] {
            let start = Instant::now();
            assert_eq!(rx.recv_timeout(3 * MS), Err(RecvTimeoutError::Timeout));
            assert!(start.elapsed() >= 3 * MS);
            let due = Instant::now() + MS;
            assert_eq!(rx.recv_deadline(due), Err(RecvTimeoutError::Timeout));
            assert!(Instant::now() >= due);
        }
    });
}

#[test]
fn a_timeout_that_ends_after_the_timer_does_not_expire() {
    everywhere(|| {
        let due = Instant::now() + 3 * MS;
        assert_eq!(at(due).recv_timeout(HOUR), Ok(due));
        assert!(after(3 * MS).recv_timeout(HOUR).unwrap() >= due);
        let ticks = tick(MS);
        for _ in 0..3 {
            assert!(ticks.recv_timeout(HOUR).is_ok());
        }
    });
}

#[test]
fn times_beyond_the_clock_s_range_never_come() {
    everywhere(|| {
        for rx in [after(Duration::MAX), tick(Duration::MAX)] {
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(rx.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
        }
    });
}

#[test]
fn ticks_are_a_period_apart_at_least() {
    everywhere(|| {
        let start = Instant::now();
        let ticks = tick(2 * MS);
        let mut last = start;
        for _ in 0..5 {
            let due = ticks.recv().unwrap();
            assert!(due - last >= 2 * MS, "{due:?} after {last:?}");
            assert!(Instant::now() >= due);
            last = due;
        }
    });
}

#[test]
fn ticks_that_nobody_takes_do_not_pile_up() {
    everywhere(|| {
        let ticks = tick(MS);
        assert_eq!(ticks.capacity(), Some(1));
        assert_eq!((ticks.len(), ticks.is_full()), (0, false));
        sinew::sleep(10 * MS).unwrap();
        assert_eq!((ticks.len(), ticks.is_full()), (1, true));
        let late = ticks.try_recv().unwrap();
        let resumed = Instant::now();
        assert!(late < resumed);
        // Of the nine that were missed none comes: the next is a new one.
        assert!(ticks.recv().unwrap() > late + 8 * MS);
    });
}

/// Five on both sides share one timer: counts what each got, until `end`.
fn share(scene: Scene<'_>, timer: Receiver<Instant>, end: usize) -> usize {
    let got = Arc::new(AtomicUsize::new(0));
    let (stop, stopped) = bounded::<()>(0);
    let all: Vec<_> = (0..5)
        .map(|n| {
            let (timer, stopped, got) = (timer.clone(), stopped.clone(), got.clone());
            scene.side(n, move || {
                loop {
                    select! {
                        recv(timer) -> due => {
                            assert!(due.unwrap() <= Instant::now());
                            got.fetch_add(1, Ordering::SeqCst);
                        }
                        recv(stopped) -> _ => break,
                    }
                }
            })
        })
        .collect();
    wait_until(|| got.load(Ordering::SeqCst) >= end);
    drop(stop);
    for each in all {
        each.join();
    }
    got.load(Ordering::SeqCst)
}

#[test]
fn of_many_that_wait_for_one_timer_one_gets_it() {
    scenes(|scene| {
        assert_eq!(share(scene, after(2 * MS), 1), 1);
        assert_eq!(share(scene, at(Instant::now() + 2 * MS), 1), 1);
    });
}

#[test]
fn many_that_share_ticks_get_no_more_than_there_are() {
    scenes(|scene| {
        let start = Instant::now();
        let got = share(scene, tick(2 * MS), 5);
        let most = start.elapsed().as_nanos() / (2 * MS).as_nanos();
        assert!(got >= 5 && got as u128 <= most, "{got} of {most}");
    });
}

#[test]
fn a_timer_is_shared_by_its_clones_in_turn() {
    everywhere(|| {
        let one = after(MS);
        let two = one.clone();
        assert!(one.recv().is_ok());
        assert_eq!(two.try_recv(), Err(TryRecvError::Empty));
        let one = tick(MS);
        let two = one.clone();
        let first = one.recv().unwrap();
        assert!(two.recv().unwrap() >= first + MS);
    });
}

#[test]
fn a_select_waits_for_the_earliest_of_its_timers() {
    everywhere(|| {
        let (_tx, rx) = bounded::<()>(0);
        let start = Instant::now();
        let (long, short) = (after(HOUR), after(3 * MS));
        select! {
            recv(long) -> _ => panic!("an hour is over"),
            recv(short) -> due => assert!(due.unwrap() >= start + 3 * MS),
            recv(rx) -> _ => panic!("nobody sent"),
            recv(never::<u8>()) -> _ => panic!("never is now"),
        }
        assert!(start.elapsed() >= 3 * MS);
        select! {
            recv(short) -> _ => panic!("twice"),
            default(2 * MS) => {}
        }
        select! {
            recv(short) -> _ => panic!("twice"),
            default => {}
        }
    });
}

#[test]
fn a_select_s_own_timeout_and_its_timers_do_not_disturb_each_other() {
    everywhere(|| {
        let start = Instant::now();
        select! {
            recv(after(2 * MS)) -> due => assert!(due.is_ok()),
            default(HOUR) => panic!("an hour is over"),
        }
        assert!(start.elapsed() >= 2 * MS);
        let late = after(HOUR);
        select! {
            recv(late) -> _ => panic!("an hour is over"),
            default(2 * MS) => {}
        }
        let mut select = Select::new();
        let index = select.recv(&late);
        assert!(select.select_timeout(MS).is_err());
        assert!(select.ready_timeout(MS).is_err());
        select.remove(index);
        let ticks = tick(MS);
        let index = select.recv(&ticks);
        let operation = select.select_timeout(HOUR).unwrap();
        assert_eq!(operation.index(), index);
        assert!(operation.recv(&ticks).is_ok());
    });
}

#[test]
fn a_message_wins_against_a_timer_that_is_far_off() {
    scenes(|scene| {
        let (tx, rx) = unbounded();
        let receiver = scene.left(move || {
            let timeout = after(HOUR);
            select! {
                recv(rx) -> got => got.unwrap(),
                recv(timeout) -> _ => panic!("an hour is over"),
            }
        });
        receiver.until_waiting();
        scene.right(move || tx.send(4).unwrap()).join();
        assert_eq!(receiver.join(), 4);
    });
}

#[test]
fn a_timer_is_ready_when_it_is_due_and_stays_so_until_taken() {
    everywhere(|| {
        let due = Instant::now() + 3 * MS;
        let (one, two) = (at(due), tick(HOUR));
        let mut select = Select::new();
        let first = select.recv(&one);
        select.recv(&two);
        assert_eq!(select.ready(), first);
        assert!(Instant::now() >= due);
        assert_eq!(select.try_ready(), Ok(first));
        assert_eq!(select.ready_timeout(NO_TIME), Ok(first));
        assert!(one.try_recv().is_ok());
        assert!(select.try_ready().is_err());
        assert!(select.ready_timeout(MS).is_err());
    });
}

#[test]
fn timers_in_many_selects_with_defaults_lose_no_tick_and_make_none() {
    in_fibers(|| {
        let timeout = after(20 * MS);
        let mut fired = 0;
        let start = Instant::now();
        while fired == 0 || start.elapsed() < 25 * MS {
            select! {
                recv(timeout) -> due => {
                    assert!(due.is_ok());
                    fired += 1;
                }
                default => sinew::yield_now(),
            }
        }
        assert_eq!(fired, 1);
    });
}

#[test]
fn selects_are_fair_to_timers() {
    let _watch = watch();
    const ROUNDS: usize = 10_000;
    let (tx, rx) = unbounded();
    for _ in 0..ROUNDS {
        tx.send(()).unwrap();
    }
    let mut counts = [0; 4];
    for _ in 0..ROUNDS {
        select! {
            recv(after(NO_TIME)) -> _ => counts[0] += 1,
            recv(tick(NO_TIME)) -> _ => counts[1] += 1,
            recv(rx) -> _ => counts[2] += 1,
            recv(at(Instant::now())) -> _ => counts[3] += 1,
        }
    }
    assert_fair(&counts);
}

#[test]
fn selects_are_fair_to_arms_with_the_same_timer() {
    in_fibers(|| {
        let ticks = tick(NO_TIME);
        let mut counts = [0; 5];
        for _ in 0..10_000 {
            select! {
                recv(ticks) -> _ => counts[0] += 1,
                recv(ticks) -> _ => counts[1] += 1,
                recv(ticks) -> _ => counts[2] += 1,
                recv(ticks) -> _ => counts[3] += 1,
                recv(ticks) -> _ => counts[4] += 1,
            }
        }
        assert_fair(&counts);
    });
}

#[test]
fn never_has_neither_messages_nor_room_nor_an_end() {
    everywhere(|| {
        let rx = never::<u8>();
        assert_eq!(rx.capacity(), Some(0));
        assert_eq!((rx.len(), rx.is_empty(), rx.is_full()), (0, true, true));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(rx.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
        assert_eq!(rx.try_iter().next(), None);
        let (tx, other) = unbounded();
        tx.send(1).unwrap();
        select! {
            recv(rx) -> _ => panic!("never is now"),
            recv(other) -> got => assert_eq!(got, Ok(1)),
        }
    });
}

#[test]
fn never_stands_for_an_arm_that_is_switched_off() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        let off: Option<&Receiver<i32>> = black_box(None);
        select! {
            recv(off.unwrap_or(&never())) -> _ => panic!("it is off"),
            default => {}
        }
        let on = black_box(Some(&rx));
        select! {
            recv(on.unwrap_or(&never())) -> got => assert_eq!(got, Ok(1)),
            default => panic!("it is on"),
        }
        // A limited number of ticks, then none.
        let mut ticks = (Some(tick(MS)), 3);
        let mut taken = 0;
        loop {
            select! {
                recv(ticks.0.as_ref().unwrap_or(&never())) -> due => {
                    assert!(due.is_ok());
                    taken += 1;
                    ticks.1 -= 1;
                    if ticks.1 == 0 {
                        ticks.0 = None;
                    }
                }
                default(8 * MS) => if ticks.0.is_none() { break },
            }
        }
        assert_eq!(taken, 3);
    });
}

#[test]
fn same_channel_tells_timers_apart() {
    let _watch = watch();
    let (one, two) = (after(HOUR), after(HOUR));
    assert!(one.same_channel(&one.clone()) && !one.same_channel(&two));
    let (three, four) = (tick(HOUR), tick(HOUR));
    assert!(three.same_channel(&three.clone()) && !three.same_channel(&four));
    assert!(!one.same_channel(&three));
    let five = never();
    assert!(five.same_channel(&five.clone()) && !five.same_channel(&one));
    // There is nothing by which two of them could differ.
    assert!(never::<u8>().same_channel(&never()));
    let (_tx, rx) = bounded(1);
    assert!(!rx.same_channel(&one) && !one.same_channel(&rx));
}

#[test]
fn a_timer_may_be_made_here_and_waited_for_elsewhere() {
    scenes(|scene| {
        let due = Instant::now() + 2 * MS;
        let rx = at(due);
        let waiter = scene.left(move || rx.recv());
        let made = scene.right(|| after(2 * MS)).join();
        assert_eq!(waiter.join(), Ok(due));
        assert!(made.recv().is_ok());
    });
}

#[test]
fn a_thousand_timers_dropped_unawaited_leave_nothing_behind() {
    everywhere(|| {
        for i in 0..1_000 {
            drop(after(HOUR + i * MS));
            let ticks = tick(HOUR);
            assert_eq!(ticks.try_recv(), Err(TryRecvError::Empty));
        }
        assert!(after(MS).recv().is_ok());
    });
}
