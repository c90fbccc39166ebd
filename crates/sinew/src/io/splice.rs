//! Moving bytes from socket to socket without copying them.
//!
//! `splice(2)` moves pages from the one to a pipe, and from there to the other. That
//! takes less of the proxy's own CPU: 17 µs for 64 KiB over loopback, 26 through a buffer.
//! But there both ends are on this machine as well, and they lose more than that: pages that
//! went all the way come back to who sends next in no cache, so that a CPU with both ends
//! took 61 to 66 instead of 48 µs, whatever the pipe's size (64 KiB to 1 MiB). So it is done only
//! if a peer is on another machine, whose caches are not ours; that has not been measured.
//!
//! `SPLICE_F_NONBLOCK` speaks of the pipe alone, so the sockets must not block by
//! themselves: `O_NONBLOCK` is set on both for as long as the copy lasts. The pipe is
//! emptied before it is filled again, so a call that would block waits for its socket.

use crate::reactor::{Call, Direction, How, Source, call};
use socket2::SockRef;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::panic::Location;
use std::ptr;

/// How much a pipe holds if the system allows it, and how much is moved at once.
const PIPE: usize = 1 << 20;

/// A pipe of our own, empty between two moves.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: room for two.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new descriptors that nobody else has.
        let [reader, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: no pointers. A smaller one does as well: users without privileges
        // may have used up what they are allowed.
        unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE as libc::c_int) };
        Ok(Self { reader, writer })
    }
}

/// One `splice(2)`, between a socket and a pipe.
struct Splice<'a> {
    pipe: BorrowedFd<'a>,
    into_pipe: bool,
    count: usize,
}

impl Call for Splice<'_> {
    type Output = usize;

    fn attempt(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let (from, to) = if self.into_pipe {
            (socket, self.pipe)
        } else {
            (self.pipe, socket)
        };
        // SAFETY: no offsets.
        let moved = unsafe {
            libc::splice(
                from.as_raw_fd(),
                ptr::null_mut(),
                to.as_raw_fd(),
                ptr::null_mut(),
                self.count,
                libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK,
            )
        };
        if moved < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(moved as usize)
        }
    }
}

/// Whether a peer is on another machine, see the module header; and a broken one may be
/// written to: `splice` knows no flag against the signal that this raises.
pub(super) fn pays(from: &Source, to: &Source) -> bool {
    let far = [from, to].into_iter().any(|source| {
        let socket = SockRef::from(source);
        let peer = socket.peer_addr().ok().and_then(|peer| peer.as_socket());
        let own = socket.local_addr().ok().and_then(|own| own.as_socket());
        peer.zip(own).is_some_and(|(peer, own)| is_far(peer, own))
    });
    far && is_sigpipe_ignored()
}

/// Rust's own start does that; others may not, or may have changed it.
fn is_sigpipe_ignored() -> bool {
    let mut known = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed, and there is room for what is known, which was written
    // if the call says that it worked.
    unsafe {
        libc::sigaction(libc::SIGPIPE, ptr::null(), known.as_mut_ptr()) == 0
            && known.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// A connection to an address of one's own stays inside, whichever it is.
fn is_far(peer: SocketAddr, own: SocketAddr) -> bool {
    let peer = peer.ip().to_canonical();
    !peer.is_loopback() && peer != own.ip().to_canonical()
}

/// Moves all that comes from one socket to the other, until its end.
///
/// # Errors
///
/// None: no pipe is to be had, or the sockets are of a kind that cannot do it; nothing
/// was moved. Else the first error of either socket.
pub(super) fn move_all(
    from: &Source,
    to: &Source,
    at: &'static Location<'static>,
) -> Result<u64, Option<io::Error>> {
    let pipe = Pipe::new().map_err(|_| None)?;
    for source in [from, to] {
        source.make_nonblocking().map_err(Some)?;
    }
    let (reading, writing) = (
        How::of(from, Direction::Read, at),
        How::of(to, Direction::Write, at),
    );
    let mut total = 0;
    loop {
        let mut fill = Splice {
            pipe: pipe.writer.as_fd(),
            into_pipe: true,
            count: PIPE,
        };
        let mut left = match call::make(from, &reading.renewed(from), &mut fill) {
            Ok(0) => return Ok(total),
            Ok(count) => count,
            Err(error) if total == 0 && error.kind() == io::ErrorKind::InvalidInput => {
                return Err(None);
            }
            Err(error) => return Err(Some(error)),
        };
        while left > 0 {
            let mut drain = Splice {
                pipe: pipe.reader.as_fd(),
                into_pipe: false,
                count: left,
            };
            let moved = call::make(to, &writing.renewed(to), &mut drain).map_err(Some)?;
            left -= moved;
            total += moved as u64;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Cancelled;
    use crate::reactor::IoDriver;
    use crate::runtime::Runtime;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const BULK: usize = 5 << 20;

    /// A connection: one end as anybody has it, the other ours.
    fn pair() -> (TcpStream, Source) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = listener.accept().unwrap().0;
        (peer, Source::new(own.into()))
    }

    fn bytes() -> Vec<u8> {
        (0..BULK as u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect()
    }

    fn is_nonblocking(source: &Source) -> bool {
        // SAFETY: no pointers.
        let flags = unsafe { libc::fcntl(source.as_fd().as_raw_fd(), libc::F_GETFL) };
        assert!(flags >= 0);
        flags & libc::O_NONBLOCK != 0
    }

    fn on_each_driver(test: fn()) {
        for driver in [IoDriver::Epoll, IoDriver::Uring] {
            // A system may refuse io_uring.
            if let Ok(runtime) = Runtime::builder().workers(1).io_driver(driver).build() {
                runtime.run(test);
            }
        }
        test(); // on this thread
    }

    #[test]
    fn all_is_moved_unchanged_while_the_receiver_is_slower() {
        on_each_driver(|| {
            let (mut sender, from) = pair();
            let (mut receiver, to) = pair();
            let sends = std::thread::spawn(move || sender.write_all(&bytes()));
            let receives = std::thread::spawn(move || {
                let mut all = Vec::new();
                receiver.read_to_end(&mut all).unwrap();
                all
            });
            let moved = move_all(&from, &to, Location::caller());
            assert!(matches!(moved, Ok(count) if count == BULK as u64));
            for source in [&from, &to] {
                assert!(is_nonblocking(source));
                source.make_blocking_again().unwrap();
                assert!(!is_nonblocking(source));
            }
            drop(to);
            sends.join().unwrap().unwrap();
            assert!(receives.join().unwrap() == bytes());
        });
    }

    #[test]
    fn a_cancellation_and_an_error_end_it() {
        on_each_driver(|| {
            let (_sender, from) = pair();
            let (_receiver, to) = pair();
            let moved = crate::cancel::timeout(std::time::Duration::from_millis(5), || {
                move_all(&from, &to, Location::caller())
            });
            let Err(elapsed) = moved else {
                panic!("nothing was sent, and it has ended")
            };
            let error = elapsed.into_inner().unwrap_err().expect("it had begun");
            assert!(Cancelled::is_in(&error));
        });
        on_each_driver(|| {
            let (mut sender, from) = pair();
            let (receiver, to) = pair();
            sender.write_all(&[7; 100]).unwrap();
            from.close();
            drop(receiver);
            let error = move_all(&from, &to, Location::caller()).unwrap_err();
            let error = error.expect("it had begun");
            assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        });
    }

    #[test]
    fn what_cannot_be_moved_so_is_said_before_anything_was() {
        on_each_driver(|| {
            let folder = std::fs::File::open("/").unwrap();
            let (_receiver, to) = pair();
            let moved = move_all(&Source::new(folder.into()), &to, Location::caller());
            assert!(matches!(moved, Err(None)), "{moved:?}");
        });
    }

    #[test]
    fn it_pays_only_with_another_machine() {
        let is_far = |peer: &str, own: &str| is_far(peer.parse().unwrap(), own.parse().unwrap());
        assert!(is_far("192.0.2.1:80", "192.0.2.2:5000"));
        assert!(is_far("[2001:db8::1]:80", "[2001:db8::2]:5000"));
        assert!(is_far("[::ffff:192.0.2.1]:80", "[::ffff:192.0.2.2]:5000"));
        assert!(!is_far("192.0.2.1:80", "192.0.2.1:5000"));
        assert!(!is_far("[::ffff:192.0.2.1]:80", "192.0.2.1:5000"));
        assert!(!is_far("127.0.0.1:80", "127.0.0.1:5000"));
        assert!(!is_far("[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]:5000"));
        assert!(!is_far("[::1]:80", "[::1]:5000"));
        assert!(is_sigpipe_ignored()); // by Rust's own start
        let ((_one, near), (_other, by)) = (pair(), pair());
        assert!(!pays(&near, &by));
    }
}
