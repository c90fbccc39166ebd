//! A waiter's place in one list, and the lists that such places are in.
//!
//! A wait has one [`Waiter`] and a [`Node`] in each list that it waits in: one,
//! as a rule, or one for each arm of a select. What a primitive needs to know of
//! a waiter (how many permits, which message) is in a struct of its own that
//! begins with the node: a [`Place`]. All of it is in the frame that waits, or
//! pinned in a task's future.
//!
//! Invariant 1 (lock): a list, its nodes' links and the rest of each place are
//! touched only under the lock that the list is in, but by the waiter itself
//! before it links the node and after it was notified or unlinked it.
//! Invariant 2 (until fired): who won a claim may use the place of a fiber or
//! thread until it fires the wake-up, even after it gave up the lock; the place
//! of a task only under the lock (`wait`, invariants 2 and 3).

use super::waiter::{Waiter, Wakeup};
use crate::util::list::{Links, List};
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::task::Waker;

/// One waiter's place in one list.
#[repr(C)]
pub(crate) struct Node {
    /// First, so that a pointer to the links is one to the node.
    links: Links,
    /// Whose place it is; set before it is linked.
    waiter: Cell<*const Waiter>,
    /// Which place of the waiter's it is.
    number: Cell<u32>,
}

// SAFETY: the cells follow invariant 1.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            links: Links::new(),
            waiter: Cell::new(ptr::null()),
            number: Cell::new(0),
        }
    }

    /// Says whose place it is, before it is linked.
    #[inline]
    pub(crate) fn belongs_to(&self, waiter: &Waiter, number: u32) {
        self.waiter.set(waiter);
        self.number.set(number);
    }

    /// Whether it is in a list; under that list's lock.
    pub(crate) fn is_linked(&self) -> bool {
        self.links.is_linked()
    }

    /// The waiter whose place it is.
    ///
    /// # Safety
    ///
    /// The node is linked (or was claimed and not yet fired), and the caller
    /// holds the list's lock.
    #[inline]
    pub(crate) unsafe fn waiter(&self) -> &Waiter {
        // SAFETY: set when it was linked; the waiter outlives its links.
        unsafe { &*self.waiter.get() }
    }

    /// Ends its waiter's wait through this place; none if another was first.
    ///
    /// # Safety
    ///
    /// As for [`waiter`](Self::waiter).
    #[inline]
    pub(crate) unsafe fn claim(&self) -> Option<Wakeup> {
        // SAFETY: the caller's promise.
        unsafe { self.waiter() }.claim(self.number.get())
    }

    /// Whether it is a place of this waiter.
    pub(crate) fn is_of(&self, waiter: &Waiter) -> bool {
        ptr::eq(self.waiter.get(), waiter)
    }
}

/// A struct that begins with a [`Node`].
///
/// # Safety
///
/// It is `repr(C)` and its first field is the node.
pub(crate) unsafe trait Place {
    fn node(&self) -> &Node;
}

// SAFETY: it is the node.
unsafe impl Place for Node {
    fn node(&self) -> &Node {
        self
    }
}

/// Places in the order in which they came.
pub(crate) struct WaitList<P> {
    list: List,
    places: PhantomData<*const P>,
}

// SAFETY: as `List`: followed only under the lock that holds it.
unsafe impl<P> Send for WaitList<P> {}

impl<P: Place> WaitList<P> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            list: List::new(),
            places: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn links(place: &P) -> NonNull<Links> {
        // The links are the first field of the node, which is that of the place;
        // the pointer is good for the whole place.
        NonNull::from(place).cast()
    }

    /// Appends `place`.
    ///
    /// # Safety
    ///
    /// It belongs to a waiter, and both stay where they are until it is
    /// unlinked.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, place: &P) {
        // SAFETY: the caller's promise.
        unsafe { self.list.push_back(Self::links(place)) };
    }

    /// Puts `place` before all others.
    ///
    /// # Safety
    ///
    /// As for [`push_back`](Self::push_back).
    pub(crate) unsafe fn push_front(&mut self, place: &P) {
        // SAFETY: the caller's promise.
        unsafe { self.list.push_front(Self::links(place)) };
    }

    /// Unlinks `place` if it is linked; false if it was not.
    ///
    /// # Safety
    ///
    /// If it is linked, then in this very list.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, place: &P) -> bool {
        let linked = place.node().is_linked();
        if linked {
            // SAFETY: the caller's promise.
            unsafe { self.list.remove(Self::links(place)) };
        }
        linked
    }

    /// The oldest place.
    #[inline]
    pub(crate) fn front(&self) -> Option<&P> {
        // SAFETY: linked places are valid, and the borrow of the list keeps it
        // from being unlinked (invariant 1).
        self.list
            .front()
            .map(|links| unsafe { links.cast::<P>().as_ref() })
    }

    /// Takes the oldest place, claimed or not.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<NonNull<P>> {
        self.list.pop_front().map(NonNull::cast)
    }

    /// Takes the oldest place whose waiter still waits, and ends its wait.
    ///
    /// The place may be used until the answer is fired; a task's only under the
    /// list's lock (invariant 2).
    #[inline]
    pub(crate) fn claim_front(&mut self) -> Option<(NonNull<P>, Wakeup)> {
        loop {
            let place = self.pop_front()?;
            // SAFETY: it was linked, and we hold the lock. If the claim is lost
            // its waiter comes for this lock before it goes.
            if let Some(wakeup) = unsafe { place.as_ref().node().claim() } {
                return Some((place, wakeup));
            }
        }
    }

    /// The oldest place for which `fits` is true.
    pub(crate) fn find(&self, fits: impl Fn(&P) -> bool) -> Option<NonNull<P>> {
        // SAFETY: linked places are valid while we hold the list.
        let fits = |links: NonNull<Links>| fits(unsafe { links.cast::<P>().as_ref() });
        self.list.find(fits).map(NonNull::cast)
    }

    /// Claims all, in order, into `wakes`.
    #[inline]
    pub(crate) fn claim_all(&mut self, wakes: &mut Wakes) {
        while let Some((place, wakeup)) = self.claim_front() {
            // SAFETY: claimed just now, under the lock.
            unsafe { wakes.add(place.as_ref().node(), wakeup) };
        }
    }

    /// Calls `visit` for each place from the oldest to the newest.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&P)) {
        // SAFETY: linked places are valid while we hold the list.
        self.list
            .for_each(|links| visit(unsafe { links.cast::<P>().as_ref() }));
    }
}

/// Waits that were claimed under a lock, to be woken without it.
///
/// Fibers and threads are chained through their own nodes, which stay until
/// they are fired (invariant 2): no allocation. Only the wakers of async tasks
/// need room.
#[must_use = "claimed waiters that are not notified wait for ever"]
pub(crate) struct Wakes {
    /// The first of them, unless it is a task: mostly there is no other.
    one: Option<Wakeup>,
    first: *const Node,
    last: *const Node,
    /// Dropped by hand: most have none, and its drop is a call.
    tasks: ManuallyDrop<Vec<Wakeup>>,
}

impl Wakes {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            one: None,
            first: ptr::null(),
            last: ptr::null(),
            tasks: ManuallyDrop::new(Vec::new()),
        }
    }

    /// Adds a waiter that was just claimed through `node`.
    ///
    /// # Safety
    ///
    /// The claim was won by the caller, who holds the lock; `wakeup` is its
    /// answer.
    #[inline]
    pub(crate) unsafe fn add(&mut self, node: &Node, wakeup: Wakeup) {
        if let Wakeup::Task(_) = wakeup {
            self.tasks.push(wakeup);
            return;
        }
        if self.one.is_none() {
            self.one = Some(wakeup);
            return;
        }
        // The same whom `fire` will ask the waiter for.
        drop(wakeup);
        node.links.chained().set(ptr::null());
        // SAFETY: null, or a node that was added and not yet fired.
        match unsafe { self.last.as_ref() } {
            Some(last) => last
                .links
                .chained()
                .set(NonNull::from(node).cast().as_ptr()),
            None => self.first = node,
        }
        self.last = node;
    }

    /// Wakes them, in order; tasks last. No lock may be held: wakers of tasks
    /// are user code.
    #[inline]
    pub(crate) fn fire(self) {
        drop(self);
    }

    /// Wakes fibers and threads. Tasks too, unless `standing` is a select that
    /// stands in lines: then when it has left them.
    pub(crate) fn fire_for(mut self, standing: Option<&Waiter>) {
        if let (Some(select), false) = (standing, self.tasks.is_empty()) {
            select.defer(std::mem::take(&mut *self.tasks));
        }
    }

    /// Wakes fibers and threads, and answers the tasks' wakers, for the caller to call.
    pub(crate) fn fire_but_tasks(mut self) -> Vec<Waker> {
        let tasks = std::mem::take(&mut *self.tasks);
        let wakers = tasks.into_iter().filter_map(|task| match task {
            Wakeup::Task(waker) => waker,
            Wakeup::Fiber(_) | Wakeup::Thread(_) => unreachable!("only tasks are kept"),
        });
        wakers.collect()
    }

    /// Whether there are tasks among them, whose wakers are user code.
    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    #[cold]
    fn fire_chain(&mut self) {
        let mut next = std::mem::replace(&mut self.first, ptr::null());
        // SAFETY: each node was claimed by us and is not yet fired, so it and
        // its waiter are there (invariant 2); after `fire` they are not, so the
        // link is read before.
        while let Some(node) = unsafe { next.as_ref() } {
            next = node.links.chained().get().cast();
            // SAFETY: as above.
            let wakeup = unsafe { &*node.waiter.get() }.early_wakeup();
            wakeup.expect("a task is not chained").fire();
        }
    }
}

/// Fires what was not fired: a claimed wait must be notified.
impl Drop for Wakes {
    #[inline]
    fn drop(&mut self) {
        if let Some(wakeup) = self.one.take() {
            wakeup.fire(); // a fiber or a thread: does not unwind
        }
        if !self.first.is_null() {
            self.fire_chain();
        }
        if self.tasks.capacity() > 0 {
            fire_tasks(std::mem::take(&mut *self.tasks));
        }
    }
}

/// Wakes tasks.
#[cold]
pub(super) fn fire_tasks(tasks: Vec<Wakeup>) {
    tasks.into_iter().for_each(Wakeup::fire);
}
