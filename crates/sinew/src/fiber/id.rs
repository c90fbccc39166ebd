//! Which fiber: a number that is used once.

use std::fmt;

/// Identifies a fiber; never reused within a process.
///
/// The number tells where the fiber's control block is and how often that place
/// was used, so the first fibers of a process have large numbers that differ
/// little.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiberId(u64);

impl FiberId {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// How messages call the fiber.
    pub(crate) fn with_name(self, name: Option<&str>) -> String {
        match name {
            Some(name) => format!("'{name}' (id {self})"),
            None => format!("with id {self}"),
        }
    }

    /// The number itself, as messages and reports show it.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for FiberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FiberId({})", self.0)
    }
}

impl fmt::Display for FiberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
