//! A pair of fences, one of which costs nothing.
//!
//! Two threads that each write one word and then read the other's must not both
//! read the old value. Usually each needs a full fence between the two, which
//! costs as much as a read-modify-write: 6 ns here. If one side is much rarer, it
//! can pay for both: [`heavy`] asks the kernel to make every thread of this
//! process that runs just now execute a full fence (`membarrier`: 0.1 µs if no
//! other thread runs, less than 5 µs if one does), so
//! [`light`] need only keep the compiler from changing the order.
//!
//! Where the kernel does not offer that, `light` is a full fence. A filter of
//! system calls must refuse `membarrier` with an error, not kill the process.
//!
//! Invariant (agreed): `light` is light only after the kernel has registered this
//! process; from then on `heavy` either reaches every thread or says that it did
//! not.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// Whether the kernel has registered this process.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Asks the kernel to serve [`heavy`] in this process; called when a runtime
/// starts.
pub(crate) fn register() {
    if membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) {
        // Release: pairs with `light`.
        REGISTERED.store(true, Ordering::Release);
    }
}

/// The side that is often taken: between its write and its read.
#[inline]
pub(crate) fn light() {
    // Acquire: what we read next is not read before this, or it might be older
    // than a count whose owner found that nobody was registered yet.
    if REGISTERED.load(Ordering::Acquire) {
        // SeqCst: the compiler moves neither of the two across.
        compiler_fence(Ordering::SeqCst);
        return;
    }
    // SeqCst: pairs with the one in `heavy`.
    fence(Ordering::SeqCst);
}

/// The side that is seldom taken: between its write and its read. False if it is
/// not certain that the other side reads what was written: then look again, some
/// time later.
#[cold]
#[must_use = "if it failed, whoever waits for the other side must look again by itself"]
pub(crate) fn heavy() -> bool {
    // SeqCst: pairs with the one in `light`.
    fence(Ordering::SeqCst);
    let reach_all = || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    // Always tried: others may be told to be light while we are here. If the
    // kernel does not serve us though it has registered us (a filter of system
    // calls was installed since), say so.
    reach_all()
        || {
            register();
            reach_all()
        }
        // Relaxed: if nobody could register us then nobody is light.
        || !REGISTERED.load(Ordering::Relaxed)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes no addresses.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::{heavy, light, register};
    use std::sync::atomic::{AtomicU32, Ordering};

    const ROUNDS: usize = 20_000;

    /// One round's word of one side, on a cache line of its own.
    #[derive(Default)]
    #[repr(align(64))]
    struct Word(AtomicU32);

    impl Word {
        fn many() -> Vec<Self> {
            (0..ROUNDS).map(|_| Self::default()).collect()
        }
    }

    /// Says that this side begins a round, and waits until the other does.
    fn meet(mine: &AtomicU32, others: &AtomicU32, round: usize) {
        let round = round as u32 + 1;
        mine.store(round, Ordering::SeqCst);
        let mut looks = 0;
        while others.load(Ordering::SeqCst) < round {
            looks += 1;
            if looks % 1000 == 0 {
                std::thread::yield_now(); // there may be one CPU for both
            }
        }
    }

    /// Without the heavy fence, or without both, 14 to 63 rounds of 20 000 fail on
    /// two CPUs.
    #[test]
    fn of_two_who_write_and_then_look_one_sees_the_other() {
        register();
        let (often, seldom) = (Word::many(), Word::many());
        let (a, b) = (AtomicU32::new(0), AtomicU32::new(0));
        let side = |mine: &[Word], others: &[Word], at: [&AtomicU32; 2], fence: &dyn Fn()| {
            (0..ROUNDS)
                .map(|round| {
                    meet(at[0], at[1], round);
                    mine[round].0.store(1, Ordering::Relaxed);
                    fence();
                    others[round].0.load(Ordering::Relaxed)
                })
                .collect::<Vec<u32>>()
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| side(&often, &seldom, [&a, &b], &light));
            let other = side(&seldom, &often, [&b, &a], &|| assert!(heavy()));
            (one.join().unwrap(), other)
        });
        let missed = (0..ROUNDS).filter(|&round| one[round] + other[round] == 0);
        assert_eq!(missed.count(), 0);
    }
}
