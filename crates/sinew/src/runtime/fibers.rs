//! The doors to the list of a runtime's fibers (`worker::fibers`).

use super::runtime::{Handle, Runtime};
use crate::worker::fibers::Fibers;

impl Handle {
    /// Lists the fibers of the runtime that have not completed: a fiber whose result
    /// [`join`](crate::JoinHandle::join) has returned is not in it.
    ///
    /// Waits for nothing, and holds nobody up: the registry of fibers is locked for 256 of them
    /// at a time. A fiber that is there all the time is listed once. Those that begin or end
    /// meanwhile may be missing, and what is said of each may have changed by the time it is
    /// read.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::{FiberState, WaitReason};
    ///
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// runtime.run(|| {
    ///     let parked = sinew::Builder::new().name("parked").spawn(sinew::park)?;
    ///     sinew::yield_now();
    ///     let fibers: Vec<_> = sinew::Handle::current().fibers().collect();
    ///     assert_eq!(fibers.len(), 2); // this one, and the other
    ///     let other = fibers.iter().find(|fiber| fiber.name.is_some()).unwrap();
    ///     assert_eq!(other.state, FiberState::Waiting);
    ///     assert_eq!(other.waits_for, WaitReason::Park);
    ///     parked.fiber().unpark();
    ///     std::io::Result::Ok(())
    /// })
    /// # ?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn fibers(&self) -> Fibers {
        Fibers::of(self.shared.clone())
    }
}

impl Runtime {
    /// Lists the fibers of the runtime that have not completed; see [`Handle::fibers`].
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// let parked = runtime.spawn(sinew::park);
    /// let listed = runtime.fibers().next().unwrap();
    /// assert_eq!(listed.id, parked.fiber().id());
    /// parked.fiber().unpark();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn fibers(&self) -> Fibers {
        Fibers::of(self.shared().clone())
    }
}
