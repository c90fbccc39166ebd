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
        assert!(is_nonblocking(&away));
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
