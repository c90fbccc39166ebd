//! Values bound for the time of a call, seen by children of scopes.
//!
//! A binding is in the stack frame of the call that made it, linked to the one outward of
//! it. A child of a scope begins with the binding that was innermost where the scope was
//! made: that is outward of the scope, so it lives longer than the child. What is bound
//! inside of the scope's closure is not seen by children: it may be gone before them.
//!
//! `with`, and a scope, count at the binding that they use: `bind` must not be left
//! while a coroutine is suspended in there (`fiber::users`).

use crate::fiber::Binding;
use crate::fiber::users::left_out_of_order;
use crate::wait::chain;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU8;

/// A value that is bound for the time of a call, and seen in all that is called, and in
/// all children of scopes that are made in it, by reference.
///
/// For what would otherwise be an argument of every function: a request's id, a user, a
/// deadline. Unlike a [fiber-local](crate::fiber_local!) it is inherited, and cannot be
/// changed, only bound anew for an inner call. [`spawn`](crate::spawn), whose fiber may
/// outlive the call, does not pass it on, nor does
/// [`spawn_blocking`](crate::spawn_blocking); [`blocking`](crate::blocking) does.
///
/// Children see what is bound where their *scope* was made, not where they are spawned: what
/// is bound inside of the scope's closure may be gone before them.
///
/// ```
/// use sinew::ScopedValue;
///
/// static USER: ScopedValue<String> = ScopedValue::new();
///
/// fn greeting() -> String {
///     USER.with(|user| format!("hello, {}", user.map_or("stranger", |name| name)))
/// }
///
/// sinew::run(|| {
///     let name = String::from("Ada");
///     USER.bind(&name, || {
///         sinew::scope(|s| {
///             let child = s.spawn(greeting); // sees it, without a copy
///             assert_eq!(child.join().unwrap(), "hello, Ada");
///         });
///     });
///     assert_eq!(greeting(), "hello, stranger");
/// });
/// ```
///
/// It is told apart from others by where it is, so it must be a `static`:
///
/// ```compile_fail,E0716
/// const NUMBER: sinew::ScopedValue<u32> = sinew::ScopedValue::new();
/// NUMBER.bind(&1, || ());
/// ```
///
/// What is bound for `'static` borrows cannot be given shorter ones:
///
/// ```compile_fail,E0308
/// use sinew::ScopedValue;
///
/// static KEEP: ScopedValue<fn(&'static str)> = ScopedValue::new();
/// let short: &'static ScopedValue<for<'a> fn(&'a str)> = &KEEP;
/// ```
pub struct ScopedValue<T: 'static> {
    /// So that each has an address of its own: never that of another `static`, and, since
    /// it might change, never that of a constant's, which would be shared.
    _place: AtomicU8,
    /// Neither more nor less than `T`: what is bound as one type must not be read as
    /// another, by its lifetimes either.
    _value: PhantomData<fn(T) -> T>,
}

impl<T: Sync + 'static> ScopedValue<T> {
    /// A value that is not bound; for a `static`.
    pub const fn new() -> Self {
        Self {
            _place: AtomicU8::new(0),
            _value: PhantomData,
        }
    }

    fn key(&'static self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Runs `f` with this bound to `value`.
    ///
    /// The process is aborted, with a message, if this returns while a coroutine of another
    /// library is suspended inside of a scope that was made in `f`, or of
    /// [`with`](Self::with): it would find a value that is gone.
    pub fn bind<R>(&'static self, value: &T, f: impl FnOnce() -> R) -> R {
        struct Unbind<'a>(&'a Binding);
        impl Drop for Unbind<'_> {
            fn drop(&mut self) {
                if !std::ptr::eq(chain::values(), self.0) || self.0.users().are_there() {
                    left_out_of_order();
                }
                chain::set_values(self.0.outer());
            }
        }
        let value = std::ptr::from_ref(value).cast();
        let binding = Binding::new(self.key(), value, chain::values());
        chain::set_values(&binding);
        let _unbind = Unbind(&binding);
        f()
    }

    /// Calls `f` with what this is bound to.
    pub fn with<R>(&'static self, f: impl FnOnce(Option<&T>) -> R) -> R {
        // SAFETY: the innermost binding of the fiber or thread that runs here.
        if let Some((_user, value)) = unsafe { Binding::find(chain::values(), self.key()) } {
            // SAFETY: bound by `bind` of this key, so of this type, and `Sync`, since it may
            // be another fiber's. It stays for as long as its use is counted.
            return f(Some(unsafe { &*value.cast::<T>() }));
        }
        f(None)
    }

    /// A clone of what this is bound to.
    pub fn get(&'static self) -> Option<T>
    where
        T: Clone,
    {
        self.with(|value| value.cloned())
    }

    /// Whether it is bound.
    pub fn is_bound(&'static self) -> bool {
        self.with(|value| value.is_some())
    }
}

impl<T: Sync + 'static> Default for ScopedValue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: 'static> fmt::Debug for ScopedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedValue").finish_non_exhaustive()
    }
}
