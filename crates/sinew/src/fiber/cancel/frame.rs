//! One frame of a chain, and the walk outward; see the header of
//! `fiber::cancel`.

use super::descent::Hook;
use super::nest::Nest;
use super::reason::CancelReason;
use crate::fiber::{Block, Root, ThreadProxy};
use crate::primitive::{AtomicU8, Ordering};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A request was made to this frame.
const MARKED: u8 = 1 << 0;
/// Somebody was told `Cancelled` because of it.
const OBSERVED: u8 = 1 << 1;

/// On whose stack a frame is: whom to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Fiber(NonNull<Block>),
    Thread(NonNull<ThreadProxy>),
}

impl Owner {
    pub(crate) fn of_thread(proxy: &Arc<ThreadProxy>) -> Self {
        // By this pointer a count may be taken, too.
        let proxy = Arc::as_ptr(proxy).cast_mut();
        Self::Thread(NonNull::new(proxy).expect("an Arc is never null"))
    }

    /// Tells it to look at its frames: its waits look again, its points walk, and
    /// a `park` returns once.
    ///
    /// # Safety
    ///
    /// It is alive, and stays so during the call.
    pub(crate) unsafe fn tell(self) {
        match self {
            // SAFETY: the caller's promise; the answer of this block's own word.
            Self::Fiber(block) => unsafe {
                let block = block.as_ref();
                block.follow(block.state().tell().wake);
            },
            // SAFETY: the caller's promise.
            Self::Thread(proxy) => unsafe { proxy.as_ref() }.unpark(),
        }
    }
}

/// What a frame is for.
#[derive(Clone, Copy)]
pub(crate) enum FrameKind {
    /// A walk outward ends here.
    Shield,
    /// Marked when its time is over.
    Limit,
    /// Marked by the token that was entered, which is in an `Arc` and outlives the
    /// frame.
    Token(NonNull<dyn Hook>),
    /// The first field of a [`Nest`].
    Nest,
    /// Never marked. A pool thread walks over the frames from here outward, so none of them
    /// may be unlinked before this one is.
    Lent,
    /// The walk goes on with this frame of this fiber, which waits for the closure that
    /// this thread runs for it. It is the frame [`Lent`](Self::Lent) of that wait.
    Caller(NonNull<Block>, *const Frame),
}

/// One frame; stays where it is while it is linked.
pub(crate) struct Frame {
    /// The next one outward; set when it is linked, never changed after.
    outer: Cell<*const Frame>,
    owner: Owner,
    kind: FrameKind,
    flags: AtomicU8,
    /// When a limit, or the token's deadline, is reached; `u64::MAX` for never.
    deadline: u64,
}

// SAFETY: `outer` is written before the frame is linked; all else is constant
// or atomic. What the pointers lead to outlives the frame.
unsafe impl Sync for Frame {}

impl Frame {
    pub(crate) fn new(owner: Owner, kind: FrameKind, deadline: Option<u64>) -> Self {
        Self {
            outer: Cell::new(ptr::null()),
            owner,
            kind,
            flags: AtomicU8::new(0),
            deadline: deadline.unwrap_or(u64::MAX),
        }
    }

    /// Says what is outward of it, before it is linked.
    pub(crate) fn set_outer(&self, outer: *const Frame) {
        self.outer.set(outer);
    }

    pub(crate) fn outer(&self) -> *const Frame {
        self.outer.get()
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        (self.deadline != u64::MAX).then_some(self.deadline)
    }

    /// Marks it if its time is over; answers the token that was to be cancelled by
    /// then, too.
    pub(crate) fn expire(&self, now: u64) -> Option<Arc<dyn Hook>> {
        if self.deadline > now || !self.mark() {
            return None;
        }
        match self.kind {
            // SAFETY: a token is in an `Arc`, and outlives the frame.
            FrameKind::Token(token) => unsafe {
                Arc::increment_strong_count(token.as_ptr());
                Some(Arc::from_raw(token.as_ptr()))
            },
            _ => None,
        }
    }

    /// Leaves the request; true if it is the first.
    pub(crate) fn mark(&self) -> bool {
        // Release: who sees the mark sees what came before (a reason, say); pairs
        // with `is_marked`.
        self.flags.fetch_or(MARKED, Ordering::Release) & MARKED == 0
    }

    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        // Acquire: pairs with `mark`.
        self.flags.load(Ordering::Acquire) & MARKED != 0
    }

    /// Notes that the request had an effect.
    pub(crate) fn observe(&self) {
        // Relaxed: read by the owner after all that could set it has ended, and
        // said so.
        self.flags.fetch_or(OBSERVED, Ordering::Relaxed);
    }

    pub(crate) fn is_observed(&self) -> bool {
        // Relaxed: as above.
        self.flags.load(Ordering::Relaxed) & OBSERVED != 0
    }

    /// The nest that this is the frame of.
    pub(crate) fn as_nest(&self) -> Option<&Nest> {
        match self.kind {
            // SAFETY: `repr(C)`, and the frame of that kind is the first field of
            // a nest; made by `Nest::new` alone.
            FrameKind::Nest => Some(unsafe { &*ptr::from_ref(self).cast::<Nest>() }),
            _ => None,
        }
    }

    fn is_shield(&self) -> bool {
        matches!(self.kind, FrameKind::Shield)
    }

    /// Whether what is outward of it is not seen from inside, or is another's.
    pub(super) fn ends_stretch(&self) -> bool {
        matches!(self.kind, FrameKind::Shield | FrameKind::Caller(..))
    }

    /// Why it is marked.
    fn reason(&self) -> CancelReason {
        match self.kind {
            // SAFETY: the token outlives the frame.
            FrameKind::Token(token) => unsafe { token.as_ref() }.reason(),
            FrameKind::Nest => self.as_nest().and_then(Nest::reason),
            FrameKind::Limit => Some(CancelReason::Deadline),
            FrameKind::Shield | FrameKind::Lent | FrameKind::Caller(..) => None,
        }
        .unwrap_or(CancelReason::Requested)
    }
}

/// What a fiber or thread is cancelled by.
#[derive(Clone, Copy)]
pub(crate) enum Cause {
    /// This frame was marked.
    Frame(NonNull<Frame>),
    /// The root of this fiber.
    Root(NonNull<Block>),
}

impl Cause {
    /// Notes that somebody was told because of it: in the frame that was marked, also if
    /// that is a scope's around the fiber's own, or around that.
    ///
    /// # Safety
    ///
    /// The frame is still linked; the fiber of a root has not ended.
    pub(crate) unsafe fn observe(self) {
        let mut cause = self;
        loop {
            let block = match cause {
                // SAFETY: the caller's promise, or of an owner of a nest below.
                Self::Frame(frame) => return unsafe { frame.as_ref() }.observe(),
                Self::Root(block) => block,
            };
            // SAFETY: as above.
            let fiber = unsafe { block.as_ref() };
            fiber.state().note_told();
            // SAFETY: as above: it has its root.
            let parent = unsafe { fiber.root().as_ref() }.and_then(Root::parent);
            // SAFETY: a nest outlives its children; so do its owner, and all that is
            // outward of it (invariant 1).
            let above = parent.and_then(|nest| unsafe {
                let frame = nest.as_ref().frame();
                Outward::from(frame, frame.owner()).cause()
            });
            match above {
                Some(above) => cause = above,
                None => return, // the fiber itself was asked
            }
        }
    }

    /// Why.
    ///
    /// # Safety
    ///
    /// As for [`observe`](Self::observe); a root's fiber has not ended.
    pub(crate) unsafe fn reason(self) -> CancelReason {
        match self {
            // SAFETY: the caller's promise.
            Self::Frame(frame) => unsafe { frame.as_ref() }.reason(),
            // SAFETY: as above.
            Self::Root(block) => unsafe {
                let block = block.as_ref();
                block.reason(block.root().as_ref())
            },
        }
    }

    /// Whether it is this frame.
    pub(crate) fn is(self, frame: &Frame) -> bool {
        matches!(self, Self::Frame(cause) if ptr::eq(cause.as_ptr(), frame))
    }
}

/// A walk outward, from frame to frame, up to the root.
pub(crate) struct Outward {
    at: *const Frame,
    /// Whose root comes behind the last frame.
    fiber: Option<NonNull<Block>>,
}

/// One step of it.
pub(crate) enum Step<'a> {
    Frame(&'a Frame),
    /// The last one.
    Root(NonNull<Block>),
}

impl Outward {
    /// Begins with `from`, a frame on the stack of `owner`.
    ///
    /// # Safety
    ///
    /// While the walk lasts `from` stays linked, and with it all that is outward
    /// (invariant 1); the owner is alive.
    pub(crate) unsafe fn from(from: *const Frame, owner: Owner) -> Self {
        let fiber = match owner {
            Owner::Fiber(block) => Some(block),
            Owner::Thread(_) => None,
        };
        Self { at: from, fiber }
    }

    pub(crate) fn next<'a>(&mut self) -> Option<Step<'a>> {
        let Some(at) = NonNull::new(self.at.cast_mut()) else {
            return self.fiber.take().map(Step::Root);
        };
        // SAFETY: linked (the promise of `from`).
        let frame: &'a Frame = unsafe { at.as_ref() };
        self.at = frame.outer();
        if let FrameKind::Caller(block, innermost) = frame.kind {
            // It waits for the closure that runs inside of this frame, so it is alive. Its
            // frame `Lent` is linked until it has waited, and whoever unlinks one that is
            // outward of it before ends the process (`wait::chain`): also a coroutine that
            // another fiber resumes.
            self.at = innermost;
            self.fiber = Some(block);
        }
        Some(Step::Frame(frame))
    }

    /// Goes to the first shield, or to the end; the outermost request on the way.
    pub(crate) fn cause(&mut self) -> Option<Cause> {
        let mut found = None;
        while let Some(step) = self.next() {
            match step {
                Step::Frame(frame) if frame.is_shield() => return found,
                Step::Frame(frame) if frame.is_marked() => {
                    found = Some(Cause::Frame(NonNull::from(frame)));
                }
                Step::Frame(_) => {}
                // SAFETY: alive, as the walk's owner is.
                Step::Root(block) if unsafe { block.as_ref() }.state().load().cancelled() => {
                    found = Some(Cause::Root(block));
                }
                Step::Root(_) => {}
            }
        }
        found
    }

    /// The earliest deadline of a frame that is not marked, up to where another's frames
    /// begin. Also behind shields: scopes may be outward of those.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let mut earliest = None;
        while let Some(Step::Frame(frame)) = self.next() {
            if matches!(frame.kind, FrameKind::Caller(..)) {
                break;
            }
            if let Some(deadline) = frame.deadline().filter(|_| !frame.is_marked()) {
                earliest = Some(earliest.map_or(deadline, |other: u64| other.min(deadline)));
            }
        }
        earliest
    }
}
