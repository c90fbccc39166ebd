//! From a reader to a writer, and both ways between two streams.
//!
//! Through a buffer; what has much to say to another machine by `splice(2)`
//! (`io::splice` has the figures).

use super::splice;
use crate::reactor::Source;
use crate::scope::nursery;
use crate::wait::place::Hint;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::Location;

/// How much is moved at once: what fits into a core's first cache. A proxy of 64 KiB
/// chunks over loopback took 44.6 and 42.5 µs (epoll, io_uring) for each with 32 KiB, 49.5
/// and 48.4 with 64, and 46.2 with 16 (io_uring); its own CPU took 26 to 30 of any.
const BUFFER: usize = 32 * 1024;
/// How much at first, between two streams: most of them have little to say, and a
/// proxy has many of them.
const FIRST: usize = 8 * 1024;
/// So many full buffers in a row are bulk.
const BULK: usize = 4;

/// Copies all that `reader` has to `writer`, and answers how many bytes there were.
///
/// As std's, but through a buffer of 32 KiB on the heap, for a fiber's stack may be
/// small. Reads and writes are cancellation points if those of `reader` and `writer`
/// are; what was read and not written by then is lost.
///
/// # Errors
///
/// The first of `reader` or `writer`, but for `Interrupted`, after which it goes on.
///
/// ```
/// let mut copied = Vec::new();
/// assert_eq!(sinew::io::copy(&mut &b"some bytes"[..], &mut copied)?, 10);
/// assert_eq!(copied, b"some bytes");
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    match pump(reader, writer, BUFFER, usize::MAX)? {
        Pumped::All(count) | Pumped::Bulk(count) => Ok(count),
    }
}

/// How a pump stopped, and how much it had moved.
enum Pumped {
    /// At the reader's end.
    All(u64),
    /// Because there is so much.
    Bulk(u64),
}

/// Copies until the reader's end, through a buffer that is as large as it pays, or until
/// the buffer was filled `bulk` times in a row.
#[track_caller]
fn pump<R, W>(reader: &mut R, writer: &mut W, first: usize, bulk: usize) -> io::Result<Pumped>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    let mut buffer = vec![0; first];
    let mut copied = 0;
    let mut full = 0;
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => return Ok(Pumped::All(copied)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        writer.write_all(&buffer[..count])?;
        copied += count as u64;
        full = if count == buffer.len() { full + 1 } else { 0 };
        if full >= bulk {
            return Ok(Pumped::Bulk(copied));
        }
        if full > 0 && count < BUFFER {
            buffer = vec![0; BUFFER];
        }
    }
}

/// A stream whose two directions end one after the other; what
/// [`copy_bidirectional`] copies between.
///
/// A [`TcpStream`](crate::net::TcpStream), a [`UnixStream`](crate::net::UnixStream) and
/// an [`Async`](crate::io::Async) are, and with the feature `tls` a `TlsDuplex`. A stream
/// with a protocol in between, which says its end by itself, may implement it.
pub trait Duplex {
    /// Tells the peer that no more comes; reading may go on.
    ///
    /// # Errors
    ///
    /// The system's.
    fn shutdown_write(&self) -> io::Result<()>;

    /// The socket, if nothing is between it and the bytes that are read and written.
    #[doc(hidden)]
    fn bare(&self) -> Option<Bare<'_>> {
        None
    }
}

/// A socket of ours, for [`Duplex`].
#[doc(hidden)]
pub struct Bare<'a>(pub(crate) &'a Source);

impl std::fmt::Debug for Bare<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bare")
    }
}

impl<T: Duplex + ?Sized> Duplex for &T {
    fn shutdown_write(&self) -> io::Result<()> {
        (**self).shutdown_write()
    }

    fn bare(&self) -> Option<Bare<'_>> {
        (**self).bare()
    }
}

impl<F: AsFd> Duplex for super::Async<F> {
    fn shutdown_write(&self) -> io::Result<()> {
        end_writing(self.get_ref().as_fd())
    }
}

/// Tells the peer of a socket that no more comes.
pub(crate) fn end_writing(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers; the descriptor is borrowed for the call.
    if unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Its peer is gone, or it has no such thing as a half.
        Some(libc::ENOTCONN | libc::ENOTSOCK) => Ok(()),
        _ => Err(error),
    }
}

/// Copies from `a` to `b` and from `b` to `a` at the same time, until both have ended;
/// answers how many bytes went each way.
///
/// When one side ends, the other is told so ([`Duplex::shutdown_write`]), and may still
/// answer. One direction is copied by this fiber, the other by a child of its own, so
/// both streams are used by two fibers, one of which reads while the other writes. A
/// cancellation ends both; what was read and not written by then is lost.
///
/// Where both are plain sockets, a peer is on another machine, and bytes come in bulk, they
/// are moved inside of the kernel; the descriptors do not block while that lasts, which is
/// also seen by who has duplicates of them.
///
/// # Errors
///
/// The first of either direction; it ends the other. The streams stay open.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
/// use sinew::net::{TcpListener, TcpStream};
///
/// sinew::run(|| -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let proxy = TcpListener::bind("127.0.0.1:0")?;
///     let (address, proxy_address) = (listener.local_addr()?, proxy.local_addr()?);
///     let server = sinew::spawn(move || -> std::io::Result<()> {
///         let (mut peer, _) = listener.accept()?;
///         let mut question = String::new();
///         peer.read_to_string(&mut question)?;
///         peer.write_all(question.to_uppercase().as_bytes())
///     });
///     let between = sinew::spawn(move || {
///         let (client, _) = proxy.accept()?;
///         sinew::io::copy_bidirectional(&client, &TcpStream::connect(address)?)
///     });
///     let mut client = TcpStream::connect(proxy_address)?;
///     client.write_all(b"hello")?;
///     client.shutdown(Shutdown::Write)?;
///     let mut answer = String::new();
///     client.read_to_string(&mut answer)?;
///     assert_eq!(answer, "HELLO");
///     server.join().unwrap()?;
///     assert_eq!(between.join().unwrap()?, (5, 5));
///     Ok(())
/// })
/// .unwrap();
/// ```
#[track_caller]
pub fn copy_bidirectional<A, B>(a: &A, b: &B) -> io::Result<(u64, u64)>
where
    A: Duplex + Sync + ?Sized,
    B: Duplex + Sync + ?Sized,
    for<'x> &'x A: Read + Write,
    for<'x> &'x B: Read + Write,
{
    let at = Location::caller();
    let both = nursery(|n| {
        let there = n.spawn(|| one_way(a, b, at));
        let back = one_way(b, a, at)?;
        Ok((there.join()?, back))
    });
    for Bare(source) in [a.bare(), b.bare()].into_iter().flatten() {
        source.make_blocking_again()?;
    }
    Ok(both?)
}

fn one_way<A, B>(from: &A, to: &B, at: &'static Location<'static>) -> io::Result<u64>
where
    A: Duplex + ?Sized,
    B: Duplex + ?Sized,
    for<'x> &'x A: Read,
    for<'x> &'x B: Write,
{
    // Called by a closure, so the line would be one of this file.
    let _hint = Hint::new(at);
    let (mut from_bytes, mut to_bytes) = (from, to);
    let reader: &mut dyn Read = &mut from_bytes;
    let writer: &mut dyn Write = &mut to_bytes;
    let bare = from.bare().zip(to.bare());
    let bulk = if bare.is_some() { BULK } else { usize::MAX };
    let mut copied = 0;
    match pump(reader, writer, FIRST, bulk)? {
        Pumped::All(count) => copied += count,
        Pumped::Bulk(count) => {
            copied += count;
            let (Bare(from), Bare(to)) = bare.expect("else there is no bulk");
            let moved = if splice::pays(from, to) {
                splice::move_all(from, to, at)
            } else {
                Err(None)
            };
            copied += match moved {
                Ok(moved) => moved,
                Err(Some(error)) => return Err(error),
                Err(None) => match pump(reader, writer, BUFFER, usize::MAX)? {
                    Pumped::All(count) | Pumped::Bulk(count) => count,
                },
            };
        }
    }
    to.shutdown_write()?;
    Ok(copied)
}
