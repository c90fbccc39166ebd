//! Cleaning up, however it ends.

use super::shield::shield;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `body`, then `cleanup`, once, whether `body` returned or panicked, and
/// whether or not it was cancelled; answers what `body` returned.
///
/// `cleanup` is [shielded](crate::shield): it may wait, lock and do I/O. It does not
/// run while unwinding: a panic of `body` is caught, and goes on after it. Of nested
/// ones the innermost runs first.
///
/// A fiber that was cancelled before it ran does not run `body`, and so has nothing
/// to clean up. With `panic = "abort"` a panic ends the process before `cleanup`.
///
/// # Panics
///
/// If `body` or `cleanup` does. If both do it is `body`'s panic that goes on; the
/// other was reported by the panic hook.
///
/// ```
/// use std::time::Duration;
/// use sinew::sync::Event;
///
/// sinew::run(|| {
///     let (begun, cleaned) = (Event::new(), Event::new());
///     sinew::scope(|s| {
///         let worker = s.spawn(|| {
///             sinew::finally(
///                 || {
///                     begun.set();
///                     sinew::sleep(Duration::from_secs(3600))
///                 },
///                 || {
///                     sinew::sleep(Duration::from_millis(1)).unwrap(); // may wait
///                     cleaned.set();
///                 },
///             )
///         });
///         begun.wait().unwrap();
///         worker.cancel();
///         assert_eq!(worker.join().unwrap(), Err(sinew::Cancelled));
///     });
///     assert!(cleaned.is_set());
/// });
/// ```
pub fn finally<T>(body: impl FnOnce() -> T, cleanup: impl FnOnce()) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let cleaned = catch_unwind(AssertUnwindSafe(|| shield(cleanup)));
    match (outcome, cleaned) {
        (Ok(value), Ok(())) => value,
        (Ok(value), Err(panic)) => {
            // Its drop may panic as well, which would hide the first.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(value)));
            forget_panic(dropped);
            resume_unwind(panic)
        }
        (Err(panic), cleaned) => {
            forget_panic(cleaned);
            resume_unwind(panic)
        }
    }
}

/// The hook has told of it; dropping its payload may panic.
fn forget_panic(outcome: std::thread::Result<()>) {
    if let Err(payload) = outcome {
        std::mem::forget(payload);
    }
}
