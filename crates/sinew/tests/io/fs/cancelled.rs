//! Cancelled fibers and files.

use super::{Folder, pipe};
use crate::harness::wait_until;
use crate::world::{everywhere, on_fibers};
use sinew::fs::{self, DirBuilder, File, FileTimes};
use sinew::{CancelToken, Cancelled, WaitReason};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::time::SystemTime;

/// Calls `f` as one who is cancelled.
fn as_cancelled<T>(f: impl FnOnce() -> T) -> T {
    let token = CancelToken::new();
    token.cancel();
    token.enter(f)
}

#[track_caller]
fn assert_cancelled<T>(result: io::Result<T>) {
    let error = result.err().expect("it was cancelled");
    assert!(Cancelled::is_in(&error), "{error:?}");
}

#[test]
fn a_cancelled_fiber_leaves_an_open_file_untouched() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("a", "hello");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let before = file.metadata().unwrap();
        as_cancelled(|| {
            let mut buffer = [9; 3];
            assert_cancelled((&file).read(&mut buffer));
            assert_cancelled(file.read_at(&mut buffer, 0));
            assert_cancelled(file.read_exact_at(&mut buffer, 0));
            assert_cancelled((&file).read_vectored(&mut [IoSliceMut::new(&mut buffer)]));
            assert_eq!(buffer, [9; 3]);
            assert_cancelled((&file).write(b"x"));
            assert_cancelled((&file).write_all(b"x"));
            assert_cancelled(file.write_at(b"x", 0));
            assert_cancelled(file.write_all_at(b"x", 0));
            assert_cancelled((&file).write_vectored(&[IoSlice::new(b"x")]));
            assert_cancelled((&file).seek(SeekFrom::Start(2)));
            assert_cancelled((&file).seek(SeekFrom::End(0)));
            assert_cancelled(file.set_len(0));
            assert_cancelled(file.sync_all());
            assert_cancelled(file.sync_data());
            assert_cancelled(file.metadata());
            assert_cancelled(file.set_permissions(before.permissions()));
            assert_cancelled(file.set_modified(SystemTime::UNIX_EPOCH));
            assert_cancelled(file.set_times(FileTimes::new()));
        });
        assert_eq!((&file).stream_position().unwrap(), 0);
        let after = file.metadata().unwrap();
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"hello");
    });
}

#[test]
fn a_cancelled_fiber_changes_no_name() {
    everywhere(|| {
        let folder = Folder::new();
        let (there, new) = (folder.file("there", "hello"), folder.join("new"));
        let empty = folder.join("empty");
        fs::create_dir(&empty).unwrap();
        let permissions = fs::metadata(&there).unwrap().permissions();
        as_cancelled(|| {
            assert_cancelled(File::open(&there));
            assert_cancelled(File::create(&there));
            assert_cancelled(File::create_new(&new));
            assert_cancelled(fs::read(&there));
            assert_cancelled(fs::read_to_string(&there));
            assert_cancelled(fs::write(&there, "x"));
            assert_cancelled(fs::copy(&there, &new));
            assert_cancelled(fs::rename(&there, &new));
            assert_cancelled(fs::remove_file(&there));
            assert_cancelled(fs::remove_dir(&empty));
            assert_cancelled(fs::remove_dir_all(&folder.0));
            assert_cancelled(fs::create_dir(&new));
            assert_cancelled(fs::create_dir_all(&new));
            assert_cancelled(DirBuilder::new().create(&new));
            assert_cancelled(fs::hard_link(&there, &new));
            assert_cancelled(fs::symlink(&there, &new));
            assert_cancelled(fs::read_link(&there));
            assert_cancelled(fs::canonicalize(&there));
            assert_cancelled(fs::metadata(&there));
            assert_cancelled(fs::symlink_metadata(&there));
            assert_cancelled(fs::set_permissions(&there, permissions));
            assert_cancelled(fs::exists(&there));
            assert_cancelled(fs::read_dir(&folder.0));
        });
        assert_eq!(fs::read(&there).unwrap(), b"hello");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    });
}

#[test]
fn a_listing_ends_after_it_said_that_it_was_cancelled() {
    everywhere(|| {
        let folder = Folder::new();
        for i in 0..300 {
            folder.file(&i.to_string(), "");
        }
        let mut listing = fs::read_dir(&folder.0).unwrap();
        listing.next().unwrap().unwrap();
        as_cancelled(|| {
            assert_cancelled(listing.next().unwrap());
            assert!(listing.next().is_none());
        });
        assert!(listing.next().is_none());
    });
}

#[test]
fn a_read_from_a_quiet_pipe_is_cancelled_and_takes_no_byte() {
    on_fibers(|| {
        let folder = Folder::new();
        let path = folder.fifo("named");
        let mut both_ends = File::options();
        both_ends.read(true).write(true);
        let named = both_ends.open(&path).unwrap();
        let (anonymous, write_end) = pipe();
        for (read_end, mut write_end) in [(&named, &named), (&anonymous, &write_end)] {
            let reader = sinew::spawn({
                let mut pipe = read_end.try_clone().unwrap();
                move || pipe.read(&mut [0; 8])
            });
            wait_until(|| reader.fiber().wait_reason() == WaitReason::File);
            reader.cancel();
            assert_cancelled(reader.join().unwrap());
            write_end.write_all(b"whole").unwrap();
            let mut found = [0; 8];
            assert_eq!({ read_end }.read(&mut found).unwrap(), 5);
            assert_eq!(&found[..5], b"whole");
        }
    });
}

#[test]
fn a_write_to_a_full_pipe_is_cancelled() {
    on_fibers(|| {
        let (mut read_end, mut write_end) = pipe();
        let writer = sinew::spawn(move || {
            let mut written = 0;
            loop {
                match write_end.write(&[1; 1000]) {
                    Ok(count) => written += count,
                    Err(error) => return (written, error),
                }
            }
        });
        wait_until(|| writer.fiber().wait_reason() == WaitReason::File);
        writer.cancel();
        let (written, error) = writer.join().unwrap();
        assert!(Cancelled::is_in(&error));
        let mut found = Vec::new();
        read_end.read_to_end(&mut found).unwrap();
        assert_eq!(found.len(), written);
    });
}

#[test]
fn a_thread_that_reads_from_a_quiet_pipe_is_cancelled() {
    let _watch = crate::harness::watch();
    let (mut read_end, mut write_end) = pipe();
    let limit = std::time::Duration::from_millis(1);
    let late = sinew::timeout(limit, || read_end.read(&mut [0; 8])).unwrap_err();
    assert_cancelled(late.into_inner());
    write_end.write_all(b"x").unwrap();
    assert_eq!(read_end.read(&mut [0; 8]).unwrap(), 1);
}
