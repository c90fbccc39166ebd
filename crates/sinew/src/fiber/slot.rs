//! A fiber's closure and, later, its outcome: one slot, used twice.
//!
//! The closure is moved out onto the fiber's stack before the outcome is
//! written, so both can share the memory: a union that sits inside the control
//! block if it fits, else in one box. Small closures cost no allocation, all
//! others at most one.
//!
//! ```text
//!   spawn            first frame              join or drop
//!   write closure ─► take closure, run it,    take outcome
//!                    write outcome         ─► free the box, if any
//! ```
//!
//! Invariant (slot): the slot holds the closure until the fiber is claimed for
//! its start, nothing while the body runs, the outcome from then until its
//! owner (`fiber::state`, invariant 4) takes it, and nothing after.

use super::block::{Ops, OpsOf};
use crate::error::{Failure, JoinError, Payload};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `join` returns.
pub(crate) type Outcome<T> = Result<T, JoinError>;

union Contents<F, T> {
    closure: ManuallyDrop<F>,
    outcome: ManuallyDrop<Outcome<T>>,
}

/// How a fiber begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Run the closure.
    Run,
    /// It was cancelled before it ran: drop the closure.
    DropUnrun,
    /// There is no stack to run it on: drop the closure.
    NoStack,
}

/// Who looks at the payload of a panic.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&mut Payload);

/// What can be done with a slot whose types were forgotten.
pub(crate) struct SlotTable {
    /// Takes the closure, runs or drops it, stores the outcome; true if it panicked. User
    /// code.
    pub(crate) begin: unsafe fn(*mut u8, Begin) -> bool,
    /// Lets `watch` see the panic that is the outcome.
    pub(crate) watch_panic: unsafe fn(*mut u8, Watch<'_>),
    /// Drops the outcome and frees the box. User code.
    pub(crate) drop_outcome: unsafe fn(*mut u8),
    /// Replaces the closure, which is leaked, by [`Failure::GivenUp`]: to drop it is user
    /// code, and may be allowed on its worker's thread alone.
    pub(crate) give_up: unsafe fn(*mut u8),
    /// What the layers above do with the block.
    pub(crate) ops: Ops,
}

/// The typed view of a slot.
pub(crate) struct Slot<F, T>(std::marker::PhantomData<(F, T)>);

impl<F: FnOnce() -> T, T> Slot<F, T> {
    /// The table of a block that is put back by `O`: in one with it, for a pointer
    /// less in each block.
    pub(crate) fn table<O: OpsOf>() -> &'static SlotTable {
        const {
            &SlotTable {
                begin: Self::begin,
                watch_panic: Self::watch_panic,
                drop_outcome: Self::drop_outcome,
                give_up: Self::give_up,
                ops: O::OPS,
            }
        }
    }

    const INLINE: bool = size_of::<Contents<F, T>>() <= super::block::INLINE_BYTES
        && align_of::<Contents<F, T>>() <= super::block::INLINE_ALIGN;

    /// Stores `closure`.
    ///
    /// # Safety
    ///
    /// `at` is the slot of a block that nobody else uses, and holds nothing.
    pub(crate) unsafe fn put(at: *mut u8, closure: F) {
        let contents = Contents {
            closure: ManuallyDrop::new(closure),
        };
        if Self::INLINE {
            // SAFETY: it fits by size and alignment (INLINE), and is ours.
            unsafe { at.cast::<Contents<F, T>>().write(contents) };
        } else {
            let boxed = Box::into_raw(Box::new(contents));
            // SAFETY: a slot holds and aligns at least a pointer, and is ours.
            unsafe { at.cast::<*mut Contents<F, T>>().write(boxed) };
        }
    }

    /// # Safety
    ///
    /// `at` is a slot that `put` of these very types has filled.
    unsafe fn contents(at: *mut u8) -> *mut Contents<F, T> {
        if Self::INLINE {
            at.cast()
        } else {
            // SAFETY: `put` wrote a pointer there.
            unsafe { at.cast::<*mut Contents<F, T>>().read() }
        }
    }

    /// # Safety
    ///
    /// The slot holds the closure, and the caller owns it.
    unsafe fn begin(at: *mut u8, begin: Begin) -> bool {
        // SAFETY: the caller's promise; the closure is taken exactly once.
        let closure = unsafe { ManuallyDrop::take(&mut (*Self::contents(at)).closure) };
        let outcome = match begin {
            Begin::Run => catch_unwind(AssertUnwindSafe(closure)),
            Begin::DropUnrun | Begin::NoStack => {
                let failure = match begin {
                    Begin::NoStack => Failure::NoStack,
                    _ => Failure::Cancelled,
                };
                match catch_unwind(AssertUnwindSafe(move || drop(closure))) {
                    Ok(()) => {
                        // SAFETY: the slot is empty now and still ours.
                        unsafe { Self::store(at, Err(JoinError(failure))) };
                        return false;
                    }
                    Err(payload) => Err(payload),
                }
            }
        };
        let outcome = outcome.map_err(|payload| JoinError(Failure::Panic(Payload::new(payload))));
        let panicked = outcome.is_err();
        // SAFETY: the slot is empty now and still ours.
        unsafe { Self::store(at, outcome) };
        panicked
    }

    /// # Safety
    ///
    /// The slot holds the outcome, and the caller owns it.
    unsafe fn watch_panic(at: *mut u8, watch: Watch<'_>) {
        // SAFETY: the caller's promise; a union's field of `ManuallyDrop` is only borrowed.
        let outcome = unsafe { &mut (*Self::contents(at)).outcome };
        if let Err(JoinError(Failure::Panic(payload))) = &mut **outcome {
            watch(payload);
        }
    }

    /// # Safety
    ///
    /// The slot holds nothing, and the caller owns it.
    unsafe fn store(at: *mut u8, outcome: Outcome<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            Self::contents(at).write(Contents {
                outcome: ManuallyDrop::new(outcome),
            });
        }
    }

    /// # Safety
    ///
    /// The slot holds the closure, and the caller owns it.
    unsafe fn give_up(at: *mut u8) {
        // SAFETY: the caller's promise. The closure is overwritten, that is leaked.
        unsafe { Self::store(at, Err(JoinError(Failure::GivenUp))) };
    }

    /// # Safety
    ///
    /// The slot holds the outcome, and the caller owns it.
    unsafe fn drop_outcome(at: *mut u8) {
        // SAFETY: the caller's promise.
        drop(unsafe { take_outcome::<F, T>(at) });
    }
}

/// Takes the outcome out and frees the box, if there is one.
///
/// # Safety
///
/// The slot was filled by `Slot::<F, T>::put`, holds the outcome, and the
/// caller owns it.
unsafe fn take_outcome<F: FnOnce() -> T, T>(at: *mut u8) -> Outcome<T> {
    // SAFETY: the caller's promise.
    unsafe {
        let contents = Slot::<F, T>::contents(at);
        let outcome = ManuallyDrop::take(&mut (*contents).outcome);
        if !Slot::<F, T>::INLINE {
            // A union drops nothing by itself: this frees the box alone.
            drop(Box::from_raw(contents));
        }
        outcome
    }
}

/// How a handle, which has forgotten the closure's type, takes the outcome.
pub(crate) type TakeOutcome<T> = unsafe fn(*mut u8) -> Outcome<T>;

/// The function that takes an outcome out of a slot of these types.
pub(crate) fn taker<F: FnOnce() -> T, T>() -> TakeOutcome<T> {
    take_observed::<F, T>
}

/// As [`take_outcome`], for who gets to know it.
///
/// # Safety
///
/// As for [`take_outcome`].
unsafe fn take_observed<F: FnOnce() -> T, T>(at: *mut u8) -> Outcome<T> {
    // SAFETY: the caller's promise.
    let mut outcome = unsafe { take_outcome::<F, T>(at) };
    if let Err(JoinError(Failure::Panic(payload))) = &mut outcome {
        payload.observed();
    }
    outcome
}
