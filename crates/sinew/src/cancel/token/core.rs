//! What clones of a token share, and how it is cancelled.
//!
//! Lock order: a token's lock may be held when that of a nest is taken (`fiber::cancel`),
//! and be taken when that of a fiber is held; never that of another token. No waker is
//! called under it.
//!
//! Invariant 1 (once): the reason is set once, under the lock; who enters, is born below
//! or stands for something from then on finds it there, under the same lock.
//! Invariant 2 (entered): an entered frame is in the token's list from after it was
//! linked on its stack until before it is unlinked there.

use crate::fiber::cancel::{Descent, Errands, Frame, Hook, Nest};
use crate::fiber::{BlockRef, CancelReason};
use crate::sync::Event;
use crate::sys::Lock;
use crate::util::list::{Links, List};
use crate::wait::waiter::quietly;
use crate::wait::{Deadline, deadline};
use std::any::Any;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, Weak};

/// What clones share.
pub(crate) struct TokenCore {
    /// Set once it is cancelled; who waits is woken by it.
    pub(super) cancelled: Event,
    pub(super) reason: OnceLock<CancelReason>,
    /// The earliest of its own and those above.
    pub(super) deadline: Option<Deadline>,
    parent: Option<Arc<TokenCore>>,
    /// By which number the parent knows it.
    number: u64,
    below: Lock<Below>,
}

/// What is told when it is cancelled.
struct Below {
    tokens: BTreeMap<u64, Weak<TokenCore>>,
    next_number: u64,
    /// [`Entered`]s, on stacks.
    entered: List,
    target: Target,
}

/// What a token stands for.
pub(crate) enum Target {
    None,
    Fiber(BlockRef),
    /// There until `detach`.
    Nest(NonNull<Nest>),
}

// SAFETY: the nest may be used from any thread, and is there until it is detached,
// under the lock that this is in.
unsafe impl Send for Target {}

impl TokenCore {
    pub(crate) fn new(target: Target) -> Self {
        Self::below(None, 0, None, target)
    }

    fn below(
        parent: Option<Arc<Self>>,
        number: u64,
        deadline: Option<Deadline>,
        target: Target,
    ) -> Self {
        Self {
            cancelled: Event::new(),
            reason: OnceLock::new(),
            deadline,
            parent,
            number,
            below: Lock::new(Below {
                tokens: BTreeMap::new(),
                next_number: 0,
                entered: List::new(),
                target,
            }),
        }
    }

    pub(super) fn child(self: &Arc<Self>, deadline: Option<Deadline>) -> Arc<Self> {
        let deadline = Deadline::earlier(self.deadline, deadline);
        let number = {
            let mut below = self.below.lock();
            below.next_number += 1;
            below.next_number
        };
        let child = Arc::new(Self::below(
            Some(self.clone()),
            number,
            deadline,
            Target::None,
        ));
        let link = Arc::downgrade(&child);
        let cancelled = {
            let mut below = self.below.lock();
            if self.reason.get().is_none() {
                below.tokens.insert(number, link);
                false
            } else {
                true
            }
        };
        if cancelled {
            child.cancel(&self.reason_now());
        }
        child
    }

    pub(super) fn reason_now(&self) -> CancelReason {
        self.reason
            .get()
            .cloned()
            .unwrap_or(CancelReason::Requested)
    }

    /// Cancels it and all that is below.
    pub(crate) fn cancel(self: &Arc<Self>, reason: &CancelReason) {
        let (mut descent, mut errands) = (Descent::new(), Errands::new());
        self.clone().cancelled(reason, &mut descent, &mut errands);
        descent.run_into(&mut errands);
        errands.run();
    }

    /// Whether it is cancelled; if its time is over it is now.
    pub(super) fn is_cancelled(self: &Arc<Self>) -> bool {
        if self.reason.get().is_some() {
            return true;
        }
        let over = self.deadline.is_some_and(|at| at.0 <= deadline::now());
        if over {
            self.cancel(&CancelReason::Deadline);
        }
        over
    }

    /// Takes itself out of its parent, and answers that.
    fn leave_parent(&mut self) -> Option<Arc<Self>> {
        let parent = self.parent.take()?;
        let link = parent.below.lock().tokens.remove(&self.number);
        drop(link);
        Some(parent)
    }
}

impl Drop for TokenCore {
    fn drop(&mut self) {
        // One after the other: a long line of tokens, each kept by the next alone,
        // would need as long a stack.
        let mut parent = self.leave_parent();
        while let Some(above) = parent {
            parent = Arc::into_inner(above).and_then(|mut above| above.leave_parent());
        }
    }
}

impl Hook for TokenCore {
    fn cancelled(
        self: Arc<Self>,
        reason: &CancelReason,
        descent: &mut Descent,
        errands: &mut Errands,
    ) {
        let tokens = {
            let mut below = self.below.lock();
            if self.reason.set(reason.clone()).is_err() {
                return;
            }
            below.entered.for_each(|links| {
                // SAFETY: in the list, so it is linked on its stack (invariant 2).
                descent.cancel_frame(unsafe { &links.cast::<Entered>().as_ref().frame });
            });
            match &below.target {
                Target::None => {}
                Target::Fiber(block) => descent.cancel_fiber(block),
                // SAFETY: not detached.
                Target::Nest(nest) => descent.cancel_nest(unsafe { nest.as_ref() }, reason),
            }
            std::mem::take(&mut below.tokens)
        };
        for token in tokens.into_values().filter_map(|token| token.upgrade()) {
            descent.cancel_hook(token, reason.clone());
        }
        let tasks = self.cancelled.set_but_tasks();
        if !tasks.is_empty() {
            errands.add(Box::new(move || {
                tasks.into_iter().for_each(|task| quietly(|| task.wake()));
            }));
        }
    }

    fn detach(&self) {
        let target = std::mem::replace(&mut self.below.lock().target, Target::None);
        drop(target);
    }

    fn reason(&self) -> Option<CancelReason> {
        self.reason.get().cloned()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// A frame of who has entered a token.
#[repr(C)]
pub(super) struct Entered {
    pub(super) links: Links,
    pub(super) frame: Frame,
}

/// An entered frame that is in the token's list; taken out when dropped.
pub(super) struct InList<'a> {
    token: &'a TokenCore,
    entered: &'a Entered,
}

impl<'a> InList<'a> {
    /// # Safety
    ///
    /// The frame is linked on this stack, and stays so until this is dropped.
    pub(super) unsafe fn new(token: &'a TokenCore, entered: &'a Entered) -> Self {
        let cancelled = {
            let mut below = token.below.lock();
            // SAFETY: the caller's promise; in no list yet.
            unsafe { below.entered.push_back(NonNull::from(entered).cast()) };
            token.reason.get().is_some()
        };
        if cancelled {
            // Before it came into the list: nobody else tells us (invariant 1).
            entered.frame.mark();
        }
        Self { token, entered }
    }
}

impl Drop for InList<'_> {
    fn drop(&mut self) {
        let mut below = self.token.below.lock();
        // SAFETY: put there by `new`.
        unsafe { below.entered.remove(NonNull::from(self.entered).cast()) };
    }
}
