//! The macros of [Sinew](https://docs.rs/sinew), a stackful M:N fiber runtime.
//!
//! Use them through the `sinew` crate, which re-exports them; what they expand to names its
//! items by absolute paths (`::sinew::…`), so `sinew` has to be a dependency under that name.
//!
//! | attribute             | on                               | what it does                      |
//! |-----------------------|----------------------------------|-----------------------------------|
//! | [`macro@main`]        | `fn main`                        | runs the body in a fiber          |
//! | [`macro@test`]        | a test function                  | the same, on a runtime of its own |
//! | [`macro@preemptible`] | a function, an `impl`, a `trait` | safepoints at entry and in loops  |
//! | [`macro@unchecked`]   | a function, or a loop in one     | opts out of `preemptible`         |
//!
//! | macro                 | what it does                                                     |
//! |-----------------------|------------------------------------------------------------------|
//! | [`select!`]           | waits for the first of several operations, fair among the ready  |
//! | [`select_biased!`]    | the same, from top to bottom                                     |
//! | [`race!`]             | as `select!`, and cancels the fibers of losing `join` arms       |
//!
//! One file per concept: `entry` builds the functions for `main` and `test`, `settings` reads
//! their arguments, `safepoints` rewrites bodies, `select` builds selects. All work on `proc_macro2` tokens, so
//! their unit tests need no compiler.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod entry;
mod safepoints;
mod select;
mod settings;

use proc_macro::TokenStream;

/// Runs the body of `fn main` in a fiber.
///
/// Without arguments this is [`sinew::run`](https://docs.rs/sinew/latest/sinew/fn.run.html): a
/// runtime with default settings is started, the body runs in its first fiber, and `main` returns
/// once every fiber that is not a daemon has ended. A panic in the body goes on in `main`.
///
/// # Arguments
///
/// Each is passed on to the method of that name of `sinew::Runtime::builder()`. The values may be
/// any expression, not only literals.
///
/// | argument              | value                                   |
/// |-----------------------|-----------------------------------------|
/// | `workers = 4`         | how many OS threads run fibers          |
/// | `stack_size = 65_536` | reserved stack of each fiber, in bytes  |
/// | `name = "proxy"`      | the runtime's name                      |
/// | `strict_order = true` | strict FIFO order of ready fibers       |
/// | `pin_workers = true`  | one CPU for each worker                 |
///
/// # Return type
///
/// Anything that `fn main` may return: whatever implements
/// [`Termination`](std::process::Termination). It need not be `Send`: unless it is `()` or `!`,
/// it is turned into an [`ExitCode`](std::process::ExitCode) while still in the fiber, and the
/// expanded `main` returns that. An `Err` is printed to standard error, as it always is.
///
/// # Panics
///
/// The expanded `main` panics with the error's text if the runtime cannot be built, for example
/// with `workers = 0`.
///
/// # Examples
///
/// ```
/// #[sinew::main]
/// fn main() {
///     let child = sinew::spawn(|| 6 * 7);
///     assert_eq!(child.join().unwrap(), 42);
/// }
/// ```
///
/// With settings, and a result:
///
/// ```
/// #[sinew::main(workers = 2, stack_size = 512 * 1024, name = "adder")]
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let child = sinew::spawn(|| "40".parse::<i32>());
///     let forty = child.join().unwrap()?;
///     assert_eq!(forty + 2, 42);
///     Ok(())
/// }
/// ```
///
/// There is no `async` in Sinew, so there is none here:
///
/// ```compile_fail
/// #[sinew::main]
/// async fn main() {}
/// ```
// A lib's `main` clashes with the test harness's own: rust-lang/rust#62127.
#[cfg(not(test))]
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    entry::expand(entry::Kind::Main, arguments.into(), item.into()).into()
}

/// Makes a function a test whose body runs in a fiber.
///
/// Each test has a runtime of its own, with one worker unless it says otherwise, and ends once
/// every fiber of that runtime that is not a daemon has ended. Other attributes, such as
/// `#[should_panic]` and `#[ignore]`, keep their meaning. Leave out the usual `#[test]`: this adds
/// it.
///
/// A test fails
///
/// * if its body panics, or returns an `Err`;
/// * if a fiber of its runtime panics and nobody can ever take that, because the fiber's handle
///   was dropped (a scope tells of its children by itself);
/// * if the body or another fiber that is not a daemon has not ended within the `timeout`. Then
///   the fibers are listed and cancelled, and awaited for one second more.
///
/// The arguments are those of [`macro@main`], and `timeout = Duration::from_secs(5)`: how long the
/// test may take. Without it that is 60 seconds, or as many as the environment variable
/// `SINEW_TEST_TIMEOUT` says. `SINEW_TEST_TIMEOUT=0` takes the limit from all tests, also from
/// those that set one: for a debugger. So does `timeout = Duration::ZERO` for one test.
///
/// # Examples
///
/// ```
/// #[sinew::test]
/// fn a_child_returns_its_value() {
///     assert_eq!(sinew::spawn(|| 42).join().unwrap(), 42);
/// }
///
/// #[sinew::test(timeout = std::time::Duration::from_secs(5))]
/// #[should_panic(expected = "no end")]
/// fn a_detached_fiber_is_heard_of() {
///     drop(sinew::spawn(|| panic!("no end")));
/// }
///
/// #[sinew::test(workers = 2)]
/// #[should_panic(expected = "no such luck")]
/// fn a_panic_fails_the_test() {
///     panic!("no such luck");
/// }
///
/// #[sinew::test]
/// fn a_test_may_return_a_result() -> Result<(), std::num::ParseIntError> {
///     assert_eq!("42".parse::<i32>()?, 42);
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    entry::expand(entry::Kind::Test, arguments.into(), item.into()).into()
}

/// Lets the runtime interrupt a function: puts a safepoint at its entry and into every loop.
///
/// Fibers are switched only where they call into Sinew. A long computation that never does would
/// keep its worker to itself; with this attribute it calls `sinew::safepoint()` (a load and a
/// branch, as long as nobody asks for the worker)
///
/// * when the function is entered, so that recursion is covered, and
/// * at the start of each turn of each `loop`, `while`, `while let` and `for`, also if the turn
///   before ended in `continue`.
///
/// On an `impl` block or a trait it applies to every method that has a body.
///
/// # What is covered
///
/// | code                                            | safepoints                                |
/// |-------------------------------------------------|-------------------------------------------|
/// | loops at any depth: in blocks, arms, conditions | yes                                       |
/// | loops in closures and `async` blocks            | yes (but none at a closure's entry)       |
/// | nested items: `fn`, `impl`, `mod`, …            | no; give them the attribute themselves    |
/// | `const` blocks, array lengths, other constants  | no; they run at compile time              |
/// | inside `vec![…]` and other macro calls, and loops that macros make | **no**: they are not seen |
/// | functions called, such as `Iterator::for_each`  | no, unless they have the attribute        |
/// | what is marked [`unchecked`](macro@unchecked)   | no                                        |
///
/// A safepoint may suspend the fiber, so other fibers of the same worker may run between any two
/// turns of a loop.
///
/// # Errors
///
/// It does not compile on `const fn` (a safepoint is not constant) or `async fn` (there, `.await`
/// is the point at which others run). Such methods of an `impl` block have to be marked
/// `#[sinew::unchecked]`.
///
/// # Examples
///
/// ```
/// /// How many steps it takes to get to 1.
/// #[sinew::preemptible]
/// fn collatz(mut n: u64) -> u32 {
///     let mut steps = 0;
///     while n != 1 {
///         n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
///         steps += 1;
///     }
///     steps
/// }
///
/// assert_eq!(sinew::run(|| collatz(27)), 111);
/// assert_eq!(collatz(27), 111); // on a plain thread a safepoint does nothing
/// ```
///
/// A hot inner loop without the check:
///
/// ```
/// struct Matrix {
///     rows: Vec<Vec<f64>>,
/// }
///
/// #[sinew::preemptible]
/// impl Matrix {
///     fn sum(&self) -> f64 {
///         let mut sum = 0.0;
///         for row in &self.rows {
///             #[sinew::unchecked]
///             for cell in row {
///                 sum += cell;
///             }
///         }
///         sum
///     }
///
///     #[sinew::unchecked]
///     const fn new(rows: Vec<Vec<f64>>) -> Self {
///         Matrix { rows }
///     }
/// }
///
/// let matrix = Matrix::new(vec![vec![1.0, 2.0], vec![3.0]]);
/// assert_eq!(matrix.sum(), 6.0);
/// ```
#[proc_macro_attribute]
pub fn preemptible(arguments: TokenStream, item: TokenStream) -> TokenStream {
    safepoints::expand_preemptible(arguments.into(), item.into()).into()
}

/// Opts a function, method or loop out of [`macro@preemptible`].
///
/// It may stand in three places:
///
/// * on a method of an `impl` block or trait that is `#[sinew::preemptible]`: no safepoints in
///   that method;
/// * on a loop inside a preemptible function: none in that loop, nor in anything inside it.
///   `preemptible` takes the attribute away, which is why this works although Rust has no
///   attribute macros on loops yet. There it is recognised by name: as `#[sinew::unchecked]`,
///   `#[::sinew::unchecked]` or `#[unchecked]`;
/// * on any other function, where it changes nothing and tells the reader that the function has
///   no safepoints on purpose.
///
/// # Examples
///
/// ```
/// /// Short enough to be left alone.
/// #[sinew::unchecked]
/// fn checksum(bytes: &[u8; 8]) -> u8 {
///     bytes.iter().fold(0, |sum, byte| sum ^ byte)
/// }
///
/// assert_eq!(checksum(&[1, 2, 4, 8, 16, 32, 64, 128]), 255);
/// ```
#[proc_macro_attribute]
pub fn unchecked(arguments: TokenStream, item: TokenStream) -> TokenStream {
    safepoints::expand_unchecked(arguments.into(), item.into()).into()
}

/// Waits for the first of several operations, and does that one.
///
/// | arm                               | waits for                                  | yields                      |
/// |-----------------------------------|--------------------------------------------|-----------------------------|
/// | `recv(receiver) -> x => …`        | a message                                  | `Result<T, RecvError>`      |
/// | `send(sender, message) -> x => …` | room, or a receiver                        | `Result<(), SendError<T>>`  |
/// | `join(handle) -> x => …`          | the end of a fiber                         | `Result<T, JoinError>`      |
/// | `wait(thing) -> x => …`           | an event, a token, a future, a ticket, …   | `Result<…, Cancelled>`      |
/// | `cancelled => …`                  | the cancellation of this fiber             |                             |
/// | `default => …`                    | nothing: taken if no other arm is ready    |                             |
/// | `default(timeout) => …`           | the time, a `Duration`                     |                             |
///
/// `-> x` may be an irrefutable pattern, or left out. Of several arms that are ready each has
/// the same chance; [`select_biased!`] takes the first. Arms that are not chosen
/// have no effect. The message of a `send` is evaluated only if that arm is
/// chosen, so a variable that moves into it can be used in the other arms. Bodies
/// are part of the function around the macro: `break`, `continue`, `return` and
/// `?` work in them. All bodies have the same type, which is that of the macro.
///
/// `join(handle)` takes a `JoinHandle` without `&mut`; it is borrowed. When the
/// arm is chosen the handle is spent, and using it again panics. What `wait` takes is listed at
/// `sinew::Waitable`.
///
/// A cancellation point: when the fiber is cancelled the `cancelled` arm is
/// taken; without one the first `recv`, `send` or `wait` arm, which yields its
/// `Cancelled` error. A select of `join` arms only is none.
///
/// With `default` it waits for nothing. A loop of such selects in which nothing is ready is a
/// place where other fibers may run: every 64th in one turn of a fiber yields.
///
/// # Examples
///
/// ```
/// use sinew::channel::{bounded, unbounded};
/// use std::time::Duration;
///
/// sinew::run(|| {
///     let (tx, rx) = unbounded();
///     let (full, _rest) = bounded(1);
///     full.send(0).unwrap();
///     sinew::spawn(move || tx.send("hello"));
///     let said = sinew::select! {
///         recv(rx) -> message => message.unwrap(),
///         send(full, 1) -> _ => unreachable!("it is full"),
///         default(Duration::from_secs(60)) => "nothing",
///     };
///     assert_eq!(said, "hello");
/// });
/// ```
#[proc_macro]
pub fn select(input: TokenStream) -> TokenStream {
    select::expand(input.into(), select::Kind::Fair).into()
}

/// As [`select!`], but of several arms that are ready the first is taken.
///
/// With `default`, too, a loop in which nothing is ready is a place where other fibers may
/// run: every 64th in one turn of a fiber yields.
///
/// # Examples
///
/// ```
/// let (tx, rx) = sinew::channel::unbounded();
/// tx.send("urgent").unwrap();
/// let (tx, other) = sinew::channel::unbounded();
/// tx.send("later").unwrap();
/// let first = sinew::select_biased! {
///     recv(rx) -> message => message,
///     recv(other) -> message => message,
/// };
/// assert_eq!(first, Ok("urgent"));
/// ```
#[proc_macro]
pub fn select_biased(input: TokenStream) -> TokenStream {
    select::expand(input.into(), select::Kind::Biased).into()
}

/// As [`select!`], and cancels the fibers of those `join` arms that lost.
///
/// It asks them to stop; it does not wait for that. They are asked also when
/// `default` or `cancelled` wins. A race of `join` arms only is no cancellation
/// point: add a `cancelled` arm where it should be one.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let mut fast = sinew::spawn(|| "fast");
///     let mut slow = sinew::spawn(|| {
///         while sinew::checkpoint().is_ok() {}
///         "slow"
///     });
///     let winner = sinew::race! {
///         join(fast) -> result => result.unwrap(),
///         join(slow) -> result => result.unwrap(),
///     };
///     assert_eq!(winner, "fast");
///     let _stopped = slow.join(); // it was cancelled, so this returns
/// });
/// ```
#[proc_macro]
pub fn race(input: TokenStream) -> TokenStream {
    select::expand(input.into(), select::Kind::Race).into()
}
