//! Sharing the worker in long computations, and refusing to.

use crate::fiber::IN_HOOK;
use crate::sched::switch;

/// Lets others run if this fiber has computed for long; else a call, two loads and a
/// branch.
///
/// The runtime's monitor raises a flag when a fiber has run for more than a
/// millisecond, or for 5 to 10 ms if it is the first to do so among fibers with short
/// turns. The worker then fires timers, takes in what sockets and other threads
/// have for it, and runs those of this priority or above that are ready. This fiber is
/// *preempted*: it goes behind them, however many they are. Of the preempted fibers of a
/// level one has a turn whenever all were passed over for about 4 ms. If no fiber waits
/// this one goes on at once, until it has used up its quantum
/// (10 ms, see [`RuntimeBuilder::quantum`](crate::RuntimeBuilder::quantum)), when the
/// next preempted fiber has its turn. With `strict_order`, and on a virtual clock, only
/// the quantum counts, and the fiber goes to the end of the queue.
///
/// Put this into long loops, or let
/// [`#[sinew::preemptible]`](macro@crate::preemptible) do so.
///
/// ```
/// sinew::run(|| {
///     let mut sum = 0u64;
///     for i in 0..100_000 {
///         sinew::safepoint();
///         sum += i;
///     }
///     assert_eq!(sum, 4_999_950_000);
/// });
/// ```
#[inline]
pub fn safepoint() {
    switch::safepoint();
}

/// Runs `f` and makes any attempt to suspend inside it a panic.
///
/// For code that must not be interleaved with other fibers of this worker:
/// between two calls into a foreign library that keeps state per thread, say.
/// Safepoints inside do nothing. On a plain thread `f` just runs.
///
/// It belongs to the fiber that calls it. If `f` runs on the stack of a coroutine of another
/// library, which is suspended in there, the fiber stays as it is until `f` has ended on this
/// same fiber; if another fiber resumes the coroutine, that one is not concerned.
///
/// # Panics
///
/// At the place inside `f` that would have suspended.
///
/// ```
/// sinew::run(|| {
///     assert_eq!(sinew::no_suspend(|| 1 + 1), 2);
///     let refused = std::panic::catch_unwind(|| sinew::no_suspend(sinew::yield_now));
///     assert!(refused.is_err());
/// });
/// ```
pub fn no_suspend<T>(f: impl FnOnce() -> T) -> T {
    /// Has the id of the fiber that it was entered on.
    struct Leave(u64);
    impl Drop for Leave {
        fn drop(&mut self) {
            let Some(block) = switch::running() else {
                return;
            };
            // SAFETY: the running fiber is alive.
            let fiber = unsafe { block.as_ref() };
            // By its id, which is never reused: the other may have ended.
            if fiber.id() == self.0 {
                let depth = fiber.no_suspend();
                // Zero once the fiber's closure is over, or the hook in which it began.
                if depth.get() & !IN_HOOK > 0 {
                    depth.set(depth.get() - 1);
                }
            }
        }
    }
    let _leave = switch::running().map(|block| {
        // SAFETY: the running fiber is alive.
        let fiber = unsafe { block.as_ref() };
        let depth = fiber.no_suspend();
        let deepest = depth.get() & !IN_HOOK == IN_HOOK - 1;
        assert!(!deepest, "no_suspend nested 32767 deep");
        depth.set(depth.get() + 1);
        Leave(fiber.id())
    });
    f()
}
