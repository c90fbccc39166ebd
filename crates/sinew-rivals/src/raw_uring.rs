//! Servers and readers without any runtime, around io_uring: the other limit
//! of the I/O workloads.
//!
//! One ring with one issuer and deferred task work; one system call submits
//! all that one turn has to say and waits for the next. Connections are accepted by
//! one multishot operation. An echo is one multishot receive for each
//! connection, with buffers from a ring, and sends that complete silently.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::Failure;
use crate::child::{Job, report, steady};
use crate::serve::{
    ANYWHERE, BLOCK, BUFFER, Blocks, IN_FLIGHT, MESSAGE, Offsets, announce, raise_file_limit,
};

/// Entries of the submission queue.
const ENTRIES: u32 = 4096;
/// Buffers for messages that have come and are not answered yet.
const BUFFERS: u16 = 4096;
/// The group that they are known by.
const GROUP: u16 = 1;

/// What a completion is about: the upper half of its user data; the lower half
/// is a descriptor.
const ACCEPT: u64 = 1;
const RECEIVE: u64 = 2;
const SEND: u64 = 3;

pub fn run(job: &Job) -> Result<(), Failure> {
    match job.name.as_str() {
        "echo_100" | "echo_9000" | "idle_conn" => Server::start().echo(),
        "short" => Server::start().short(),
        "file_read" => file_read(job),
        _ => return Err(Failure::Unknown),
    }
    Ok(())
}

fn ring(entries: u32) -> IoUring {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_cqsize(4 * entries)
        .build(entries)
        .expect("no io_uring")
}

struct Server {
    ring: IoUring,
    listener: TcpListener,
}

impl Server {
    fn start() -> Server {
        raise_file_limit();
        let listener = TcpListener::bind(ANYWHERE).expect("can't listen");
        announce(listener.local_addr().expect("it has an address"));
        let mut server = Server {
            ring: ring(ENTRIES),
            listener,
        };
        server.accept();
        server
    }

    fn push(&mut self, entry: squeue::Entry) {
        push(&mut self.ring, &entry);
    }

    fn accept(&mut self) {
        let listener = Fd(self.listener.as_raw_fd());
        self.push(
            opcode::AcceptMulti::new(listener)
                .build()
                .user_data(ACCEPT << 32),
        );
    }

    /// Submits everything and answers what has completed since.
    fn turn(&mut self, done: &mut Vec<cqueue::Entry>) {
        self.ring.submit_and_wait(1).expect("can't submit");
        done.clear();
        done.extend(self.ring.completion());
    }

    fn echo(mut self) {
        let mut buffers = Buffers::new(&self.ring);
        let mut done = Vec::with_capacity(ENTRIES as usize);
        let mut lent: Vec<u16> = Vec::new();
        loop {
            self.turn(&mut done);
            // Sends of small messages are carried out when they are submitted,
            // so what they were sent from is free again.
            for buffer in lent.drain(..) {
                buffers.give(buffer);
            }
            buffers.publish();
            for entry in &done {
                let (result, flags) = (entry.result(), entry.flags());
                let fd = entry.user_data() as u32;
                match entry.user_data() >> 32 {
                    ACCEPT => {
                        if result >= 0 {
                            self.push(receive_all(result as u32));
                        }
                        if !cqueue::more(flags) {
                            self.accept();
                        }
                    }
                    RECEIVE if result > 0 => {
                        let buffer = cqueue::buffer_select(flags).expect("it has a buffer");
                        let at = buffers.at(buffer);
                        let send = opcode::Send::new(Fd(fd as i32), at, result as u32)
                            .build()
                            .flags(squeue::Flags::SKIP_SUCCESS)
                            .user_data(SEND << 32 | u64::from(fd));
                        self.push(send);
                        lent.push(buffer);
                        if !cqueue::more(flags) {
                            self.push(receive_all(fd));
                        }
                    }
                    RECEIVE if result == -libc::ENOBUFS => self.push(receive_all(fd)),
                    RECEIVE => close(fd),
                    _ => {} // a send that failed: the receive will see it too
                }
            }
        }
    }

    /// A single receive, then a send and a close as one chain.
    fn short(mut self) {
        let mut done = Vec::with_capacity(ENTRIES as usize);
        // By descriptor.
        let mut messages: Vec<Box<[u8; MESSAGE]>> = Vec::new();
        loop {
            self.turn(&mut done);
            for entry in &done {
                let result = entry.result();
                let fd = entry.user_data() as u32;
                match entry.user_data() >> 32 {
                    ACCEPT => {
                        if let Ok(fd) = usize::try_from(result) {
                            if messages.len() <= fd {
                                messages.resize_with(fd + 1, || Box::new([0; MESSAGE]));
                            }
                            let to = messages[fd].as_mut_ptr();
                            let receive = opcode::Recv::new(Fd(result), to, MESSAGE as u32)
                                .build()
                                .user_data(RECEIVE << 32 | fd as u64);
                            self.push(receive);
                        }
                        if !cqueue::more(entry.flags()) {
                            self.accept();
                        }
                    }
                    RECEIVE if result == MESSAGE as i32 => {
                        let from = messages[fd as usize].as_ptr();
                        let send = opcode::Send::new(Fd(fd as i32), from, MESSAGE as u32)
                            .build()
                            .flags(squeue::Flags::SKIP_SUCCESS | squeue::Flags::IO_HARDLINK)
                            .user_data(SEND << 32);
                        let close = opcode::Close::new(Fd(fd as i32))
                            .build()
                            .flags(squeue::Flags::SKIP_SUCCESS)
                            .user_data(SEND << 32);
                        // A chain must not be cut by a submission.
                        let queue = self.ring.submission();
                        let room = queue.capacity() - queue.len();
                        drop(queue);
                        if room < 2 {
                            self.ring.submit().expect("can't submit");
                        }
                        self.push(send);
                        self.push(close);
                    }
                    RECEIVE => close(fd),
                    _ => {}
                }
            }
        }
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    loop {
        // SAFETY: whatever the entry points to (a buffer of the group, a
        // message or a block of its own) is neither moved nor freed while the
        // ring lives.
        if unsafe { ring.submission().push(entry) }.is_ok() {
            return;
        }
        ring.submit().expect("can't submit");
    }
}

fn receive_all(fd: u32) -> squeue::Entry {
    opcode::RecvMulti::new(Fd(fd as i32), GROUP)
        .build()
        .user_data(RECEIVE << 32 | u64::from(fd))
}

fn close(fd: u32) {
    // SAFETY: it was accepted by us, and nobody else closes it.
    unsafe { libc::close(fd as i32) };
}

/// Buffers that the kernel takes from a ring.
struct Buffers {
    entries: *mut BufRingEntry,
    bytes: *mut u8,
    tail: u16,
}

impl Buffers {
    fn new(ring: &IoUring) -> Buffers {
        let map = |bytes: usize| {
            // SAFETY: a new private mapping.
            let at = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0)
            };
            assert_ne!(at, libc::MAP_FAILED, "no memory");
            at
        };
        let mut buffers = Buffers {
            entries: map(usize::from(BUFFERS) * size_of::<BufRingEntry>()).cast(),
            bytes: map(usize::from(BUFFERS) * BUFFER).cast(),
            tail: 0,
        };
        // SAFETY: the entries are page-aligned, as many as we say, and live as
        // long as the process.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(buffers.entries as u64, BUFFERS, GROUP, 0)
                .expect("no buffer ring");
        }
        for buffer in 0..BUFFERS {
            buffers.give(buffer);
        }
        buffers.publish();
        buffers
    }

    fn at(&self, buffer: u16) -> *mut u8 {
        // SAFETY: there are BUFFERS buffers, and the kernel names no other.
        unsafe { self.bytes.add(usize::from(buffer) * BUFFER) }
    }

    /// Gives `buffer` back to the kernel, which sees it when it is published.
    fn give(&mut self, buffer: u16) {
        let at = self.at(buffer);
        // SAFETY: the index is below BUFFERS, a power of two; the kernel does
        // not look at entries from the tail on.
        unsafe {
            let entry = &mut *self.entries.add(usize::from(self.tail & (BUFFERS - 1)));
            entry.set_addr(at as u64);
            entry.set_len(BUFFER as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail is inside the first entry, and only we write to it.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        // Release: the kernel sees the entries before the tail.
        tail.store(self.tail, Ordering::Release);
    }
}

/// As many reads in flight as the others have.
fn file_read(job: &Job) {
    let file_blocks = Blocks::new().expect("can't write a file");
    let file = File::open(file_blocks.path()).expect("can't open it");
    let mut ring = ring(IN_FLIGHT as u32);
    let mut offsets = Offsets::new(1);
    let mut blocks = vec![[0; BLOCK]; IN_FLIGHT as usize];
    let mut wanted = vec![0; IN_FLIGHT as usize];
    let mut done = Vec::with_capacity(IN_FLIGHT as usize);
    let ns = steady(job.target(), |n| -> Duration {
        let start = Instant::now();
        let mut begin =
            |ring: &mut IoUring, slot: usize, blocks: &mut [[u8; BLOCK]], wanted: &mut [u64]| {
                wanted[slot] = offsets.next();
                let to = blocks[slot].as_mut_ptr();
                let read = opcode::Read::new(Fd(file.as_raw_fd()), to, BLOCK as u32)
                    .offset(wanted[slot])
                    .build()
                    .user_data(slot as u64);
                push(ring, &read);
            };
        let (mut begun, mut ended) = (0, 0);
        while begun < n.min(IN_FLIGHT) {
            begin(&mut ring, begun as usize, &mut blocks, &mut wanted);
            begun += 1;
        }
        while ended < n {
            ring.submit_and_wait(1).expect("can't submit");
            done.clear();
            done.extend(ring.completion());
            for entry in &done {
                let slot = entry.user_data() as usize;
                assert_eq!(entry.result(), BLOCK as i32);
                assert!(Blocks::is_at(&blocks[slot], wanted[slot]));
                ended += 1;
                if begun < n {
                    begin(&mut ring, slot, &mut blocks, &mut wanted);
                    begun += 1;
                }
            }
        }
        start.elapsed()
    });
    report("ns", ns);
}
