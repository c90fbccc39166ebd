//! Keeping requests out.

use crate::fiber::cancel::{Frame, FrameKind, Owner};
use crate::wait::chain::{self, LinkedFrame, Strand};

/// Runs `f` so that requests from outside are not seen in it.
///
/// What was cancelled before, or is meanwhile, goes on being so: the first point
/// after the shield says it. Limits, scopes and tokens *inside* of `f` work as ever.
/// Shields nest without limit. It shields what runs in `f` on this fiber; what `f` spawns
/// into a scope around it is a child of that, and not shielded.
///
/// ```
/// sinew::run(|| {
///     sinew::current().cancel();
///     let saved = sinew::shield(|| {
///         sinew::checkpoint()?; // not cancelled in here
///         Ok::<_, sinew::Cancelled>("saved")
///     });
///     assert_eq!(saved, Ok("saved"));
///     assert_eq!(sinew::checkpoint(), Err(sinew::Cancelled));
/// });
/// ```
pub fn shield<T>(f: impl FnOnce() -> T) -> T {
    struct Look(Owner);
    impl Drop for Look {
        fn drop(&mut self) {
            // SAFETY: the frame of this owner was unlinked just before: nothing ran since.
            unsafe { chain::shield_was_left(self.0) };
        }
    }
    let strand = Strand::current();
    let frame = Frame::new(strand.owner(), FrameKind::Shield, None);
    // Dropped in reverse order: first the frame goes, then it looks.
    let _look = Look(strand.owner());
    // SAFETY: both end with this call.
    let _linked = unsafe { LinkedFrame::new(&frame) };
    f()
}
