//! Tests that guards have the variance that they must have; each is a program that
//! compiles, or does not.
//!
//! A guard that only reads may stand for one of a value that lives shorter:
//!
//! ```
//! use sinew::channel::watch;
//! use sinew::sync::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
//!
//! fn read<'a>(_: RwLockReadGuard<'_, &'a i32>, _: &'a i32) {}
//! fn mapped<'a>(_: MappedRwLockReadGuard<'_, &'a i32>, _: &'a i32) {}
//! fn watched<'a>(_: watch::Ref<'_, &'a i32>, _: &'a i32) {}
//!
//! let long = 5;
//! let (lock, (tx, rx)) = (RwLock::new(&long), watch::channel(&long));
//! {
//!     let short = 6;
//!     read(lock.read(), &short);
//!     mapped(RwLockReadGuard::map(lock.read(), |value| value), &short);
//!     watched(rx.borrow(), &short);
//! }
//! assert_eq!((*lock.read(), *rx.borrow()), (&5, &5));
//! drop((lock, tx, rx));
//! ```
//!
//! A guard that writes may not: it could leave a value in the lock that is gone soon.
//!
//! ```compile_fail,E0597
//! use sinew::sync::{Mutex, MutexGuard};
//!
//! fn write<'a>(mut guard: MutexGuard<'_, &'a i32>, short: &'a i32) {
//!     *guard = short;
//! }
//! let long = 5;
//! let lock = Mutex::new(&long);
//! {
//!     let short = 6;
//!     write(lock.lock(), &short);
//! }
//! drop(lock);
//! ```
//!
//! ```compile_fail,E0597
//! use sinew::sync::{FairMutex, FairMutexGuard};
//!
//! fn write<'a>(mut guard: FairMutexGuard<'_, &'a i32>, short: &'a i32) {
//!     *guard = short;
//! }
//! let long = 5;
//! let lock = FairMutex::new(&long);
//! {
//!     let short = 6;
//!     write(lock.lock(), &short);
//! }
//! drop(lock);
//! ```
//!
//! ```compile_fail,E0597
//! use sinew::sync::{RwLock, RwLockWriteGuard};
//!
//! fn write<'a>(mut guard: RwLockWriteGuard<'_, &'a i32>, short: &'a i32) {
//!     *guard = short;
//! }
//! let long = 5;
//! let lock = RwLock::new(&long);
//! {
//!     let short = 6;
//!     write(lock.write(), &short);
//! }
//! drop(lock);
//! ```
//!
//! ```compile_fail,E0597
//! use sinew::sync::{MappedMutexGuard, Mutex, MutexGuard};
//!
//! fn write<'a>(mut guard: MappedMutexGuard<'_, &'a i32>, short: &'a i32) {
//!     *guard = short;
//! }
//! let long = 5;
//! let lock = Mutex::new(&long);
//! {
//!     let short = 6;
//!     write(MutexGuard::map(lock.lock(), |value| value), &short);
//! }
//! drop(lock);
//! ```
//!
//! ```compile_fail,E0597
//! use sinew::sync::{MappedRwLockWriteGuard, RwLock, RwLockWriteGuard};
//!
//! fn write<'a>(mut guard: MappedRwLockWriteGuard<'_, &'a i32>, short: &'a i32) {
//!     *guard = short;
//! }
//! let long = 5;
//! let lock = RwLock::new(&long);
//! {
//!     let short = 6;
//!     write(RwLockWriteGuard::map(lock.write(), |value| value), &short);
//! }
//! drop(lock);
//! ```
//!
//! ```compile_fail,E0597
//! use sinew::sync::{Arc, Mutex, OwnedMutexGuard};
//!
//! fn write<'a>(mut guard: OwnedMutexGuard<&'a i32>, short: &'a i32) {
//!     *guard = short;
//! }
//! let long = 5;
//! let lock = Arc::new(Mutex::new(&long));
//! {
//!     let short = 6;
//!     write(lock.clone().lock_owned(), &short);
//! }
//! drop(lock);
//! ```
