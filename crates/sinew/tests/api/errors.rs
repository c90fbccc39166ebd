//! Errors of ours as `io::Error`s and in chains of sources.

use sinew::channel::{self, broadcast};
use sinew::scope::{Failure, NoWinner, Restart, Supervision, nursery, race, supervise};
use sinew::sync::{self, Semaphore};
use sinew::{Cancelled, JoinError};
use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::mpsc;
use std::time::Duration;

/// What `?` makes of an error in a function that returns an `io::Result`.
fn by_question_mark<E>(error: E) -> io::Error
where
    io::Error: From<E>,
{
    fn fails<E>(error: E) -> io::Result<()>
    where
        io::Error: From<E>,
    {
        Err(error)?;
        Ok(())
    }
    fails(error).unwrap_err()
}

#[track_caller]
fn assert_kind<E>(error: E, kind: ErrorKind)
where
    io::Error: From<E>,
    E: fmt::Display,
{
    let text = error.to_string();
    let error = by_question_mark(error);
    assert_eq!(error.kind(), kind, "{error:?}");
    assert_eq!(error.to_string(), text);
    assert!(!Cancelled::is_in(&error), "{error:?}");
}

/// Every form of a cancellation is found, as it is and as an `io::Error`; and a chain of
/// sources shows it.
#[track_caller]
fn assert_cancelled<E: Error + 'static>(error: E)
where
    io::Error: From<E>,
{
    assert!(Cancelled::is_in(&error), "{error:?}");
    let error = by_question_mark(error);
    assert_eq!(error.kind(), ErrorKind::Other);
    assert!(Cancelled::is_in(&error), "{error:?}");
    assert!(error.source().unwrap().is::<Cancelled>(), "{error:?}");
    assert!(Cancelled::is_in(&Outer(error)));
}

/// An error of a program's own.
#[derive(Debug)]
struct Outer(io::Error);

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("outer")
    }
}

impl Error for Outer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Not `Send`, not `Sync`, not `Debug`: a message may be anything.
struct Message(#[allow(dead_code)] *const ());

fn message() -> Message {
    Message(std::ptr::null())
}

#[test]
fn errors_of_channels_convert() {
    use channel::{
        ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
        SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
    };
    assert_kind(SendError::Disconnected(message()), ErrorKind::BrokenPipe);
    assert_cancelled(SendError::Cancelled(1));
    assert_kind(TrySendError::Full(message()), ErrorKind::WouldBlock);
    assert_kind(TrySendError::Disconnected(message()), ErrorKind::BrokenPipe);
    assert_kind(SendTimeoutError::Timeout(message()), ErrorKind::TimedOut);
    assert_kind(
        SendTimeoutError::Disconnected(message()),
        ErrorKind::BrokenPipe,
    );
    assert_cancelled(SendTimeoutError::Cancelled(1));
    assert_kind(RecvError::Disconnected, ErrorKind::UnexpectedEof);
    assert_cancelled(RecvError::Cancelled);
    assert_kind(TryRecvError::Empty, ErrorKind::WouldBlock);
    assert_kind(TryRecvError::Disconnected, ErrorKind::UnexpectedEof);
    assert_kind(RecvTimeoutError::Timeout, ErrorKind::TimedOut);
    assert_kind(RecvTimeoutError::Disconnected, ErrorKind::UnexpectedEof);
    assert_cancelled(RecvTimeoutError::Cancelled);
    assert_kind(TrySelectError, ErrorKind::WouldBlock);
    assert_kind(SelectTimeoutError, ErrorKind::TimedOut);
    assert_kind(TryReadyError, ErrorKind::WouldBlock);
    assert_kind(ReadyTimeoutError, ErrorKind::TimedOut);
    assert_kind(broadcast::RecvError::Lagged(3), ErrorKind::Other);
    assert_kind(broadcast::RecvError::Disconnected, ErrorKind::UnexpectedEof);
    assert_cancelled(broadcast::RecvError::Cancelled);
    assert_kind(broadcast::TryRecvError::Empty, ErrorKind::WouldBlock);
    assert_kind(broadcast::RecvTimeoutError::Timeout, ErrorKind::TimedOut);
    assert_cancelled(broadcast::RecvTimeoutError::Cancelled);
}

#[test]
fn errors_of_locks_signals_and_promises_convert() {
    assert_kind(sync::TimedOut, ErrorKind::TimedOut);
    assert_kind(sync::WaitTimeoutError::Timeout, ErrorKind::TimedOut);
    assert_cancelled(sync::WaitTimeoutError::Cancelled);
    assert_kind(sync::TryLockError::WouldBlock, ErrorKind::WouldBlock);
    assert_kind(sync::AcquireError::Closed, ErrorKind::BrokenPipe);
    assert_cancelled(sync::AcquireError::Cancelled);
    assert_kind(sync::AcquireTimeoutError::Timeout, ErrorKind::TimedOut);
    assert_cancelled(sync::AcquireTimeoutError::Cancelled);
    assert_kind(sync::TryAcquireError::NoPermits, ErrorKind::WouldBlock);
    assert_kind(sync::FutexError::Stopped, ErrorKind::BrokenPipe);
    assert_cancelled(sync::FutexError::Cancelled);
    assert_kind(sync::FutexTimeoutError::Timeout, ErrorKind::TimedOut);
    assert_cancelled(sync::FutexTimeoutError::Cancelled);
    assert_kind(sync::Broken, ErrorKind::BrokenPipe);
    assert_kind(sync::WaitFutureError::Broken, ErrorKind::BrokenPipe);
    assert_cancelled(sync::WaitFutureError::Cancelled);
    assert_kind(sync::WaitFutureTimeoutError::Timeout, ErrorKind::TimedOut);
    assert_cancelled(sync::WaitFutureTimeoutError::Cancelled);
}

/// The error of a fiber that was cancelled before it began.
fn never_ran() -> JoinError {
    let runtime = crate::harness::runtime(1);
    runtime.run(|| {
        let never = sinew::spawn(|| ());
        never.cancel();
        never.join().unwrap_err()
    })
}

#[test]
fn errors_of_fibers_scopes_and_limits_convert() {
    let _watch = crate::harness::watch();
    assert_cancelled(Cancelled);
    assert_cancelled(never_ran());
    let panicked = sinew::spawn(|| crate::harness::panic_expected(1));
    let panicked = by_question_mark(panicked.join().map(|()| ()).unwrap_err());
    assert_eq!(panicked.kind(), ErrorKind::Other);
    let inside = panicked.into_inner().unwrap().downcast::<JoinError>();
    assert!(inside.unwrap().is_panic());

    let elapsed = sinew::timeout(Duration::ZERO, || sinew::check_cancelled().map_err(drop));
    assert_kind(elapsed.unwrap_err(), ErrorKind::TimedOut);

    assert_cancelled(Failure::<io::Error>::Cancelled);
    // Whatever converts may be the error of a child.
    let failed = nursery(|n| {
        n.spawn(|| Semaphore::new(0).try_acquire().map(drop));
        Ok(())
    });
    assert_kind(failed.unwrap_err(), ErrorKind::WouldBlock);

    // Of a race it is that of the first to fail.
    let lost: Result<(), NoWinner<io::Error>> = race(|r| {
        let first = r.spawn(|| Err(io::Error::from(ErrorKind::NotFound)));
        first.wait().unwrap();
        r.spawn(|| Err(ErrorKind::PermissionDenied.into()));
    });
    let lost = lost.unwrap_err();
    assert!(lost.source().unwrap().is::<Failure<io::Error>>());
    assert_eq!(by_question_mark(lost).kind(), ErrorKind::NotFound);
    let nobody: Result<(), NoWinner<io::Error>> = race(|_| ());
    assert_kind(nobody.unwrap_err(), ErrorKind::Other);
    // And the chain shows that its children were cancelled.
    let cancelled: Result<(), NoWinner<Cancelled>> = race(|r| {
        r.spawn(|| Err(Cancelled));
    });
    let cancelled = cancelled.unwrap_err();
    assert!(Cancelled::is_in(&cancelled));
    assert!(Cancelled::is_in(&by_question_mark(cancelled)));
}

#[test]
fn errors_of_shutdowns_and_supervisors_convert() {
    let _watch = crate::harness::watch();
    let runtime = crate::harness::runtime(1);
    let deaf = runtime.spawn(|| -> () {
        loop {
            sinew::park()
        }
    });
    crate::harness::wait_until(|| deaf.fiber().wait_reason() == sinew::WaitReason::Park);
    assert_kind(
        runtime.shutdown_timeout(Duration::ZERO).unwrap_err(),
        ErrorKind::TimedOut,
    );

    let limits = Supervision::new().intensity(0, Duration::from_secs(3600));
    let gave_up = supervise(limits, |s| {
        s.child("fails", Restart::Permanent, || Err::<(), _>("at once"));
    });
    assert_kind(gave_up.unwrap_err(), ErrorKind::Other);
}

/// A thread that ends destroys its fiber-locals among its thread-locals.
#[test]
fn the_error_of_a_fiber_local_on_a_thread_that_ends_converts() {
    sinew::fiber_local! {
        static KEY: u32 = 7;
    }
    struct Uses(mpsc::Sender<sinew::AccessError>);
    impl Drop for Uses {
        fn drop(&mut self) {
            if let Err(error) = KEY.try_with(|_| ()) {
                self.0.send(error).unwrap();
            }
        }
    }
    thread_local! {
        static BEFORE: Cell<Option<Uses>> = const { Cell::new(None) };
        static AFTER: Cell<Option<Uses>> = const { Cell::new(None) };
    }
    let (errors, found) = mpsc::channel();
    std::thread::spawn(move || {
        // Of the two, one is destroyed after the fiber-locals, whatever the order is.
        BEFORE.set(Some(Uses(errors.clone())));
        KEY.with(|value| assert_eq!(*value, 7));
        AFTER.set(Some(Uses(errors)));
    })
    .join()
    .unwrap();
    let error = found.try_iter().next();
    assert_kind(error.expect("one of the two fails"), ErrorKind::Other);
}

#[test]
fn what_was_not_cancelled_is_not_found() {
    assert!(!Cancelled::is_in(&io::Error::other(
        "the fiber was cancelled"
    )));
    assert!(!Cancelled::is_in(&Outer(ErrorKind::NotFound.into())));
    // An `io::Error` in an `io::Error`.
    assert!(Cancelled::is_in(&io::Error::other(io::Error::from(
        Cancelled
    ))));
}

#[test]
fn a_cancelled_call_is_found_in_a_chain_of_sources() {
    let _watch = crate::harness::watch();
    let error = crate::harness::runtime(1).run(|| {
        let (one, _other) = sinew::net::UnixStream::pair().unwrap();
        let reader = sinew::spawn(move || io::Read::read(&mut &one, &mut [0]));
        crate::harness::wait_until(|| reader.fiber().wait_reason() == sinew::WaitReason::Read);
        reader.cancel();
        reader.join().unwrap().unwrap_err()
    });
    assert!(error.source().unwrap().is::<Cancelled>());
    assert_cancelled(error);
}
