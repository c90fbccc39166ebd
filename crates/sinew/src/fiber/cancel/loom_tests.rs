//! Models of what hangs on a fiber, the root of its stack and its token, against a
//! request and against its end.
//!
//! Every ordering and step below was weakened or left out once by hand; the model named
//! caught it. What frames and scopes need is in `wait::children_loom_tests`.
//!
//! | weakened                                              | caught by |
//! |-------------------------------------------------------|-----------|
//! | `Block::set_root` Release → Relaxed                   | `who_finds_the_root…` |
//! | `Block::root_for_others` Acquire → Relaxed            | `who_finds_the_root…` |
//! | `Block::root_for_others` does not ask for COMPLETE    | `nobody_follows_it_because…` |
//! | `Block::root_for_others` does not ask for HANGS       | nothing: who comes has seen it |
//! | `Root::leave` does nothing, or not under the lock     | all of a root |
//! | `Descent::into_fiber` without the lock                | both `nobody_follows…` |
//! | `Descent::into_fiber` does not look for a token       | `a_token…_is_cancelled_meanwhile…`, `who_cancels…` |
//! | `Descent::cancel_fiber` reads HANGS before            | `a_token…_is_cancelled_meanwhile…` |
//! | `Block::hook_or` does not set HANGS                   | all of a token |
//! | `Block::hook_or` does not set it again                | `a_token…` both |
//! | `Block::hook_or` does not set it for who comes second | `who_cancels…` |
//! | its AcqRel → Acquire                                  | `a_token…` both, `nobody_follows_it_because…` |
//! | its AcqRel → Release                                  | nothing: `Fiber::token` loads the word after |
//! | the token is taken before COMPLETE is set             | `a_token…_ends_meanwhile…`, `nobody_follows_it_because…` |
//! | a fiber that ends does not tell its token             | `the_token_of_a_fiber…` (1) |
//! | a child that is born cancelled does not tell it       | `the_token_of_a_child…` (1) |
//! | `Extras` by Relaxed                                   | nothing: its memory is no loom cell |
//!
//! (1) The second only without the first; the first tells it before and after COMPLETE, and
//! either of the two is enough for these models.
//!
//! `Fiber::token` and the end of a fiber are told again here, in [`Fresh::token`] and
//! [`Running::end`]: the one needs a handle, the other leaves its root on a stack.

use super::descent::{Descent, Hook, cancel_fiber};
use super::frame::Owner;
use super::nest::Nest;
use super::reason::CancelReason;
use crate::cancel::{Target, TokenCore};
use crate::fiber::{Begin, Birth, Block, BlockRef, Kind, Ops, OpsOf, Priority, Root, Suspender};
use crate::primitive::model::Plain;
use crate::stack::StackClass;
use crate::wait::children;
use crate::worker::first_frame::{first_frame, run_to_completion};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::{self, NonNull};

type Token = std::sync::Arc<dyn Hook>;

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

fn cancel_token(token: &Token, reason: CancelReason) {
    let mut descent = Descent::new();
    descent.cancel_hook(token.clone(), reason);
    descent.run();
}

struct ModelOps;

impl OpsOf for ModelOps {
    const OPS: Ops = Ops {
        enqueue: |_| unreachable!("no fiber leaves its stack here"),
        recycle: |_| unreachable!("the references of `fiber` stay"),
    };
}

/// As many references as a new block has.
const REFERENCES: u64 = 3;

/// A block, and what its extras are freed with.
struct Fresh(Box<Block>);

impl Fresh {
    fn new(parent: Option<&Nest>) -> Self {
        Self::running(parent, || ())
    }

    fn running(parent: Option<&Nest>, body: impl FnOnce()) -> Self {
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
        unsafe { block.occupy(birth, body) };
        Self(block)
    }

    fn at(&self) -> NonNull<Block> {
        NonNull::from(&*self.0)
    }

    /// As `Fiber::token`.
    fn token(&self) -> Token {
        // SAFETY: occupied.
        let block = unsafe { BlockRef::acquire(self.at()) };
        let make = || TokenCore::new(Target::Fiber(block.clone()));
        let hook = block.hook_or(|| std::sync::Arc::new(make()));
        let state = block.state().load();
        if state.cancelled() {
            let reason = {
                let _lock = block.joiners().lock();
                block.reason(block.root_for_others())
            };
            cancel_token(&hook, reason);
        }
        if state.complete() {
            block.take_hook();
            hook.detach();
        }
        hook
    }

    /// Begins and ends, on this thread.
    fn run(&self) {
        let mut suspender = MaybeUninit::<Suspender>::uninit();
        // SAFETY: an address that is not zero, which nobody follows: the body does not
        // wait.
        unsafe {
            suspender.as_mut_ptr().write_bytes(0xff, 1);
            first_frame(self.at(), suspender.assume_init_ref(), Begin::Run);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.0.state().load().cancelled()
    }

    /// Of an ended fiber: nothing hangs on it, and nothing keeps it.
    fn assert_bare(&self) {
        assert!(self.0.hook().is_none(), "a token was left behind");
        let references = self.0.state().load().references();
        assert_eq!(references, REFERENCES, "a token keeps its fiber");
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let extras = self.0.extras();
        if !extras.is_null() {
            self.0.clear_extras();
            // SAFETY: from a box, and nobody uses the block any more.
            drop(unsafe { Box::from_raw(extras) });
        }
    }
}

/// A child that runs, on the heap what is at the root of its stack.
struct Running {
    fiber: Fresh,
    root: Box<Root>,
    parent: Box<Nest>,
    nest: Nest,
    /// What the memory of `root` is used for later: a scope of somebody else's, with
    /// a child.
    trap: Box<Nest>,
    trapped: Fresh,
}

// SAFETY: blocks and nests are shareable; the root is used as its header says.
unsafe impl Send for Running {}
// SAFETY: as above.
unsafe impl Sync for Running {}

impl Running {
    fn new() -> Arc<Self> {
        let trapped = Fresh::new(None);
        let owner = Owner::Fiber(trapped.at());
        let parent = Box::new(Nest::new(owner, ptr::null()));
        let fiber = Fresh::new(Some(&parent));
        let root = Box::new(Root::new(fiber.at()));
        fiber.0.set_root(&*root);
        parent.count_child();
        // SAFETY: counted, and ended by `end`.
        unsafe { children::begin(fiber.at(), &root) };
        let trap = Box::new(Nest::new(owner, ptr::null()));
        trap.count_child();
        // SAFETY: both stay to the end of the model.
        unsafe { trap.begin_child(trapped.at()) };
        trap.frame().mark();
        Arc::new(Self {
            nest: Nest::new(Owner::Fiber(fiber.at()), ptr::null()),
            fiber,
            root,
            parent,
            trap,
            trapped,
        })
    }

    /// Enters a scope and leaves it again: from now on something hangs on the fiber.
    fn nest(&self) {
        children::link(&self.nest);
        children::unlink(&self.nest);
    }

    /// Ends as `first_frame` does.
    fn end(&self) {
        // SAFETY: once, for who runs it.
        unsafe { run_to_completion(&self.fiber.0, Begin::Run, self.root.locals(), || ()) };
        self.root.leave(&self.fiber.0);
        // SAFETY: begun by `new`.
        unsafe { children::end(&self.root) };
        // The stack and the scope that it was spawned in are gone.
        self.root.nests().set(&*self.trap);
        self.parent.begin_cancelled(CancelReason::Supervisor);
    }

    fn assert_not_followed(&self) {
        assert!(
            !self.trapped.is_cancelled(),
            "a root was followed that is gone"
        );
    }
}

/// Whether something hangs on the fiber before the model begins, so that its word
/// does not change when a token is hung there.
const HANGS_BEFORE: [bool; 2] = [false, true];

#[test]
fn nobody_follows_the_root_of_a_fiber_that_has_ended() {
    for hangs_before in HANGS_BEFORE {
        loom::model(move || {
            let fiber = Running::new();
            if hangs_before {
                fiber.nest();
            }
            let runner = thread::spawn({
                let fiber = fiber.clone();
                move || {
                    if !hangs_before {
                        fiber.nest();
                    }
                    fiber.end();
                }
            });
            cancel_fiber(&fiber.fiber.0);
            runner.join().unwrap();
            fiber.assert_not_followed();
        });
    }
}

#[test]
fn nobody_follows_it_because_of_a_token_that_was_hung_there_late() {
    // Who comes too late to be told asks for the reason.
    for cancelled_before in [true, false] {
        bounded(3).check(move || {
            let fiber = Running::new();
            if cancelled_before {
                cancel_fiber(&fiber.fiber.0);
            }
            let runner = thread::spawn({
                let fiber = fiber.clone();
                move || fiber.end()
            });
            let token = fiber.fiber.token();
            if !cancelled_before {
                cancel_fiber(&fiber.fiber.0);
            }
            runner.join().unwrap();
            fiber.assert_not_followed();
            let gone = Some(CancelReason::Supervisor);
            assert_ne!(token.reason(), gone, "asked a scope that is gone");
            drop(token);
            fiber.fiber.assert_bare();
        });
    }
}

#[test]
fn who_finds_the_root_of_a_fiber_finds_it_whole() {
    loom::model(|| {
        // The fiber, and the stack frame that its root is in.
        let fiber = Arc::new((Fresh::new(None), Plain::new(0)));
        let token = fiber.0.token(); // before it has begun
        let runner = thread::spawn({
            let fiber = fiber.clone();
            move || {
                // As `first_frame`.
                let (Fresh(block), frame) = &*fiber;
                frame.set(1);
                let root = Root::new(NonNull::from(&**block));
                block.set_root(&root);
                // SAFETY: once, for who runs it.
                unsafe { run_to_completion(block, Begin::Run, root.locals(), || ()) };
                root.leave(block);
                frame.set(2);
            }
        });
        let block = &fiber.0.0;
        if block.state().cancel().hangs {
            // As `Descent::into_fiber`.
            let _lock = block.joiners().lock();
            if block.root_for_others().is_some() {
                assert_eq!(fiber.1.get(), 1);
            }
        }
        runner.join().unwrap();
        drop(token);
        fiber.0.assert_bare();
    });
}

#[test]
fn a_token_hung_on_a_fiber_that_is_cancelled_meanwhile_is_cancelled() {
    for hangs_before in HANGS_BEFORE {
        bounded(3).check(move || {
            let fiber = Running::new();
            if hangs_before {
                fiber.nest();
            }
            let canceller = thread::spawn({
                let fiber = fiber.clone();
                move || cancel_fiber(&fiber.fiber.0)
            });
            let token = fiber.fiber.token();
            canceller.join().unwrap();
            assert!(fiber.fiber.is_cancelled());
            assert!(token.reason().is_some(), "the token was forgotten");
            fiber.end();
            fiber.fiber.assert_bare();
        });
    }
}

#[test]
fn who_cancels_a_fiber_has_cancelled_the_token_that_it_was_given() {
    for hangs_before in HANGS_BEFORE {
        bounded(2).check(move || {
            let fiber = Running::new();
            if hangs_before {
                fiber.nest();
            }
            let other = thread::spawn({
                let fiber = fiber.clone();
                move || fiber.fiber.token()
            });
            let token = fiber.fiber.token();
            assert!(token.reason().is_none());
            cancel_fiber(&fiber.fiber.0);
            assert!(token.reason().is_some(), "cancelled later, by another");
            let theirs = other.join().unwrap();
            assert!(std::sync::Arc::ptr_eq(&token, &theirs));
        });
    }
}

#[test]
fn a_token_hung_on_a_fiber_that_ends_meanwhile_does_not_keep_it() {
    for hangs_before in HANGS_BEFORE {
        // Alone, or with another who asks for it.
        for others in [0, 1] {
            bounded(3 - 2 * others).check(move || {
                let fiber = Running::new();
                if hangs_before {
                    fiber.nest();
                }
                let runner = thread::spawn({
                    let fiber = fiber.clone();
                    move || fiber.end()
                });
                let other = (others > 0).then(|| {
                    let fiber = fiber.clone();
                    thread::spawn(move || drop(fiber.fiber.token()))
                });
                let token = fiber.fiber.token();
                runner.join().unwrap();
                if let Some(other) = other {
                    other.join().unwrap();
                }
                assert!(token.reason().is_none());
                fiber.fiber.assert_bare();
                // It stands for nothing now.
                cancel_token(&token, CancelReason::Requested);
                assert!(!fiber.fiber.is_cancelled());
            });
        }
    }
}

#[test]
fn the_token_of_a_fiber_that_was_cancelled_before_it_ran_is_cancelled() {
    bounded(3).check(|| {
        let ran = Arc::new(Plain::new(false));
        let fiber = Arc::new(Fresh::running(None, {
            let ran = ran.clone();
            move || ran.set(true)
        }));
        let token = fiber.token();
        // Spawned because it looks; see the header of `fiber::loom_tests`.
        let runner = thread::spawn({
            let fiber = fiber.clone();
            move || fiber.run()
        });
        cancel_fiber(&fiber.0);
        runner.join().unwrap();
        assert!(
            ran.get() || token.reason().is_some(),
            "the token was forgotten"
        );
        drop(token);
        fiber.assert_bare();
    });
}

#[test]
fn the_token_of_a_child_whose_scope_was_cancelled_before_it_began_is_cancelled() {
    loom::model(|| {
        let running = Running::new();
        let child = Fresh::new(Some(&running.nest));
        running.nest.count_child();
        let token = child.token();
        let mut descent = Descent::new();
        descent.cancel_nest(&running.nest, &CancelReason::Failed);
        descent.run();
        child.run();
        assert_eq!(token.reason(), Some(CancelReason::Failed));
        drop(token);
        child.assert_bare();
    });
}
