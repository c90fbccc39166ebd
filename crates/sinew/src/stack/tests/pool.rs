//! What a runtime relies on: pool and hot stacks together.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;

use corosensei::{Coroutine, CoroutineResult};

use super::*;
use crate::stack::*;

#[test]
fn a_coroutine_runs_on_a_stack_and_leaves_it_for_the_next() {
    let mut hot = HotStacks::new(auto(), class(64 * KIB));
    let stack = hot.take(class(64 * KIB)).unwrap();
    let base = stack.base();
    let mut coroutine = Coroutine::with_stack(stack, |yielder, n: u32| {
        let m = yielder.suspend(n + 1);
        n + m
    });
    let CoroutineResult::Yield(2) = coroutine.resume(1) else {
        panic!()
    };
    let CoroutineResult::Return(11) = coroutine.resume(10) else {
        panic!()
    };
    assert_eq!(hot.give(coroutine.into_stack()), Given::Kept);
    let again = hot.take(class(64 * KIB)).unwrap();
    assert_eq!(again.base(), base, "the last in is the first out");
    assert_eq!(hot.give(again), Given::Kept);
}

#[test]
fn stacks_of_all_classes_are_apart_from_each_other() {
    let mut hot = HotStacks::new(auto(), class(64 * KIB));
    let mut stacks = Vec::new();
    for round in 0..40 {
        for bytes in [
            16 * KIB,
            64 * KIB,
            256 * KIB,
            1024 * KIB,
            128 << 20,
            1 << 30,
        ] {
            if bytes <= 1 << 20 || round < 2 {
                stacks.push(hot.take(class(bytes)).unwrap());
            }
        }
    }
    stacks.iter().for_each(touch);
    let mut ranges: Vec<_> = stacks
        .iter()
        .map(|stack| (stack.limit().get(), stack.base().get()))
        .collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    give_all(&mut hot, stacks);
}

#[test]
fn forced_mprotect_stacks_work_and_are_reported() {
    let pool = pool(GuardChoice::ForceMprotect, None);
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let stacks = take(&mut hot, class(64 * KIB), 100);
    stacks.iter().for_each(touch);
    assert_eq!(pool.stats().guard, GuardKind::Mprotect);
    assert_eq!(pool.stats().stacks_in_use, 100);
    give_all(&mut hot, stacks);
    drop(hot);
    let _ = pool.trim(Trim::All);
    assert_eq!(pool.stats().stacks_in_use, 0);
}

#[test]
fn refills_double_up_to_64_and_shrink_when_stacks_come_back() {
    let pool = auto();
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let mut stacks = Vec::new();
    let mut refills = Vec::new();
    for _ in 0..400 {
        if hot.count() == 0 {
            stacks.push(hot.take(class(64 * KIB)).unwrap());
            refills.push(hot.count() + 1);
        } else {
            stacks.push(hot.take(class(64 * KIB)).unwrap());
        }
    }
    assert_eq!(refills[..8], [1, 2, 4, 8, 16, 32, 64, 64]);
    give_all(&mut hot, stacks);
    assert!(hot.count() <= 128, "an overflow goes to the pool");
    // 400 came back and overflowed several times: the batch is small again.
    let before = hot.count();
    let stacks = take(&mut hot, class(64 * KIB), before + 1);
    assert!(hot.count() < 32, "{}", hot.count());
    give_all(&mut hot, stacks);
}

#[test]
fn stacks_in_use_and_free_are_told_apart() {
    let pool = auto();
    let mut hot = HotStacks::new(pool.clone(), class(256 * KIB));
    let stacks = take(&mut hot, class(256 * KIB), 5);
    let stats = pool.stats();
    // Refills of 1, 2 and 4 stacks.
    assert_eq!((stats.stacks_in_use, stats.stacks_free), (5, 2));
    assert_eq!(stats.reserved_bytes, 64 << 20);
    give_all(&mut hot, stacks);
    assert_eq!(
        (pool.stats().stacks_in_use, pool.stats().stacks_free),
        (0, 7)
    );
    assert_eq!(hot.count(), 7);
    let _ = hot.flush();
    assert!(hot.count() <= 4);
    assert_eq!(
        (pool.stats().stacks_in_use, pool.stats().stacks_free),
        (0, 7)
    );
}

#[test]
fn at_the_limit_the_error_names_it_and_a_returned_stack_is_had_again() {
    let pool = pool(GuardChoice::Auto, Some(3));
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let mut stacks = take(&mut hot, class(64 * KIB), 3);
    let error = hot.take(class(64 * KIB)).unwrap_err();
    assert!(error.to_string().contains("max_stacks = 3"), "{error}");
    assert_eq!(error, hot.take(class(64 * KIB)).unwrap_err());
    assert_eq!(hot.give(stacks.pop().unwrap()), Given::Kept);
    stacks.push(hot.take(class(64 * KIB)).unwrap());
    assert!(hot.take(class(64 * KIB)).is_err());
    give_all(&mut hot, stacks);
}

#[test]
fn a_stack_that_somebody_waits_for_goes_straight_to_the_pool() {
    let pool = pool(GuardChoice::Auto, Some(4));
    let mut rich = HotStacks::new(pool.clone(), class(64 * KIB));
    let mut poor = HotStacks::new(pool.clone(), class(64 * KIB));
    let mut stacks = take(&mut rich, class(64 * KIB), 4);
    assert_eq!(rich.give(stacks.pop().unwrap()), Given::Kept); // hot before anybody starves
    assert!(poor.take(class(64 * KIB)).is_err());
    pool.begin_starving();
    assert_eq!(rich.give(stacks.pop().unwrap()), Given::Wanted);
    assert_eq!(rich.count(), 0, "the hot one goes along");
    let got = [
        poor.take(class(64 * KIB)).unwrap(),
        poor.take(class(64 * KIB)).unwrap(),
    ];
    pool.end_starving();
    assert_eq!(rich.give(stacks.pop().unwrap()), Given::Kept);
    pool.begin_starving();
    assert_eq!(rich.flush(), Given::Wanted);
    assert_eq!(rich.flush(), Given::Kept, "nothing more to bring");
    pool.end_starving();
    give_all(&mut poor, got.into());
    give_all(&mut rich, stacks);
}

#[test]
fn a_starving_worker_always_hears_of_the_last_stack() {
    let pool = pool(GuardChoice::Auto, Some(1));
    for _ in 0..500 {
        let mut rich = HotStacks::new(pool.clone(), class(64 * KIB));
        let stack = rich.take(class(64 * KIB)).unwrap();
        let (wake_rich, woken_rich) = mpsc::channel();
        let (wake_poor, woken_poor) = mpsc::channel();
        let pool = &pool;
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut poor = HotStacks::new(pool.clone(), class(64 * KIB));
                pool.begin_starving();
                let stack = poor.take(class(64 * KIB)).unwrap_or_else(|_| {
                    let _ = wake_rich.send(()); // it may have given and gone
                    woken_poor.recv().unwrap();
                    poor.take(class(64 * KIB)).unwrap()
                });
                pool.end_starving();
                assert_eq!(poor.give(stack), Given::Kept);
            });
            scope.spawn(move || {
                let mut given = rich.give(stack);
                // Woken by the other, or it is gone and needs nothing.
                while given == Given::Kept && woken_rich.recv().is_ok() {
                    given = rich.flush();
                }
                if given == Given::Wanted {
                    let _ = wake_poor.send(());
                }
            });
        });
    }
}

#[test]
fn used_stacks_are_handed_out_before_new_ones() {
    let pool = auto();
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let stacks = take(&mut hot, class(64 * KIB), 300);
    let first: HashSet<_> = stacks.iter().map(Stack::base).collect();
    give_all(&mut hot, stacks);
    drop(hot);
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let stacks = take(&mut hot, class(64 * KIB), 300);
    assert!(stacks.iter().all(|stack| first.contains(&stack.base())));
    give_all(&mut hot, stacks);
}

#[test]
fn wholly_free_slabs_are_unmapped_but_for_a_spare() {
    let pool = auto();
    let mut hot = HotStacks::new(pool.clone(), class(1024 * KIB));
    let slab = 64 << 20;
    let stacks = take(&mut hot, class(1024 * KIB), 5 * 64);
    assert!(pool.stats().reserved_bytes >= 5 * slab);
    assert_eq!(pool.excess(), 0);
    give_all(&mut hot, stacks);
    drop(hot);
    assert!(pool.excess() >= 5 * 64 - 64);
    let _ = pool.trim(Trim::Half);
    let half = pool.stats().reserved_bytes;
    assert!(slab < half && half < 5 * slab, "{half}");
    let _ = pool.trim(Trim::All);
    assert_eq!(pool.excess(), 0);
    assert_eq!(pool.stats().reserved_bytes, slab);
    assert!(pool.stats().stacks_free <= 64);
}

#[test]
fn a_slab_in_use_stays_and_its_free_stacks_lose_their_pages() {
    let pool = auto();
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let mut stacks = take(&mut hot, class(64 * KIB), 2000);
    stacks.iter().for_each(touch);
    let kept = stacks.split_off(1999);
    let lows: Vec<usize> = stacks.iter().map(|stack| stack.guard().end).collect();
    give_all(&mut hot, stacks);
    drop(hot);
    let released = pool.trim(Trim::All).stacks;
    assert!(released >= 1900, "{released}");
    assert_eq!(pool.excess(), 0);
    touch(&kept[0]); // its slab is still there
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let stacks = take(&mut hot, class(64 * KIB), 2000);
    let mut zero = 0;
    for stack in stacks
        .iter()
        .filter(|stack| lows.contains(&stack.guard().end))
    {
        // SAFETY: the word lies in the usable part of a stack that we hold.
        zero += usize::from(unsafe { (stack.guard().end as *const usize).read_volatile() } == 0);
        touch(stack); // the guard did not spread
    }
    assert!(zero >= 900, "{zero} lost their pages");
    give_all(&mut hot, stacks);
    give_all(&mut hot, kept);
}

#[test]
fn half_and_half_again_ends_with_nothing_to_trim() {
    let pool = auto();
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let stacks = take(&mut hot, class(64 * KIB), 3000);
    // One of each slab stays in use, so that none can be unmapped.
    let (held, free): (Vec<_>, Vec<_>) = stacks
        .into_iter()
        .enumerate()
        .partition(|(index, _)| index % 1000 == 999);
    give_all(&mut hot, free.into_iter().map(|(_, stack)| stack).collect());
    drop(hot);
    let mut before = pool.excess();
    assert!(before > 1000);
    for _ in 0..32 {
        let _ = pool.trim(Trim::Half);
        assert!(
            pool.excess() <= before.div_ceil(2) + 1,
            "{} of {before}",
            pool.excess()
        );
        before = pool.excess();
    }
    assert_eq!(pool.excess(), 0);
    assert_eq!(pool.stats().stacks_in_use, held.len());
}

#[test]
fn a_leaked_stack_outlives_its_pool() {
    let pool = auto();
    let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
    let mut stacks = take(&mut hot, class(64 * KIB), 50);
    let leaked = stacks.pop().unwrap();
    give_all(&mut hot, stacks);
    drop(hot);
    drop(pool);
    touch(&leaked);
}

#[test]
fn workers_on_many_threads_never_share_a_stack() {
    let pool = auto();
    thread::scope(|scope| {
        for worker in 1..=4usize {
            let pool = &pool;
            scope.spawn(move || {
                let mut hot = HotStacks::new(pool.clone(), class(64 * KIB));
                let mut random = worker.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mut held: Vec<Stack> = Vec::new();
                for _ in 0..20_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    match random % 64 {
                        0 if worker == 1 => _ = pool.trim(Trim::Half),
                        1 => assert_eq!(hot.flush(), Given::Kept),
                        n if n < 34 && held.len() < 400 => {
                            let bytes = if n == 2 { 16 * KIB } else { 64 * KIB };
                            let stack = hot.take(class(bytes)).unwrap();
                            let word = (stack.base().get() - 16) as *mut usize;
                            // SAFETY: the word lies in a stack that we hold.
                            unsafe { word.write_volatile(worker) };
                            held.push(stack);
                        }
                        _ => {
                            let Some(stack) = held.pop() else { continue };
                            let word = (stack.base().get() - 16) as *mut usize;
                            // SAFETY: as above.
                            assert_eq!(unsafe { word.read_volatile() }, worker);
                            assert_eq!(hot.give(stack), Given::Kept);
                        }
                    }
                }
                give_all(&mut hot, held);
            });
        }
    });
    assert_eq!(pool.stats().stacks_in_use, 0);
}

#[test]
#[should_panic(expected = "a pool it is not from")]
fn a_stack_of_another_pool_is_refused() {
    let mut one = HotStacks::new(auto(), class(64 * KIB));
    let mut other = HotStacks::new(auto(), class(64 * KIB));
    let stack = one.take(class(64 * KIB)).unwrap();
    let _ = other.give(stack);
}
