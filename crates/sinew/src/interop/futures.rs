//! `futures-io`'s traits.

use super::async_io::{AsyncIo, StreamSocket};
use crate::io::transfer::{Recv, RecvParts};
use crate::reactor::{Call, Direction};
use futures_io::{AsyncRead, AsyncWrite};
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll};

impl<T: StreamSocket> AsyncRead for AsyncIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_call(Direction::Read, into.len(), context, |fd| {
            let (flags, tells) = (0, false);
            Recv::new(into, flags, tells).attempt(fd)
        })
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let room = into.iter().map(|part| part.len()).sum();
        self.poll_call(Direction::Read, room, context, |fd| {
            RecvParts::new(into).attempt(fd)
        })
    }
}

impl<T: StreamSocket> AsyncWrite for AsyncIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, from)
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

    fn poll_close(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}
