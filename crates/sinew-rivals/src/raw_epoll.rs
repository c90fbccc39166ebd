//! Servers and readers without any runtime, around epoll and plain system
//! calls: one of the two limits of the I/O workloads.
//!
//! Connections are looked at when they are accepted and then registered once,
//! edge-triggered; whatever is ready is read and answered right away, into and
//! from one buffer for all.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use crate::Failure;
use crate::child::{Job, report, steady};
use crate::serve::{ANYWHERE, BLOCK, BUFFER, Blocks, MESSAGE, Offsets, announce, raise_file_limit};

/// Events taken from the kernel at once.
const AT_ONCE: usize = 1024;

pub fn run(job: &Job) -> Result<(), Failure> {
    match job.name.as_str() {
        "echo_100" | "echo_9000" | "idle_conn" => serve(answer),
        "short" => serve(answer_once),
        "file_read" => file_read(job),
        _ => return Err(Failure::Unknown),
    }
    Ok(())
}

/// Accepts forever, and calls `on_ready` for each connection that has data
/// until it wants no more.
fn serve(on_ready: fn(&mut TcpStream, &mut [u8; BUFFER]) -> bool) {
    raise_file_limit();
    let listener = TcpListener::bind(ANYWHERE).expect("can't listen");
    listener.set_nonblocking(true).expect("can't change it");
    announce(listener.local_addr().expect("it has an address"));
    // SAFETY: takes no pointers.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(epoll >= 0, "no epoll");
    let at = listener.as_raw_fd();
    watch(epoll, at, libc::EPOLLIN);
    // By descriptor.
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut events: Vec<libc::epoll_event> = Vec::with_capacity(AT_ONCE);
    let mut buffer = [0; BUFFER];
    loop {
        // SAFETY: there is room for as many events as we ask for, and as many
        // as the kernel says have been written.
        unsafe {
            let n = libc::epoll_wait(epoll, events.as_mut_ptr(), AT_ONCE as i32, -1);
            events.set_len(n.max(0) as usize);
        }
        for event in &events {
            let fd = event.u64 as RawFd;
            if fd == at {
                while let Some(mut stream) = accept(at) {
                    if !on_ready(&mut stream, &mut buffer) {
                        continue; // closes it
                    }
                    let fd = stream.as_raw_fd();
                    if streams.len() <= fd as usize {
                        streams.resize_with(fd as usize + 1, || None);
                    }
                    streams[fd as usize] = Some(stream);
                    // What came since we looked is told when it is added.
                    watch(epoll, fd, libc::EPOLLIN | libc::EPOLLET);
                }
            } else if let Some(stream) = &mut streams[fd as usize] {
                if !on_ready(stream, &mut buffer) {
                    streams[fd as usize] = None; // closes it
                }
            }
        }
    }
}

/// The next connection, which does not block: std needs another call for that.
fn accept(listener: RawFd) -> Option<TcpStream> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no address is asked for; what comes is a new socket, and ours.
    unsafe {
        let fd = libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags);
        (fd >= 0).then(|| TcpStream::from_raw_fd(fd))
    }
}

fn watch(epoll: RawFd, fd: RawFd, events: i32) {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: fd as u64,
    };
    // SAFETY: both descriptors are open and `event` is valid.
    let failed = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    assert_eq!(failed, 0, "can't watch a socket");
}

/// Sends back what has come; false when there is no more to come.
fn answer(stream: &mut TcpStream, buffer: &mut [u8; BUFFER]) -> bool {
    loop {
        match stream.read(buffer) {
            Ok(0) => return false,
            Ok(n) => {
                // The client has one message in flight: there is room.
                if stream.write_all(&buffer[..n]).is_err() {
                    return false;
                }
                if n < BUFFER {
                    return true; // nothing is left
                }
            }
            Err(problem) => return problem.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Answers one message and wants no more. A message of 64 bytes over the
/// loopback comes in one piece.
fn answer_once(stream: &mut TcpStream, buffer: &mut [u8; BUFFER]) -> bool {
    match stream.read(buffer) {
        Ok(n) => {
            assert_eq!(n, MESSAGE);
            let _ = stream.write_all(&buffer[..n]); // we close it anyway
            false
        }
        Err(problem) => problem.kind() == io::ErrorKind::WouldBlock,
    }
}

/// One read after the other: from the page cache none has to wait.
fn file_read(job: &Job) {
    let blocks = Blocks::new().expect("can't write a file");
    let file = File::open(blocks.path()).expect("can't open it");
    let mut offsets = Offsets::new(1);
    let mut block = [0; BLOCK];
    let ns = steady(job.target(), |n| {
        let start = Instant::now();
        for _ in 0..n {
            let offset = offsets.next();
            file.read_exact_at(&mut block, offset).expect("can't read");
            assert!(Blocks::is_at(&block, offset));
        }
        start.elapsed()
    });
    report("ns", ns);
}
