//! The values of `fiber_local!` that one fiber or thread has.
//!
//! A key gets a number when it is first used; a table says where in the list of
//! values, which is in the order in which they were made, the one with that number
//! is. Values are boxed: they stay where they are while the table grows.
//!
//! A value counts the calls that use it (`fiber::users`): one that is still in use at the
//! end, by a coroutine that is suspended in `with`, is leaked, and the log says so.
//!
//! At the end they are dropped, the last made first, on the stack of the fiber or
//! thread. A drop may make others: they are dropped in the next of [`ROUNDS`]
//! rounds; what is left then is leaked.

use super::users::{User, Users};
use crate::sys::log::log;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// As many as POSIX promises for those of threads.
const ROUNDS: usize = 5;

/// The content of a box: the count is first, so that it is found without the type.
#[repr(C)]
struct Counted<T> {
    users: Users,
    value: T,
}

/// A boxed [`Counted`] whose type was forgotten.
#[derive(Clone, Copy)]
struct Value {
    key: usize,
    at: NonNull<()>,
    drop: unsafe fn(NonNull<()>),
}

#[derive(Default)]
struct Table {
    /// By the number of the key: one more than the index in `values`, or 0.
    by_key: Vec<u32>,
    /// In the order in which they were made; none for one that was dropped.
    values: Vec<Option<Value>>,
}

/// Counts one more user of the value in the box at `at`.
///
/// # Safety
///
/// It is a box of a `Counted<T>` that is in the table of the fiber or thread that runs here.
#[inline]
unsafe fn use_at<T>(at: NonNull<()>) -> (User, NonNull<T>) {
    // SAFETY: the caller's promise; `drop_one` does not free it while it is counted.
    unsafe {
        let counted = at.cast::<Counted<T>>().as_ref();
        (counted.users.enter(), NonNull::from(&counted.value))
    }
}

/// All of one fiber or thread; used by that alone.
///
/// One word while there are none: each fiber has it, few use it.
pub(crate) struct Locals(Cell<Option<NonNull<RefCell<Table>>>>);

impl Locals {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(None))
    }

    fn table(&self) -> Option<&RefCell<Table>> {
        // SAFETY: leaked by `table_or_new`, and freed by `drop_some` alone, which
        // nobody calls while the answer is in use: no user code runs meanwhile.
        self.0.get().map(|table| unsafe { table.as_ref() })
    }

    fn table_or_new(&self) -> &RefCell<Table> {
        let table = self.0.get().unwrap_or_else(|| {
            let table = NonNull::from(Box::leak(Box::default()));
            self.0.set(Some(table));
            table
        });
        // SAFETY: as in `table`.
        unsafe { table.as_ref() }
    }

    /// Where the value of the key with this number is, if it was made.
    #[inline]
    fn find(&self, key: usize) -> Option<NonNull<()>> {
        let table = self.table()?.borrow();
        let place = *table.by_key.get(key)?;
        let index = (place as usize).checked_sub(1)?;
        table.values[index].map(|value| value.at)
    }

    /// Returns the value of the key with this number, if it was made, and a guard. The
    /// value stays at least as long as the guard.
    ///
    /// # Safety
    ///
    /// The key is used for values of type `T` only.
    #[inline]
    pub(crate) unsafe fn get<T: 'static>(&self, key: usize) -> Option<(User, NonNull<T>)> {
        // SAFETY: in the table, so it is a box of this type, as was promised here and to
        // `put`.
        self.find(key).map(|at| unsafe { use_at(at) })
    }

    /// Keeps a value for this key, which has none yet.
    ///
    /// # Errors
    ///
    /// The value comes back if there is one already: making this one has made that.
    ///
    /// # Safety
    ///
    /// The key is used for values of type `T` only.
    pub(crate) unsafe fn put<T: 'static>(
        &self,
        key: usize,
        value: T,
    ) -> Result<(User, NonNull<T>), T> {
        /// # Safety
        ///
        /// `at` came from a `Box<Counted<T>>`, and is not used again.
        unsafe fn drop_box<T>(at: NonNull<()>) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(at.as_ptr().cast::<Counted<T>>()) });
        }
        if self.find(key).is_some() {
            return Err(value);
        }
        let users = Users::new();
        let at = NonNull::from(Box::leak(Box::new(Counted { users, value }))).cast();
        let mut table = self.table_or_new().borrow_mut();
        if table.by_key.len() <= key {
            table.by_key.resize(key + 1, 0);
        }
        table.values.push(Some(Value {
            key,
            at,
            drop: drop_box::<T>,
        }));
        table.by_key[key] = u32::try_from(table.values.len()).expect("fewer locals than 2^32");
        // SAFETY: the box made above.
        Ok(unsafe { use_at(at) })
    }

    /// Drops the one at `index`; true if that panicked.
    fn drop_one(table: &RefCell<Table>, index: usize) -> bool {
        let value = {
            let mut table = table.borrow_mut();
            let value = table.values[index].take();
            if let Some(value) = value {
                table.by_key[value.key] = 0;
            }
            value
        };
        let Some(Value { at, drop, .. }) = value else {
            return false;
        };
        // SAFETY: from the box that `put` leaked, which begins with it (`repr(C)`).
        if unsafe { at.cast::<Users>().as_ref() }.are_there() {
            log(
                "a fiber-local is still borrowed at the end of its fiber or thread, and is \
                 leaked: was a coroutine suspended in `with`?",
            );
            return false;
        }
        // SAFETY: from the box that `put` leaked, with its own type, out of the table now,
        // and used by nobody.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { drop(at) }));
        // The panic hook has told of it; its payload may panic as well.
        dropped.map_err(std::mem::forget).is_err()
    }

    /// Drops all of them; user code, on the stack of whose they are. True if the drop of one
    /// panicked.
    #[inline]
    pub(crate) fn drop_all(&self) -> bool {
        self.0.get().is_some_and(|table| self.drop_some(table))
    }

    #[cold]
    fn drop_some(&self, table: NonNull<RefCell<Table>>) -> bool {
        let mut panicked = false;
        {
            // SAFETY: leaked by `table_or_new`; freed below.
            let table = unsafe { table.as_ref() };
            let mut begin = 0;
            for _ in 0..ROUNDS {
                // Those that are there when the round begins; what a drop makes comes
                // behind them, and is in the next.
                let end = table.borrow().values.len();
                for index in (begin..end).rev() {
                    panicked |= Self::drop_one(table, index);
                }
                begin = end;
            }
        }
        self.0.set(None);
        // SAFETY: leaked by `table_or_new`, and nobody else has it any more. What is
        // left in it is leaked.
        drop(unsafe { Box::from_raw(table.as_ptr()) });
        panicked
    }
}
