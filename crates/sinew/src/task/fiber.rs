//! A handle to a fiber, or to a plain thread in its place.

use crate::error::Cancelled;
use crate::fiber::cancel::descent;
use crate::fiber::{Block, BlockRef, FiberId, ThreadProxy, WaitReason};
use crate::sched::{current as thread, switch};
use crate::wait::{WaitOutcome, WaitSpec, end};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A fiber, as others see it; cheap to clone.
///
/// It outlives the fiber's end, and does not keep its stack. On a plain thread
/// [`current`] gives a handle that stands for that thread.
///
/// ```
/// sinew::run(|| {
///     let parked = sinew::spawn(sinew::park);
///     let fiber = parked.fiber();
///     fiber.unpark();
///     fiber.wait().unwrap();
///     assert!(fiber.is_finished());
/// });
/// ```
#[derive(Clone)]
pub struct Fiber(Inner);

#[derive(Clone)]
enum Inner {
    Fiber(BlockRef),
    Thread(Arc<ThreadProxy>),
}

/// The fiber that calls this; on a plain thread, that thread's stand-in.
///
/// ```
/// sinew::run(|| {
///     let me = sinew::current();
///     assert_eq!(me.id(), sinew::current().id());
///     assert_ne!(me.id(), sinew::spawn(sinew::current).join().unwrap().id());
/// });
/// ```
pub fn current() -> Fiber {
    match switch::running() {
        // SAFETY: the running fiber is alive.
        Some(block) => Fiber(Inner::Fiber(unsafe { BlockRef::acquire(block) })),
        None => Fiber(Inner::Thread(thread::proxy())),
    }
}

impl Fiber {
    pub(super) fn from_block(block: BlockRef) -> Self {
        Self(Inner::Fiber(block))
    }

    /// Its id.
    pub fn id(&self) -> FiberId {
        FiberId::new(match &self.0 {
            Inner::Fiber(block) => block.id(),
            Inner::Thread(proxy) => proxy.id(),
        })
    }

    /// The name it was given by [`Builder::name`](crate::Builder::name), or its
    /// thread's.
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            // SAFETY: extras live as long as the block is referenced.
            Inner::Fiber(block) => unsafe { block.extras().as_ref() }?.name.as_deref(),
            Inner::Thread(proxy) => proxy.name(),
        }
    }

    /// Leaves a token that ends its current or next [`park`](crate::park).
    ///
    /// As in std, several tokens are one. What was done before `unpark` is seen
    /// after the `park` that it ended.
    pub fn unpark(&self) {
        match &self.0 {
            Inner::Fiber(block) => {
                let wake = block.state().unpark();
                // SAFETY: the answer of this block's own word.
                unsafe { block.follow(wake) };
            }
            Inner::Thread(proxy) => proxy.unpark(),
        }
    }

    /// Asks it to stop.
    ///
    /// Nothing is cut off: from now on every cancellation point of the fiber
    /// ([`sleep`](crate::sleep), [`checkpoint`](crate::checkpoint),
    /// [`Fiber::wait`], …) answers [`Cancelled`], but for those inside of a
    /// [`shield`](crate::shield). A wait in one is woken, and answers so unless what it
    /// waits for comes first; a `park` returns once. The children of the
    /// [scopes](mod@crate::scope) that it is in are cancelled as well, and so on down, before
    /// this returns. A fiber that has not started drops its closure and ends. No effect
    /// on an ended fiber, nor on a plain thread.
    pub fn cancel(&self) {
        if let Inner::Fiber(block) = &self.0 {
            descent::cancel_fiber(block);
        }
    }

    /// Whether it has ended. It never yields.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Inner::Fiber(block) => block.state().load().complete(),
            Inner::Thread(proxy) => proxy.has_ended(),
        }
    }

    /// Waits for its end; any number of fibers and threads may.
    ///
    /// A cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the waiting fiber was cancelled.
    ///
    /// # Panics
    ///
    /// If this stands for a plain thread (join that instead), or for the fiber
    /// that calls it.
    #[track_caller]
    pub fn wait(&self) -> Result<(), Cancelled> {
        let block = self.block_to_await();
        crate::wait::point::check()?;
        let spec = WaitSpec::new(WaitReason::Join, Location::caller())
            .cancellable()
            .lending_to(block);
        match end::wait_for_end(block, &spec) {
            WaitOutcome::Cancelled => Err(Cancelled),
            WaitOutcome::Woken | WaitOutcome::TimedOut => Ok(()),
        }
    }

    /// The block, unless this stands for a thread.
    pub(crate) fn as_block(&self) -> Option<&BlockRef> {
        match &self.0 {
            Inner::Fiber(block) => Some(block),
            Inner::Thread(_) => None,
        }
    }

    /// The block of a fiber whose end the caller may wait for.
    ///
    /// # Panics
    ///
    /// If it is a thread, or the caller.
    #[track_caller]
    pub(crate) fn block_to_await(&self) -> &Block {
        let Inner::Fiber(block) = &self.0 else {
            panic!("waiting for the end of a plain thread's handle; join the thread instead");
        };
        let myself = switch::running() == Some(block.as_ptr());
        assert!(!myself, "a fiber cannot wait for its own end");
        block
    }

    /// What it waits for at the moment.
    ///
    /// ```
    /// use sinew::WaitReason;
    ///
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// runtime.run(|| {
    ///     let parked = sinew::spawn(sinew::park);
    ///     sinew::yield_now();
    ///     assert_eq!(parked.fiber().wait_reason(), WaitReason::Park);
    ///     parked.fiber().unpark();
    /// });
    /// # std::io::Result::Ok(())
    /// ```
    pub fn wait_reason(&self) -> WaitReason {
        match &self.0 {
            Inner::Fiber(block) => block.wait_reason(),
            Inner::Thread(_) => WaitReason::None,
        }
    }

    /// Where in the source it waits, or waited last.
    pub fn waits_at(&self) -> Option<&'static Location<'static>> {
        match &self.0 {
            Inner::Fiber(block) => block.waits_at(),
            Inner::Thread(_) => None,
        }
    }

    /// Where in the source it was spawned.
    pub fn spawned_at(&self) -> Option<&'static Location<'static>> {
        match &self.0 {
            Inner::Fiber(block) => block.spawned_at(),
            Inner::Thread(_) => None,
        }
    }
}

impl fmt::Debug for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fiber")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
