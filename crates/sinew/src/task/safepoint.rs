//! Sharing the worker in long computations, and refusing to.

use crate::sched::switch;

/// Yields if this fiber has used up its quantum; else a call, two loads and a
/// branch.
///
/// The runtime's monitor raises a flag when a fiber has run for 10 ms (see
/// [`RuntimeBuilder::quantum`](crate::RuntimeBuilder::quantum)). Put this into
/// long loops, or let [`#[sinew::preemptible]`](macro@crate::preemptible) do so.
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
    struct Leave(std::ptr::NonNull<crate::fiber::Block>);
    impl Drop for Leave {
        fn drop(&mut self) {
            // SAFETY: the fiber could not leave this closure's frame, so it runs.
            let depth = unsafe { self.0.as_ref() }.no_suspend();
            depth.set(depth.get() - 1);
        }
    }
    let _leave = switch::running().map(|block| {
        // SAFETY: the running fiber is alive.
        let depth = unsafe { block.as_ref() }.no_suspend();
        let deeper = depth.get().checked_add(1);
        depth.set(deeper.expect("no_suspend nested 65535 deep"));
        Leave(block)
    });
    f()
}
