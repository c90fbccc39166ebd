//! Lines of the program, and lines of this crate.
//!
//! A wait notes the line that called it, by `#[track_caller]`. Where that line is lost on the way
//! (a call through a `dyn Read`, a closure) what is found in its place is a line of this crate. It
//! would tell nobody anything, so reports leave it out.

use std::panic::Location;

/// Whether a line is one of this crate's.
///
/// Never in the crate's own unit tests, which are in its own files.
pub(crate) fn is_ours(at: &Location<'_>) -> bool {
    let sources = file!().strip_suffix("fiber/place.rs");
    !cfg!(test) && sources.is_some_and(|sources| at.file().starts_with(sources))
}
