//! What hyper wants of a runtime.

use super::async_io::{AsyncIo, StreamSocket};
use crate::reactor::Direction;
use crate::task::{block_on_or_cancelled, spawn};
use crate::time::alarm::{self, Sleep};
use ::hyper::rt::{self, Executor, ReadBufCursor, Timer};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

impl<T: StreamSocket> rt::Read for AsyncIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: a receive writes, and nothing else; no byte is made uninitialised.
        let room = unsafe { into.as_mut() };
        let polled = self.poll_call(Direction::Read, room.len(), context, |fd| {
            socket2::SockRef::from(&fd).recv_with_flags(room, libc::MSG_DONTWAIT)
        });
        let count = ready!(polled)?;
        // SAFETY: the kernel has written so many.
        unsafe { into.advance(count) };
        Poll::Ready(Ok(()))
    }
}

impl<T: StreamSocket> rt::Write for AsyncIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send_parts(context, from)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // there is no buffer
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}

/// Our time for hyper; see [`sleep`](super::sleep).
///
/// ```
/// use hyper::rt::Timer;
/// use sinew::interop::SinewTimer;
/// use std::time::{Duration, Instant};
///
/// sinew::run(|| {
///     let start = Instant::now();
///     sinew::block_on(SinewTimer::new().sleep(Duration::from_millis(2)));
///     assert!(start.elapsed() >= Duration::from_millis(2));
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SinewTimer;

impl SinewTimer {
    /// One is as good as another.
    pub fn new() -> Self {
        Self
    }
}

impl Timer for SinewTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(alarm::sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(sleep) => {
                let duration = deadline.saturating_duration_since(Instant::now());
                sleep.get_mut().reset(duration);
            }
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

impl rt::Sleep for Sleep {}

/// Runs hyper's tasks, each on a fiber of its own.
///
/// They are spawned where `execute` is called: on the runtime of the calling fiber, on a
/// plain thread on the global one. If such a fiber is cancelled its task is dropped.
///
/// ```
/// use hyper::rt::Executor;
/// use sinew::interop::SinewExecutor;
///
/// sinew::run(|| {
///     let (tx, rx) = sinew::channel::bounded(1);
///     SinewExecutor::new().execute(async move { tx.send(7).unwrap() });
///     assert_eq!(rx.recv(), Ok(7));
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SinewExecutor;

impl SinewExecutor {
    /// One is as good as another.
    pub fn new() -> Self {
        Self
    }
}

impl<F> Executor<F> for SinewExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        drop(spawn(move || block_on_or_cancelled(task)));
    }
}
