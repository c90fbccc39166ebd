//! Which fiber: a number that is used once.
//!
//! An id is the slot of the fiber's control block and the slot's generation; the
//! registry gives them out (`fiber::slab`).
//!
//! ```text
//!  63                       28 27                 0
//! +---------------------------+--------------------+
//! |      generation (36)      |   slot number (28)  |
//! +---------------------------+--------------------+
//! ```
//!
//! Threads have a proxy in place of a block. Their ids have the top bit, and no
//! fiber's has: that would be its slot's generation 2³⁵.
//!
//! Invariant (not zero): the first generation of a slot is 1.

use std::fmt;
use std::num::NonZeroU64;

pub(super) const SLOT_BITS: u32 = 28;
pub(super) const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// The generation that a slot begins with.
pub(super) const FIRST_GENERATION: u64 = 1;
/// The last generation of a slot: the next would have [`THREAD`].
pub(super) const LAST_GENERATION: u64 = (THREAD >> SLOT_BITS) - 1;
/// Set in the ids of threads, and of no fiber.
pub(super) const THREAD: u64 = 1 << 63;

/// Identifies a fiber, or a plain thread that stands in for one; never reused within
/// a process.
///
/// Displayed, it is short enough to be read aloud: `17` is the first fiber that used
/// slot 17 of the process' table of fibers, `17.3` one that used it later. The second
/// number grows with each use, but may leave some out. The stand-in of a thread is
/// `t0`, `t1` and so on.
///
/// An `Option<FiberId>` is not larger than a `FiberId`.
///
/// # Examples
///
/// ```
/// let (one, other) = sinew::run(|| {
///     let id = || sinew::current().id();
///     let other = sinew::spawn(id);
///     (id(), other.join().unwrap())
/// });
/// assert_ne!(one, other);
/// assert_ne!(one.to_string(), other.to_string());
/// assert!(one.to_string().len() < 12);
///
/// // This is no fiber, but a thread.
/// assert!(sinew::current().id().to_string().starts_with('t'));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiberId(NonZeroU64);

const _: () = assert!(size_of::<Option<FiberId>>() == 8, "an id has a niche");

impl FiberId {
    /// # Panics
    ///
    /// If `number` is zero, which no block's and no proxy's id is (not zero).
    pub(crate) fn new(number: u64) -> Self {
        Self(NonZeroU64::new(number).expect("generations begin with 1"))
    }

    /// How messages call the fiber.
    pub(crate) fn with_name(self, name: Option<&str>) -> String {
        match name {
            Some(name) => format!("'{name}' (id {self})"),
            None => format!("with id {self}"),
        }
    }

    /// The whole number, which is large; messages and reports show the id as
    /// [displayed](Self#impl-Display-for-FiberId).
    ///
    /// # Examples
    ///
    /// ```
    /// let id = sinew::current().id();
    /// assert_eq!(id.as_u64(), sinew::current().id().as_u64());
    /// assert_ne!(id.as_u64(), 0);
    /// ```
    pub fn as_u64(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for FiberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FiberId({self})")
    }
}

/// Writes the slot, then the generation if it is not the slot's first. Allocates
/// nothing: the report of a stack overflow is written in a signal handler.
impl fmt::Display for FiberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.get();
        if number & THREAD != 0 {
            return write!(f, "t{}", number & !THREAD);
        }
        let (slot, generation) = (number & SLOT_MASK, number >> SLOT_BITS);
        match generation {
            FIRST_GENERATION => write!(f, "{slot}"),
            later => write!(f, "{slot}.{later}"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{FIRST_GENERATION, FiberId, LAST_GENERATION, SLOT_BITS, SLOT_MASK, THREAD};

    fn shown(generation: u64, slot: u64) -> String {
        FiberId::new(generation << SLOT_BITS | slot).to_string()
    }

    #[test]
    fn an_id_is_shown_as_its_slot_and_its_generation_from_the_second_on() {
        assert_eq!(shown(FIRST_GENERATION, 17), "17");
        assert_eq!(shown(3, 17), "17.3");
        assert_eq!(shown(2, 0), "0.2");
        assert_eq!(shown(LAST_GENERATION, SLOT_MASK), "268435455.34359738367");
    }

    #[test]
    fn a_thread_s_id_is_shown_as_such() {
        assert_eq!(FiberId::new(THREAD).to_string(), "t0");
        assert_eq!(FiberId::new(THREAD + 12).to_string(), "t12");
    }
}
