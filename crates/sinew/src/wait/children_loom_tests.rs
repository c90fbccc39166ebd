//! Models of requests against those they are for: a look, a new scope, a child that
//! starts, and a scope that is left.
//!
//! Every ordering and step below was weakened or left out once by hand; the model named
//! caught it. What a token and a fiber's end need is in `fiber::cancel::loom_tests`.
//!
//! | weakened                                              | caught by |
//! |-------------------------------------------------------|-----------|
//! | `Frame::mark` Release → Relaxed                       | `a_look_finds…`, `a_new_scope…`, `a_child_that_starts…`, `a_scope_that_was_left…` |
//! | `Frame::is_marked` Acquire → Relaxed                  | `a_look_finds…`, `a_child_that_starts…`, `a_scope_that_was_left…` |
//! | `State::stop_looking` Acquire → Relaxed               | `a_look_finds…` |
//! | `State::tell_by` AcqRel → Acquire                     | `a_look_finds…`, `a_new_scope…`, `a_child_that_starts…` |
//! | `State::tell_by` AcqRel → Release                     | nothing: not needed (1) |
//! | `State::hang` AcqRel → either half                    | nothing: not needed (2) |
//! | `State::hang` does nothing                            | `a_new_scope…` |
//! | the owner is told before the mark                     | `a_look_finds…`, `a_new_scope…` |
//! | HANGS is read before the owner is told, or the fiber cancelled | `a_new_scope…` |
//! | a look that found none does not walk again            | `a_look_finds…`, `a_child_that_starts…` |
//! | one that then found a mark does not set LOOK again    | `a_look_finds…`, `a_child_that_starts…` |
//! | one that found a mark does not go down itself         | `who_is_told…` |
//! | `children::link` of a fiber without the lock          | `a_new_scope…` |
//! | `children::link` sets HANGS after the lock            | nothing: not needed (2) |
//! | `children::unlink` without the lock, or not at all    | `a_scope_that_was_left…` |
//! | `Descent::into_fiber` without the lock                | `a_scope_that_was_left…` |
//! | `Nest::begin_cancelled` does nothing                  | `a_new_scope…` |
//! | `Nest::begin_child` asks, then enters, in two steps   | `a_child_that_starts…`, `a_new_scope…` |
//! | `Descent::cancel_children` tells, then says so, in two steps | `a_child_that_starts…`, `a_new_scope…` |
//! | `Nest::end_child` counts before the lock, or after    | both of the last child's end |
//! | `Nest::end_child` takes the waiter in a second step   | both |
//! | `Nest::is_empty_or_tells` counts without the lock     | both |
//! | `children::end` does not fire, or uses the nest after | both |
//! | `children::end` fires under the lock                  | nothing (3) |
//!
//! (1) Who goes down loads the word once more, or takes the lock; what a wake needs is in
//! the table of `fiber::loom_tests`. (2) `stop_looking` acquires the same, and the lock of
//! the nests publishes them. (3) Loom does not switch between a thread's last step and its
//! unlock; `ScopeCore::run` takes the lock once more before it returns.
//!
//! Pointers between frames, nests and roots are plain cells that loom does not see: what
//! it checks are payloads, and *traps*, memory that is used by another from then on.

use super::chain::LinkedFrame;
use super::waiter::Waiter;
use super::{children, point};
use crate::fiber::cancel::{Descent, Frame, FrameKind, Nest, Owner};
use crate::fiber::{Birth, Block, CancelReason, Kind, Ops, OpsOf, Priority, Root, ThreadProxy};
use crate::primitive::model::Plain;
use crate::stack::StackClass;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::panic::Location;
use std::ptr::{self, NonNull};

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

struct ModelOps;

impl OpsOf for ModelOps {
    const OPS: Ops = Ops {
        enqueue: |_| unreachable!("no fiber leaves its stack here"),
        recycle: |_| unreachable!("the reference of the run stays"),
    };
}

/// A fiber that runs: the thread that acts for it stands for its stack.
struct Running {
    block: Box<Block>,
    root: Box<Root>,
}

// SAFETY: the block is shareable; the root is used as its header says.
unsafe impl Send for Running {}
// SAFETY: as above.
unsafe impl Sync for Running {}

impl Running {
    fn new(parent: Option<&Nest>) -> Self {
        let block = Box::new(Block::vacant());
        let birth = Birth {
            runtime: NonNull::dangling(),
            ops: ModelOps,
            class: StackClass::SMALLEST,
            priority: Priority::Normal,
            kind: Kind {
                daemon: false,
                local: false,
                migratable: false,
                on_pool: false,
                always_runs: false,
            },
            name: None,
            spawned_at: Location::caller(),
            parent: parent.map(NonNull::from),
        };
        // SAFETY: nobody else knows the block.
        unsafe { block.occupy(birth, || ()) };
        let root = Box::new(Root::new(NonNull::from(&*block)));
        block.set_root(&*root);
        Self { block, root }
    }

    /// Starts as `first_frame` does; true if its nest was cancelled already.
    fn begin(&self) -> bool {
        // SAFETY: callers have counted it, and end it before it goes.
        let orphaned = unsafe { children::begin(NonNull::from(&*self.block), &self.root) };
        if orphaned {
            let _told = self.block.state().cancel();
        }
        orphaned
    }

    fn end(&self) {
        // SAFETY: it has begun.
        unsafe { children::end(&self.root) };
    }

    fn is_cancelled(&self) -> bool {
        self.block.state().load().cancelled()
    }
}

/// Who has the frames of a model.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Fiber,
    Thread,
}

/// What is cancelled in a model.
#[derive(Clone, Copy, PartialEq)]
enum Request {
    /// A frame around all that it does, as a token does it.
    Frame,
    /// The fiber itself.
    Root,
    /// The scope.
    Nest,
}

/// A fiber or thread in a frame, with a scope inside of it.
struct Owned {
    owner: Owner,
    fiber: Running,
    _proxy: std::sync::Arc<ThreadProxy>,
    frame: Frame,
    nest: Box<Nest>,
    child: Running,
    /// Written by who cancels, before.
    payload: Plain<u32>,
}

// SAFETY: what `owner` leads to is in here as well.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    fn new(who: Who) -> Arc<Self> {
        let fiber = Running::new(None);
        let proxy = ThreadProxy::of_current_thread();
        let owner = match who {
            Who::Fiber => Owner::Fiber(NonNull::from(&*fiber.block)),
            Who::Thread => Owner::Thread(NonNull::from(&*proxy)),
        };
        let nest = Box::new(Nest::new(owner, ptr::null()));
        let child = Running::new(Some(&nest));
        Arc::new(Self {
            owner,
            fiber,
            _proxy: proxy,
            frame: Frame::new(owner, FrameKind::Limit, None),
            nest,
            child,
            payload: Plain::new(0),
        })
    }

    /// As a point of the owner does; who is told sees what came before the request.
    fn look(&self) -> bool {
        let running = match self.owner {
            Owner::Fiber(block) => Some(block),
            Owner::Thread(_) => None,
        };
        let cancelled =
            point::may_be_cancelled(running) && point::with_cause(running, |_| ()).is_some();
        if cancelled {
            assert_eq!(self.payload.get(), 7);
        }
        cancelled
    }

    fn cancel(&self, request: Request) {
        self.payload.set(7);
        let mut descent = Descent::new();
        match request {
            Request::Frame => descent.cancel_frame(&self.frame),
            Request::Root => descent.cancel_fiber(&self.fiber.block),
            Request::Nest => descent.cancel_nest(&self.nest, &CancelReason::Failed),
        }
        descent.run();
    }

    /// Enters the scope as `LinkedNest::new` and `ScopeCore::run` do, which ask who
    /// runs here.
    fn enter(&self) -> LinkedFrame<'_> {
        // SAFETY: the callers leave it, before it goes.
        let linked = unsafe { LinkedFrame::new(self.nest.frame()) };
        children::link(&self.nest);
        if self.look() {
            self.nest.begin_cancelled(CancelReason::Requested);
        }
        linked
    }

    fn start_child(&self) {
        self.nest.count_child();
        if self.child.begin() {
            assert_eq!(self.payload.get(), 7);
        }
    }
}

#[test]
fn a_look_finds_the_mark_or_leaves_word_to_look_again() {
    for request in [Request::Frame, Request::Root] {
        // It looks because of something else, or because it was told.
        for looks_anyway in [false, true] {
            loom::model(move || {
                let owned = Owned::new(Who::Fiber);
                // SAFETY: dropped below, before the frame.
                let linked = unsafe { LinkedFrame::new(&owned.frame) };
                let state = owned.fiber.block.state();
                if looks_anyway {
                    state.look_soon();
                }
                let canceller = thread::spawn({
                    let owned = owned.clone();
                    move || owned.cancel(request)
                });
                // Once seen it stays.
                assert!(!owned.look() || state.look());
                canceller.join().unwrap();
                assert!(state.look(), "the request was lost");
                assert!(owned.look());
                drop(linked);
            });
        }
    }
}

#[test]
fn a_new_scope_and_its_child_hear_of_a_request_that_comes_meanwhile() {
    let cases = [
        (Who::Fiber, Request::Frame),
        (Who::Fiber, Request::Root),
        (Who::Thread, Request::Frame),
    ];
    for (who, request) in cases {
        // With a scope further out the bit HANGS is set already.
        for inside_of_another in [false, true] {
            bounded(3).check(move || {
                let owned = Owned::new(who);
                let outer = Nest::new(owned.owner, ptr::null());
                let outer_linked = inside_of_another.then(|| {
                    // SAFETY: dropped below, before the nest.
                    let linked = unsafe { LinkedFrame::new(outer.frame()) };
                    children::link(&outer);
                    linked
                });
                // SAFETY: as above.
                let framed = unsafe { LinkedFrame::new(&owned.frame) };
                let canceller = thread::spawn({
                    let owned = owned.clone();
                    move || owned.cancel(request)
                });
                owned.look(); // without a step here loom would not begin with the canceller
                let linked = owned.enter();
                owned.start_child();
                canceller.join().unwrap();
                assert!(owned.nest.is_cancelled() && owned.child.is_cancelled());
                let all = inside_of_another && request == Request::Root;
                assert_eq!(outer.is_cancelled(), all);
                owned.child.end();
                children::unlink(&owned.nest);
                drop((linked, framed));
                if let Some(linked) = outer_linked {
                    children::unlink(&outer);
                    drop(linked);
                }
            });
        }
    }
}

#[test]
fn a_scope_that_was_left_is_not_followed() {
    for who in [Who::Fiber, Who::Thread] {
        bounded(3).check(move || {
            let owned = Owned::new(who);
            // SAFETY: dropped below, before the frame.
            let framed = unsafe { LinkedFrame::new(&owned.frame) };
            let canceller = thread::spawn({
                let owned = owned.clone();
                move || owned.cancel(Request::Frame)
            });
            let linked = owned.enter();
            children::unlink(&owned.nest);
            drop(linked);
            // Its memory is another's now: nobody who uses that is to be told.
            let before = owned.nest.is_cancelled();
            let trap = Running::new(None);
            owned.nest.count_child();
            // SAFETY: ended below.
            let (_, told) = unsafe { owned.nest.begin_child(NonNull::from(&*trap.block)) };
            assert_eq!(told, before);
            canceller.join().unwrap();
            assert!(!trap.is_cancelled(), "a scope was followed that is gone");
            assert_eq!(owned.nest.is_cancelled(), before);
            drop(framed);
        });
    }
}

#[test]
fn a_child_that_starts_while_its_scope_is_cancelled_is_cancelled() {
    for who in [Who::Fiber, Who::Thread] {
        bounded(3).check(move || {
            let owned = Owned::new(who);
            let linked = owned.enter();
            let canceller = thread::spawn({
                let owned = owned.clone();
                move || owned.cancel(Request::Nest)
            });
            let child = thread::spawn({
                let owned = owned.clone();
                move || {
                    owned.start_child();
                    if owned.child.is_cancelled() {
                        assert_eq!(owned.payload.get(), 7);
                    }
                }
            });
            owned.look();
            canceller.join().unwrap();
            child.join().unwrap();
            assert!(owned.child.is_cancelled());
            assert!(owned.look(), "its owner was not told");
            owned.child.end();
            children::unlink(&owned.nest);
            drop(linked);
        });
    }
}

/// Of a fiber: in a model a thread has a new proxy each time that it asks for its own.
#[test]
fn who_is_told_finds_that_its_children_were_told() {
    bounded(3).check(|| {
        let owned = Owned::new(Who::Fiber);
        // SAFETY: dropped below, before the frame.
        let framed = unsafe { LinkedFrame::new(&owned.frame) };
        let linked = owned.enter();
        owned.start_child();
        let canceller = thread::spawn({
            let owned = owned.clone();
            move || owned.cancel(Request::Frame)
        });
        if owned.look() {
            assert!(owned.child.is_cancelled(), "told before its child");
        }
        canceller.join().unwrap();
        owned.child.end();
        children::unlink(&owned.nest);
        drop((linked, framed));
    });
}

/// A scope that is left as soon as its children have ended.
struct Left {
    /// Overwritten when it is left.
    nest: NonNull<Nest>,
    children: Vec<Running>,
    /// What each child did with what it borrowed.
    payloads: [Plain<u32>; 2],
    owner: Running,
}

// SAFETY: the nest is there until its owner has left it.
unsafe impl Send for Left {}
// SAFETY: as above.
unsafe impl Sync for Left {}

impl Left {
    /// With so many children, which have begun.
    fn new(children: usize) -> Arc<Self> {
        let owner = Running::new(None);
        let at = Owner::Fiber(NonNull::from(&*owner.block));
        let nest = Box::leak(Box::new(Nest::new(at, ptr::null())));
        let children = Vec::from_iter((0..children).map(|_| {
            nest.count_child();
            Running::new(Some(nest))
        }));
        for child in &children {
            child.begin();
        }
        Arc::new(Self {
            nest: NonNull::from(nest),
            children,
            payloads: [Plain::new(0), Plain::new(0)],
            owner,
        })
    }

    fn nest(&self) -> &Nest {
        // SAFETY: asked before it is left.
        unsafe { self.nest.as_ref() }
    }

    fn run_children(left: &Arc<Self>) -> Vec<thread::JoinHandle<()>> {
        let run = |number: usize| {
            let left = left.clone();
            thread::spawn(move || {
                left.payloads[number].set(7);
                left.children[number].end();
            })
        };
        Vec::from_iter((0..left.children.len()).map(run))
    }

    /// The frame is another's now: a lock that is used after this is none.
    fn leave(&self) {
        for number in 0..self.children.len() {
            assert_eq!(self.payloads[number].get(), 7);
            self.payloads[number].set(8);
        }
        // SAFETY: ours alone, and nothing in it needs to be dropped.
        unsafe {
            self.nest
                .as_ptr()
                .cast::<u8>()
                .write_bytes(0xff, size_of::<Nest>())
        };
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        // SAFETY: from a box; overwritten, so nothing is dropped.
        drop(unsafe { Box::from_raw(self.nest.as_ptr().cast::<std::mem::MaybeUninit<Nest>>()) });
    }
}

#[test]
fn a_thread_leaves_its_scope_after_the_last_child_is_done_with_it() {
    for children in [1, 2] {
        bounded(4).check(move || {
            let left = Left::new(children);
            let threads = Left::run_children(&left);
            children::wait_for_all(left.nest(), Location::caller());
            left.leave();
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }
}

#[test]
fn a_fiber_is_notified_once_of_the_end_of_the_last_child() {
    for children in [1, 2] {
        bounded(4).check(move || {
            let left = Left::new(children);
            let threads = Left::run_children(&left);
            let block = &left.owner.block;
            // As `wait_for_all`, whose switch cannot run in a model.
            let waiter = Waiter::for_fiber(NonNull::from(&**block));
            let waits = !left.nest().is_empty_or_tells(ptr::from_ref(&waiter).cast());
            while waits && !block.state().take_wakes(block.heard()).notified {
                thread::yield_now();
            }
            left.leave();
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(!block.state().take_wakes(block.heard()).notified);
        });
    }
}
