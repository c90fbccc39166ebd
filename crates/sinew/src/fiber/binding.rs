//! One binding of a scoped value, as the chain of bindings has it.
//!
//! A binding is in the stack frame of `ScopedValue::bind`, linked to the one outward of it.
//! Where a fiber that is the child of a scope, or a pool thread that runs a closure of
//! `blocking`, begins with bindings of somebody else, there is a *boundary* in between: a
//! binding of nothing. A call that uses a binding beyond it is counted at the boundary,
//! since the counts of the others belong to another thread.

use super::users::{User, Users};
use std::ptr;

/// See the module header.
pub(crate) struct Binding {
    /// Of which scoped value; null for a boundary.
    key: *const (),
    value: *const (),
    outer: *const Binding,
    users: Users,
}

impl Binding {
    pub(crate) fn new(key: *const (), value: *const (), outer: *const Binding) -> Self {
        Self {
            key,
            value,
            outer,
            users: Users::new(),
        }
    }

    /// A boundary between the bindings of another fiber and those to come.
    pub(crate) fn boundary(outer: *const Binding) -> Self {
        Self::new(ptr::null(), ptr::null(), outer)
    }

    pub(crate) fn outer(&self) -> *const Binding {
        self.outer
    }

    /// The calls that use it at the moment; for the fiber or thread in whose frame it is.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Finds the innermost binding of `key`, outward from `at`. Returns its value, and a
    /// guard that counts the use.
    ///
    /// # Safety
    ///
    /// `at` is null or the innermost binding, or boundary, of the fiber or thread that
    /// calls this.
    #[inline]
    pub(crate) unsafe fn find(mut at: *const Self, key: *const ()) -> Option<(User, *const ())> {
        let mut counted: Option<&Users> = None;
        // SAFETY: linked from inside outward, each is there for as long as what is inside
        // of it: its end looks whether it is still the innermost.
        while let Some(binding) = unsafe { at.as_ref() } {
            if ptr::eq(binding.key, key) {
                let users = counted.unwrap_or(&binding.users);
                // SAFETY: our own, and the end of `bind`, of the fiber, or of the closure
                // of `blocking` looks there.
                return Some((unsafe { users.enter() }, binding.value));
            }
            if binding.key.is_null() && counted.is_none() {
                counted = Some(&binding.users);
            }
            at = binding.outer;
        }
        None
    }
}
