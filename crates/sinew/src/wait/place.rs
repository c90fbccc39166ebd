//! The line of the program that waits, where `#[track_caller]` cannot see it.
//!
//! TLS calls its socket through a `dyn Read`, by way of rustls. A method that is called so takes
//! its own definition for its caller. So who is about to make such calls leaves a [`Hint`] with
//! the running fiber, and a socket whose caller is its own definition asks for that ([`seen`]).
//! On a plain thread there is nothing to hint at: its waits have no place.

use crate::fiber::place::is_ours;
use crate::sched::switch;
use std::panic::Location;

/// A line of the program.
pub(crate) type Place = &'static Location<'static>;

/// Names the line on whose behalf this fiber waits, until it is dropped.
///
/// It keeps no pointer to the fiber: if a coroutine of another crate takes it to another one,
/// that one has a wrong hint for a while, and nothing else happens.
#[must_use = "the hint is gone when this is dropped"]
pub(crate) struct Hint {
    before: Option<Place>,
}

impl Hint {
    /// If `at` is a line of this crate, the hint that there was stays.
    pub(crate) fn new(at: Place) -> Self {
        let before = swap(|before| if is_ours(at) { before } else { Some(at) });
        Self { before }
    }
}

impl Drop for Hint {
    fn drop(&mut self) {
        swap(|_| self.before);
    }
}

/// Changes the hint of the running fiber; returns what it was.
fn swap(change: impl FnOnce(Option<Place>) -> Option<Place>) -> Option<Place> {
    let block = switch::running()?;
    // SAFETY: the running fiber is alive, and has a root.
    let hint = unsafe { &*block.as_ref().root() }.hint();
    let before = hint.get();
    hint.set(change(before));
    before
}

/// The line that waits: `at`, unless that is `line`, where the function is defined that asks. Then
/// it was called through a `dyn`, and the hint is better.
#[inline]
pub(crate) fn seen(at: Place, line: u32) -> Place {
    // The program may have the same line, in another file: then the hint is none, or as good.
    if at.line() == line { hinted(at) } else { at }
}

#[cold]
fn hinted(at: Place) -> Place {
    swap(|hint| hint).filter(|_| is_ours(at)).unwrap_or(at)
}
