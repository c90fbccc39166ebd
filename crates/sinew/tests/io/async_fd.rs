//! Any descriptor, waited for.

use crate::harness::wait_until;
use crate::world::{everywhere, on_fibers};
use sinew::io::Async;
use sinew::{Cancelled, WaitReason};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

/// Both ends of a pipe.
fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are new and ours.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

fn is_nonblocking(fd: impl AsFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

#[test]
fn a_pipe_is_read_and_written() {
    everywhere(|| {
        let (reader, writer) = pipe();
        let (mut reader, mut writer) = (Async::new(reader).unwrap(), Async::new(writer).unwrap());
        let sent: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let expected = sent.clone();
        let sender = sinew::spawn(move || writer.write_all(&sent).unwrap());
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        assert!(received == expected);
        sender.join().unwrap();
    });
}

#[test]
fn a_read_waits_for_what_is_written_later() {
    everywhere(|| {
        let (reader, writer) = pipe();
        let reader = Async::new(reader).unwrap();
        let waits = sinew::spawn(move || {
            let mut byte = [0];
            (&reader).read_exact(&mut byte).unwrap();
            byte[0]
        });
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Read);
        std::fs::File::from(writer).write_all(b"x").unwrap();
        assert_eq!(waits.join().unwrap(), b'x');
    });
}

#[test]
fn readable_is_what_the_kernel_says_now() {
    everywhere(|| {
        let (reader, writer) = pipe();
        let (reader, mut writer) = (Async::new(reader).unwrap(), std::fs::File::from(writer));
        let soon = Duration::from_millis(1);
        for _ in 0..3 {
            let error = reader.readable_timeout(soon).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            writer.write_all(b"x").unwrap();
            reader.readable().unwrap();
            reader.readable().unwrap(); // it still is
            (&reader).read_exact(&mut [0]).unwrap();
        }
        let past = sinew::time::Instant::now();
        let error = reader.readable_deadline(past).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(writer);
        reader.readable().unwrap(); // the end
    });
}

#[test]
fn writable_waits_for_room() {
    everywhere(|| {
        let (reader, writer) = pipe();
        let writer = Async::new(writer).unwrap();
        writer.writable().unwrap();
        let full = |mut fd: &std::fs::File| fd.write(&[0; 4096]);
        let file = std::fs::File::from(writer.get_ref().try_clone().unwrap());
        while full(&file).is_ok() {} // it does not block: `O_NONBLOCK` is shared
        let error = writer
            .writable_timeout(Duration::from_millis(1))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let waits = sinew::spawn(move || writer.writable().unwrap());
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Write);
        let mut reader = std::fs::File::from(reader);
        reader.read_exact(&mut [0; 65536]).unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn a_call_is_made_again_while_it_would_block() {
    everywhere(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let (one, other) = (Async::new(one).unwrap(), Async::new(other).unwrap());
        let receiver = sinew::spawn(move || {
            (0..200u32).all(|i| {
                let mut bytes = [0; 8];
                let count = one.read_with(|socket| socket.recv(&mut bytes)).unwrap();
                bytes[..count] == i.to_le_bytes()
            })
        });
        for i in 0..200u32 {
            let sent = other.write_with(|socket| socket.send(&i.to_le_bytes()));
            assert_eq!(sent.unwrap(), 4);
        }
        assert!(receiver.join().unwrap());
    });
}

#[test]
fn an_error_of_a_call_is_answered() {
    everywhere(|| {
        let (one, _other) = UnixDatagram::pair().unwrap();
        let one = Async::new(one).unwrap();
        let answer = one.read_with(|_| Err::<(), _>(io::Error::other("mine")));
        assert_eq!(answer.unwrap_err().to_string(), "mine");
    });
}

#[test]
fn waits_are_cancelled() {
    on_fibers(|| {
        let (one, _other) = UnixStream::pair().unwrap();
        let one = Async::new(one).unwrap();
        let waits = sinew::spawn(move || one.readable());
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Read);
        waits.cancel();
        assert!(Cancelled::is_in(&waits.join().unwrap().unwrap_err()));
    });
}

#[test]
fn the_descriptor_blocks_again_when_it_is_taken_back() {
    everywhere(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let duplicate = one.try_clone().unwrap();
        let mut one = Async::new(one).unwrap();
        assert!(is_nonblocking(&one));
        (&other).write_all(b"x").unwrap();
        one.read_exact(&mut [0]).unwrap();
        let one = one.into_inner();
        assert!(!is_nonblocking(&one));
        // It is open, and was not closed behind our back.
        (&one).write_all(b"y").unwrap();
        // Dropped it stays as it is: who uses the duplicate may count on that.
        drop(Async::new(one).unwrap());
        assert!(is_nonblocking(&duplicate));
        // One that did not block before stays so.
        duplicate.set_nonblocking(true).unwrap();
        let again = Async::new(duplicate).unwrap().into_inner();
        assert!(is_nonblocking(&again));
    });
}

#[test]
fn it_may_be_taken_apart_and_made_again() {
    everywhere(|| {
        let (mut one, other) = UnixStream::pair().unwrap();
        for _ in 0..5 {
            let mut ours = Async::new(one).unwrap();
            let error = ours.readable_timeout(Duration::from_millis(1)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            (&other).write_all(b"x").unwrap();
            ours.read_exact(&mut [0]).unwrap();
            one = ours.into_inner();
        }
    });
}

#[test]
fn a_file_never_waits() {
    everywhere(|| {
        let file = Async::new(std::fs::File::open("/proc/self/status").unwrap()).unwrap();
        file.readable().unwrap();
        let mut text = String::new();
        (&file).read_to_string(&mut text).unwrap();
        assert!(text.contains("Pid:"));
    });
}

#[test]
fn async_code_waits_for_readiness() {
    everywhere(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let one = Async::new(one).unwrap();
        sinew::scope(|s| {
            let waits = s.spawn(|| {
                sinew::block_on(async {
                    one.writable_async().await.unwrap();
                    one.readable_async().await.unwrap();
                });
            });
            wait_until(|| waits.fiber().wait_reason() == WaitReason::Future);
            (&other).write_all(b"x").unwrap();
            waits.join().unwrap();
        });
        // Dropped before it is ready.
        (&one).read_exact(&mut [0]).unwrap();
        sinew::block_on(async {
            let mut waits = std::pin::pin!(one.readable_async());
            std::future::poll_fn(|context| {
                assert!(waits.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        });
    });
}
