//! An intrusive heap: the smallest key first, nodes where their owner put them.
//!
//! A pairing heap. Each node has a list of children, none of which is smaller;
//! to meld two heaps is to make the larger root the first child of the smaller.
//! Taking a node out melds its children, first in pairs from left to right and
//! then from right to left, and the result with the rest. Inserting is constant
//! time, removing from anywhere logarithmic, amortised. Nothing recurses: fibers
//! have small stacks.
//!
//! ```text
//!   root ─► 3
//!           └─child─► 7 ◄─prev,next─► 4 ◄─► 9       prev of 7: its parent 3
//!                                     └─► 5 ◄─► 6   prev of 5: its parent 4
//! ```
//!
//! Nodes with equal keys leave in the order in which they came.
//!
//! Invariant 1: a linked node stays at its address until it is unlinked.
//! Invariant 2: all links of one heap are touched only under that heap's lock.
//! Invariant 3: no child's key is smaller than its parent's.
//! Invariant 4: a node's `prev` is its previous sibling; that of a first child is
//! its parent; that of the root is null, and so is the root's `next`.

use std::cell::Cell;
use std::marker::PhantomPinned;
use std::ptr::{self, NonNull};

/// What a node embeds to be in a [`Heap`].
pub(crate) struct HeapLinks {
    /// The key, and how many had come before it.
    key: Cell<(u64, u64)>,
    /// The first child.
    child: Cell<*const HeapLinks>,
    /// The next sibling.
    next: Cell<*const HeapLinks>,
    /// See invariant 4.
    prev: Cell<*const HeapLinks>,
    linked: Cell<bool>,
    _pin: PhantomPinned,
}

impl HeapLinks {
    pub(crate) const fn new() -> Self {
        Self {
            key: Cell::new((0, 0)),
            child: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            prev: Cell::new(ptr::null()),
            linked: Cell::new(false),
            _pin: PhantomPinned,
        }
    }

    /// Whether the node is in a heap; ask under that heap's lock.
    pub(crate) fn is_linked(&self) -> bool {
        self.linked.get()
    }
}

/// Nodes, the smallest at the root.
pub(crate) struct Heap {
    root: *const HeapLinks,
    arrivals: u64,
}

// SAFETY: the pointer is only followed under the lock that holds the `Heap`
// (invariant 2), and nodes stay valid while linked (invariant 1), so the root may
// be carried by any thread.
unsafe impl Send for Heap {}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self {
            root: ptr::null(),
            arrivals: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_null()
    }

    /// The smallest key.
    pub(crate) fn first_key(&self) -> Option<u64> {
        // SAFETY: null, or linked and so valid (invariant 1).
        unsafe { self.root.as_ref() }.map(|root| root.key.get().0)
    }

    /// Adds `node`.
    ///
    /// # Safety
    ///
    /// `node` is in no heap, and stays at its address until unlinked.
    pub(crate) unsafe fn insert(&mut self, node: NonNull<HeapLinks>, key: u64) {
        // SAFETY: the caller pins the node; we hold the heap (`&mut`).
        let links = unsafe { node.as_ref() };
        debug_assert!(!links.linked.get());
        links.key.set((key, self.arrivals));
        self.arrivals = self.arrivals.wrapping_add(1);
        links.child.set(ptr::null());
        links.next.set(ptr::null());
        links.prev.set(ptr::null());
        links.linked.set(true);
        // SAFETY: both are roots: the node has no relatives yet.
        self.root = unsafe { meld(self.root, node.as_ptr()) };
    }

    /// Takes the node with the smallest key.
    pub(crate) fn pop_first(&mut self) -> Option<NonNull<HeapLinks>> {
        let node = NonNull::new(self.root.cast_mut())?;
        // SAFETY: the root is linked in this heap.
        unsafe { self.remove(node) };
        Some(node)
    }

    /// Unlinks `node`, wherever in the heap it is.
    ///
    /// # Safety
    ///
    /// `node` is linked in this very heap.
    pub(crate) unsafe fn remove(&mut self, node: NonNull<HeapLinks>) {
        // SAFETY: linked nodes are valid (invariant 1).
        let links = unsafe { node.as_ref() };
        debug_assert!(links.linked.get());
        links.linked.set(false);
        // SAFETY: its children are linked, and it gives them up.
        let orphans = unsafe { meld_siblings(links.child.get()) };
        if ptr::eq(self.root, links) {
            self.root = orphans;
            return;
        }
        // SAFETY: not the root, so it has a `prev` (invariant 4), which is linked
        // and so valid (invariant 1); as for `next`, if there is one.
        let (prev, next) = unsafe { (&*links.prev.get(), links.next.get().as_ref()) };
        // A previous sibling has children of its own, never this one.
        if ptr::eq(prev.child.get(), links) {
            prev.child.set(links.next.get());
        } else {
            prev.next.set(links.next.get());
        }
        if let Some(next) = next {
            next.prev.set(prev);
        }
        // SAFETY: both are roots (`meld_siblings`), or null.
        self.root = unsafe { meld(self.root, orphans) };
    }
}

/// Makes one heap of two, and answers its root.
///
/// # Safety
///
/// Both are null, or valid nodes with neither `prev` nor `next`; and not the same
/// one.
unsafe fn meld(a: *const HeapLinks, b: *const HeapLinks) -> *const HeapLinks {
    // SAFETY: the caller's promise.
    let (Some(one), Some(other)) = (unsafe { (a.as_ref(), b.as_ref()) }) else {
        return if a.is_null() { b } else { a };
    };
    let (parent, child) = if one.key.get() < other.key.get() {
        (one, other)
    } else {
        (other, one)
    };
    // SAFETY: children are linked, and so valid (invariant 1).
    if let Some(sibling) = unsafe { parent.child.get().as_ref() } {
        sibling.prev.set(child);
    }
    child.next.set(parent.child.get());
    child.prev.set(parent);
    parent.child.set(child);
    parent
}

/// Makes one heap of a list of siblings, and answers its root; null for none.
///
/// # Safety
///
/// `first` is null or a first child, whose parent gives up its children.
unsafe fn meld_siblings(first: *const HeapLinks) -> *const HeapLinks {
    // From left to right in pairs, stacked through `next`.
    let mut pairs: *const HeapLinks = ptr::null();
    let mut rest = first;
    // SAFETY: siblings are linked, and so valid (invariant 1).
    while let Some(one) = unsafe { rest.as_ref() } {
        let second = one.next.replace(ptr::null());
        one.prev.set(ptr::null());
        rest = ptr::null();
        // SAFETY: as above.
        if let Some(other) = unsafe { second.as_ref() } {
            rest = other.next.replace(ptr::null());
            other.prev.set(ptr::null());
        }
        // SAFETY: cut off from their siblings just now.
        let pair = unsafe { meld(one, second) };
        // SAFETY: one of the two.
        unsafe { &*pair }.next.set(pairs);
        pairs = pair;
    }
    // And from right to left.
    let mut root: *const HeapLinks = ptr::null();
    // SAFETY: the roots made above.
    while let Some(pair) = unsafe { pairs.as_ref() } {
        pairs = pair.next.replace(ptr::null());
        // SAFETY: `pair` is off the stack, and both are roots.
        root = unsafe { meld(root, pair) };
    }
    root
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Heap, HeapLinks};
    use crate::util::rng::Rng;
    use std::ptr::NonNull;

    /// They stay put: the vector does not grow.
    struct Nodes(Vec<HeapLinks>);

    impl Nodes {
        fn new(count: usize) -> Self {
            Self((0..count).map(|_| HeapLinks::new()).collect())
        }

        fn at(&self, index: usize) -> NonNull<HeapLinks> {
            NonNull::from(&self.0[index])
        }

        fn index_of(&self, node: NonNull<HeapLinks>) -> usize {
            let found = self.0.iter().position(|other| NonNull::from(other) == node);
            found.unwrap()
        }
    }

    #[test]
    fn nodes_leave_by_their_keys_and_equal_ones_in_the_order_in_which_they_came() {
        let keys = [5, 3, 8, 3, 1, 5, 3, 9, 1];
        let nodes = Nodes::new(keys.len());
        let mut heap = Heap::new();
        for (index, key) in keys.into_iter().enumerate() {
            // SAFETY: nodes stay put; each is linked once.
            unsafe { heap.insert(nodes.at(index), key) };
        }
        assert_eq!(heap.first_key(), Some(1));
        let order: Vec<usize> = std::iter::from_fn(|| heap.pop_first())
            .map(|node| nodes.index_of(node))
            .collect();
        assert_eq!(order, [4, 8, 1, 3, 6, 0, 5, 2, 7]);
        assert!(heap.is_empty());
        assert_eq!(heap.first_key(), None);
    }

    #[test]
    fn any_mix_of_inserting_and_removing_agrees_with_a_sorted_vector() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let nodes = Nodes::new(64);
            let mut heap = Heap::new();
            // The same in plain: (key, arrival, index).
            let mut model: Vec<(u64, u64, usize)> = Vec::new();
            for arrival in 0..400 {
                let index = rng.below(64);
                if !nodes.0[index].is_linked() {
                    let key = rng.below(20) as u64;
                    // SAFETY: nodes stay put; it is not linked.
                    unsafe { heap.insert(nodes.at(index), key) };
                    model.push((key, arrival, index));
                    model.sort_unstable();
                } else if rng.below(2) == 0 {
                    // SAFETY: it is linked, in the only heap there is.
                    unsafe { heap.remove(nodes.at(index)) };
                    model.retain(|entry| entry.2 != index);
                } else {
                    let first = heap.pop_first().map(|node| nodes.index_of(node));
                    assert_eq!(first, Some(model.remove(0).2), "seed {seed}");
                }
                let first = model.first().map(|entry| entry.0);
                assert_eq!(heap.first_key(), first, "seed {seed}");
                let linked = nodes.0.iter().filter(|node| node.is_linked()).count();
                assert_eq!(linked, model.len(), "seed {seed}");
            }
            while let Some(node) = heap.pop_first() {
                assert_eq!(nodes.index_of(node), model.remove(0).2, "seed {seed}");
            }
            assert!(model.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn a_great_many_nodes_need_no_deep_stack() {
        const MANY: usize = 100_000;
        let nodes = Nodes::new(MANY);
        let mut heap = Heap::new();
        for index in 0..MANY {
            // SAFETY: nodes stay put; each is linked once.
            unsafe { heap.insert(nodes.at(index), (MANY - index) as u64) };
        }
        // A chain of only children now; its middle leaves first.
        for index in (0..MANY).step_by(2) {
            // SAFETY: linked above.
            unsafe { heap.remove(nodes.at(index)) };
        }
        let mut last = 0;
        let mut left = 0;
        while let Some(node) = heap.pop_first() {
            // SAFETY: it stays put.
            let key = unsafe { node.as_ref() }.key.get().0;
            assert!(last < key);
            (last, left) = (key, left + 1);
        }
        assert_eq!(left, MANY / 2);
    }
}
