//! Pipes.

use crate::harness::wait_until;
use crate::world::{everywhere, on_fibers};
use sinew::io::{PipeReader, PipeWriter, pipe};
use sinew::process::Command;
use sinew::{Cancelled, WaitReason};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

fn is_nonblocking(fd: impl AsFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

fn is_inherited(fd: impl AsFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFD) };
    flags & libc::FD_CLOEXEC == 0
}

/// Fills a new pipe: the next write waits.
fn fill(writer: &PipeWriter) {
    // SAFETY: no pointers.
    let capacity = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    let mut writer = writer;
    writer.write_all(&vec![0; capacity as usize]).unwrap();
}

#[test]
fn more_than_a_pipe_holds_goes_through_in_order() {
    everywhere(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        let sent: Vec<u8> = (0..400_000u32).map(|i| i as u8).collect();
        let expected = sent.clone();
        let sender = sinew::spawn(move || writer.write_all(&sent).unwrap());
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        assert!(received == expected);
        sender.join().unwrap();
    });
}

#[test]
fn a_read_waits_for_what_is_written_and_for_the_end() {
    everywhere(|| {
        let (reader, writer) = pipe().unwrap();
        let waits = sinew::spawn(move || {
            let mut all = Vec::new();
            (&reader).read_to_end(&mut all).unwrap();
            all
        });
        let waits_to_read = || waits.fiber().wait_reason() == WaitReason::Read;
        wait_until(waits_to_read);
        (&writer).write_all(b"one").unwrap();
        wait_until(waits_to_read);
        let clone = writer.try_clone().unwrap();
        drop(writer);
        (&clone).write_all(b"two").unwrap();
        wait_until(waits_to_read);
        assert!(!waits.is_finished()); // there is still a writer
        drop(clone);
        assert_eq!(waits.join().unwrap(), b"onetwo");
    });
}

#[test]
fn a_write_waits_for_room_and_fails_when_all_readers_are_gone() {
    on_fibers(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        fill(&writer);
        let waits = sinew::spawn(move || {
            writer.write_all(&[1; 4096]).unwrap();
            writer
        });
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Write);
        // Two pages: room for that one, and for another.
        reader.read_exact(&mut [0; 8192]).unwrap();
        let mut writer = waits.join().unwrap();
        writer.write_all(&[1; 4096]).unwrap();
        let waits = sinew::spawn(move || writer.write(&[2]).unwrap_err().kind());
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Write);
        drop(reader);
        assert_eq!(waits.join().unwrap(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_cancelled_wait_for_a_pipe_ends_and_moves_nothing() {
    on_fibers(|| {
        let (reader, writer) = pipe().unwrap();
        let mut theirs = reader.try_clone().unwrap();
        let waits = sinew::spawn(move || theirs.read(&mut [0; 8]).unwrap_err());
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Read);
        waits.cancel();
        assert!(Cancelled::is_in(&waits.join().unwrap()));
        (&writer).write_all(b"here").unwrap();
        let mut bytes = [0; 4];
        (&reader).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"here");
    });
}

#[test]
fn several_buffers_are_read_and_written_at_once() {
    everywhere(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        let parts = [IoSlice::new(b"one"), IoSlice::new(b"two")];
        assert_eq!(writer.write_vectored(&parts).unwrap(), 6);
        let (mut first, mut second) = ([0; 4], [0; 4]);
        let parts = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(reader.read_vectored(parts).unwrap(), 6);
        assert_eq!((&first, &second[..2]), (b"onet", &b"wo"[..]));
        writer.flush().unwrap();
    });
}

#[test]
fn both_ends_may_be_a_child_s_streams() {
    everywhere(|| {
        let (from_us, mut to_child) = pipe().unwrap();
        let (mut from_child, to_us) = pipe().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "cat; echo end >&2"]);
        command
            .stdin(from_us)
            .stdout(to_us.try_clone().unwrap())
            .stderr(to_us);
        let mut child = command.spawn().unwrap();
        drop(command); // it has the ends of the child, too
        to_child.write_all(b"through\n").unwrap();
        drop(to_child);
        let mut all = String::new();
        from_child.read_to_string(&mut all).unwrap();
        assert_eq!(all, "through\nend\n");
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn an_end_blocks_again_when_it_is_handed_away() {
    everywhere(|| {
        let (reader, writer) = pipe().unwrap();
        assert!(!is_nonblocking(&writer) && !is_inherited(&writer) && !is_inherited(&reader));
        (&writer).write_all(b"used").unwrap();
        assert!(is_nonblocking(&writer) && !is_nonblocking(&reader));
        let fd = OwnedFd::from(writer);
        assert!(!is_nonblocking(&fd));
        // And so with one of two clones, when the other has gone.
        let writer = PipeWriter::from(fd);
        let clone = writer.try_clone().unwrap();
        (&writer).write_all(b"used").unwrap();
        drop(writer);
        assert!(is_nonblocking(&clone));
        assert!(!is_nonblocking(OwnedFd::from(clone)));
    });
}

#[test]
fn an_end_does_not_block_its_clone_when_it_is_handed_away() {
    on_fibers(|| {
        let (reader, writer) = pipe().unwrap();
        let ours = reader.try_clone().unwrap();
        for end in [&reader, &ours] {
            // Whichever was used first.
            (&writer).write_all(b"!").unwrap();
            let mut end = end;
            end.read_exact(&mut [0]).unwrap();
        }
        let away = OwnedFd::from(reader);
        assert!(!is_nonblocking(&away) && is_nonblocking(&ours));
        // Would keep the only worker for ever, if it blocked.
        let waits = sinew::spawn(move || {
            let mut byte = [0];
            (&ours).read_exact(&mut byte).map(|()| byte)
        });
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Read);
        (&writer).write_all(b"x").unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), *b"x");
    });
}

#[test]
fn an_end_that_is_handed_away_blocks_also_if_its_clones_are_used_later() {
    everywhere(|| {
        let (reader, writer) = pipe().unwrap();
        let clone = writer.try_clone().unwrap();
        // SAFETY: no pointers.
        let set = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT) };
        assert_eq!(set, 0);
        let number = clone.as_raw_fd();
        let away = OwnedFd::from(clone);
        (&writer).write_all(b"packet").unwrap();
        assert!(!is_nonblocking(&away) && is_nonblocking(&writer));
        assert!(!is_inherited(&away));
        assert_eq!(away.as_raw_fd(), number);
        // Its other settings are as they were: each write is a packet.
        let mut away = std::fs::File::from(away);
        away.write_all(b"another").unwrap();
        let mut bytes = [0; 64];
        assert_eq!((&reader).read(&mut bytes).unwrap(), 6);
        assert_eq!((&reader).read(&mut bytes).unwrap(), 7);
        // The end of the pipe needs them both gone.
        drop(writer);
        away.write_all(b"last").unwrap();
        drop(away);
        assert_eq!((&reader).read(&mut bytes).unwrap(), 4);
        assert_eq!((&reader).read(&mut bytes).unwrap(), 0);
    });
}

#[test]
fn an_end_that_did_not_block_before_it_was_ours_stays_so() {
    everywhere(|| {
        let (_reader, writer) = pipe().unwrap();
        let fd = OwnedFd::from(writer);
        // SAFETY: no pointers.
        let set = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(set, 0);
        let writer = PipeWriter::from(fd);
        let clone = writer.try_clone().unwrap();
        (&writer).write_all(b"used").unwrap();
        assert!(is_nonblocking(OwnedFd::from(clone)));
        assert!(is_nonblocking(OwnedFd::from(writer)));
    });
}

/// What is no pipe may be in an end, too; its position is the open file's.
#[test]
fn a_file_that_is_handed_away_as_an_end_keeps_its_position() {
    everywhere(|| {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let reader = PipeReader::from(OwnedFd::from(file));
        let clone = reader.try_clone().unwrap();
        let mut start = [0; 5];
        (&reader).read_exact(&mut start).unwrap();
        assert_eq!(&start, b"Name:");
        let mut file = std::fs::File::from(OwnedFd::from(clone));
        file.read_exact(&mut start).unwrap();
        assert_ne!(&start, b"Name:");
    });
}

/// More than the pipe holds, by a program that does not expect `WouldBlock`.
#[test]
fn a_child_writes_to_an_end_that_has_clones_in_use() {
    everywhere(|| {
        const MIB: usize = 1 << 20;
        for used_before in [true, false] {
            let (reader, writer) = pipe().unwrap();
            if used_before {
                (&writer).write_all(b"head").unwrap();
            }
            let theirs = OwnedFd::from(writer.try_clone().unwrap());
            if !used_before {
                (&writer).write_all(b"head").unwrap();
            }
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", "bs=1M", "count=1", "status=none"]);
            let mut child = command.stdout(theirs).spawn().unwrap();
            drop(command); // it has the child's end, too
            // Nobody reads until the pipe is full, so that the child has to wait. The head
            // may have a page for itself.
            wait_until(|| {
                let mut held = 0;
                // SAFETY: `FIONREAD` writes an int.
                unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &mut held) };
                held >= (1 << 16) - (1 << 12)
            });
            drop(writer);
            let mut all = Vec::new();
            (&reader).read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), MIB + 4);
            assert!(child.wait().unwrap().success());
        }
    });
}

#[test]
fn raw_descriptors_go_in_and_out() {
    everywhere(|| {
        let (reader, writer) = pipe().unwrap();
        let (reader_fd, writer_fd) = (reader.as_raw_fd(), writer.as_raw_fd());
        assert!(format!("{reader:?}").contains(&reader_fd.to_string()));
        let (reader, writer) = (reader.into_raw_fd(), writer.into_raw_fd());
        assert_eq!((reader, writer), (reader_fd, writer_fd));
        // SAFETY: they were just given to us.
        let (mut reader, mut writer) = unsafe {
            (
                PipeReader::from_raw_fd(reader),
                PipeWriter::from_raw_fd(writer),
            )
        };
        writer.write_all(b"still there").unwrap();
        drop(writer);
        assert_eq!(std::io::read_to_string(&mut reader).unwrap(), "still there");
    });
}
