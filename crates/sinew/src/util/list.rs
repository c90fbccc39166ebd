//! An intrusive doubly linked list: nodes live where their owner put them.
//!
//! The list neither allocates nor owns: a [`Links`] is embedded in a node that
//! somebody pins (usually on a waiting stack), and whoever holds the list's
//! lock may link and unlink it. Push, pop and remove are all constant time.
//!
//! ```text
//!   head ─► [prev|next] ◄─► [prev|next] ◄─► [prev|next] ◄─ tail
//! ```
//!
//! Invariant 1: a linked node stays at its address until it is unlinked.
//! Invariant 2: all links of one list are touched only under that list's lock.
//! Invariant 3: `linked` says whether the node is in a list.

use std::cell::Cell;
use std::marker::PhantomPinned;
use std::ptr::{self, NonNull};

/// What a node embeds to be in a [`List`].
pub(crate) struct Links {
    prev: Cell<*const Links>,
    next: Cell<*const Links>,
    linked: Cell<bool>,
    _pin: PhantomPinned,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Self {
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            linked: Cell::new(false),
            _pin: PhantomPinned,
        }
    }

    /// The next node of a chain that the owner of an unlinked node makes of it.
    pub(crate) fn chained(&self) -> &Cell<*const Links> {
        debug_assert!(!self.linked.get());
        &self.next
    }

    /// Whether the node is in a list; ask under that list's lock.
    pub(crate) fn is_linked(&self) -> bool {
        self.linked.get()
    }
}

/// The two ends of a list.
pub(crate) struct List {
    head: *const Links,
    tail: *const Links,
}

// SAFETY: the pointers are only followed under the lock that holds the `List`
// (invariant 2), and nodes stay valid while linked (invariant 1), so the ends
// may be carried by any thread.
unsafe impl Send for List {}

impl List {
    pub(crate) const fn new() -> Self {
        Self {
            head: ptr::null(),
            tail: ptr::null(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends `node`.
    ///
    /// # Safety
    ///
    /// `node` is in no list, and stays at its address until unlinked.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, node: NonNull<Links>) {
        // SAFETY: the caller pins the node; we hold the list (`&mut`).
        let links = unsafe { node.as_ref() };
        debug_assert!(!links.linked.get());
        links.prev.set(self.tail);
        links.next.set(ptr::null());
        links.linked.set(true);
        match NonNull::new(self.tail.cast_mut()) {
            // SAFETY: a linked node is valid (invariant 1).
            Some(tail) => unsafe { tail.as_ref() }.next.set(node.as_ptr()),
            None => self.head = node.as_ptr(),
        }
        self.tail = node.as_ptr();
    }

    /// Puts `node` before all others.
    ///
    /// # Safety
    ///
    /// As for [`push_back`](Self::push_back).
    pub(crate) unsafe fn push_front(&mut self, node: NonNull<Links>) {
        // SAFETY: the caller pins the node; we hold the list (`&mut`).
        let links = unsafe { node.as_ref() };
        debug_assert!(!links.linked.get());
        links.prev.set(ptr::null());
        links.next.set(self.head);
        links.linked.set(true);
        match NonNull::new(self.head.cast_mut()) {
            // SAFETY: a linked node is valid (invariant 1).
            Some(head) => unsafe { head.as_ref() }.prev.set(node.as_ptr()),
            None => self.tail = node.as_ptr(),
        }
        self.head = node.as_ptr();
    }

    /// The oldest node.
    #[inline]
    pub(crate) fn front(&self) -> Option<NonNull<Links>> {
        NonNull::new(self.head.cast_mut())
    }

    /// Takes the oldest node.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<NonNull<Links>> {
        let node = NonNull::new(self.head.cast_mut())?;
        // SAFETY: the head is linked in this list, hence valid (invariant 1).
        unsafe { self.remove(node) };
        Some(node)
    }

    /// Unlinks `node`, wherever in the list it is.
    ///
    /// # Safety
    ///
    /// `node` is linked in this very list.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, node: NonNull<Links>) {
        // SAFETY: linked nodes are valid (invariant 1).
        let links = unsafe { node.as_ref() };
        debug_assert!(links.linked.get());
        let (prev, next) = (links.prev.get(), links.next.get());
        match NonNull::new(prev.cast_mut()) {
            // SAFETY: a neighbour is linked, hence valid (invariant 1).
            Some(prev) => unsafe { prev.as_ref() }.next.set(next),
            None => self.head = next,
        }
        match NonNull::new(next.cast_mut()) {
            // SAFETY: as above.
            Some(next) => unsafe { next.as_ref() }.prev.set(prev),
            None => self.tail = prev,
        }
        links.linked.set(false);
    }

    /// The oldest node for which `fits` is true.
    pub(crate) fn find(
        &self,
        mut fits: impl FnMut(NonNull<Links>) -> bool,
    ) -> Option<NonNull<Links>> {
        let mut at = self.head;
        while let Some(node) = NonNull::new(at.cast_mut()) {
            if fits(node) {
                return Some(node);
            }
            // SAFETY: linked nodes are valid (invariant 1).
            at = unsafe { node.as_ref() }.next.get();
        }
        None
    }

    /// Calls `visit` for each node from the oldest to the newest.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(NonNull<Links>)) {
        let mut at = self.head;
        while let Some(node) = NonNull::new(at.cast_mut()) {
            // SAFETY: linked nodes are valid (invariant 1).
            at = unsafe { node.as_ref() }.next.get();
            visit(node);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Links, List};
    use std::ptr::NonNull;

    #[test]
    fn nodes_come_out_in_order_and_can_leave_from_anywhere() {
        let nodes: Vec<Box<Links>> = (0..5).map(|_| Box::new(Links::new())).collect();
        let at = |i: usize| NonNull::from(&*nodes[i]);
        let mut list = List::new();
        for i in 0..5 {
            // SAFETY: boxed nodes stay put; each is linked once.
            unsafe { list.push_back(at(i)) };
        }
        for i in [0, 2, 4] {
            // SAFETY: linked above.
            unsafe { list.remove(at(i)) };
            assert!(!nodes[i].is_linked());
        }
        let mut seen = Vec::new();
        list.for_each(|node| seen.push(node));
        assert_eq!(seen, [at(1), at(3)]);
        // SAFETY: removed above.
        unsafe { list.push_front(at(4)) };
        assert_eq!(list.front(), Some(at(4)));
        assert_eq!(list.pop_front(), Some(at(4)));
        assert_eq!(list.pop_front(), Some(at(1)));
        assert_eq!(list.pop_front(), Some(at(3)));
        assert_eq!(list.pop_front(), None);
        assert!(list.is_empty());
    }
}
