//! Files that are none: of the kernel, devices, pipes.

use super::{Folder, assert_as_std, pattern, pipe};
use crate::harness::wait_until;
use crate::world::{everywhere, on_fibers};
use sinew::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

#[test]
fn files_of_the_kernel_are_read() {
    everywhere(|| {
        let mut text = String::new();
        let mut file = File::open("/proc/self/status").unwrap();
        file.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("Name:"));
        assert_eq!(file.read(&mut [0; 8]).unwrap(), 0);
        let mut again = [0; 5];
        file.read_exact_at(&mut again, 0).unwrap();
        assert_eq!(&again, b"Name:");
        assert_eq!(file.stream_position().unwrap(), text.len() as u64);
        assert!(
            fs::read_to_string("/proc/version")
                .unwrap()
                .starts_with("Linux")
        );
    });
}

#[test]
fn devices_answer_as_they_do_to_std() {
    everywhere(|| {
        let mut bytes = [1; 10_000];
        let mut zero = File::open("/dev/zero").unwrap();
        zero.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 10_000]);
        let mut null = File::options().read(true).write(true).open("/dev/null");
        let null = null.as_mut().unwrap();
        null.write_all(&bytes).unwrap();
        assert_eq!(null.read(&mut bytes).unwrap(), 0);
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let error = full.write(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let error = full.write_at(b"x", 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    });
}

#[test]
fn a_file_that_is_memory_is_used_at_once() {
    on_fibers(|| {
        let Some(folder) = Folder::in_memory() else {
            return;
        };
        let mut file = File::create_new(folder.join("a")).unwrap();
        let mut found = [0; 5];
        // Panics if it had to wait.
        sinew::no_suspend(|| {
            file.write_all(b"hello").unwrap();
            file.write_all_at(b"H", 0).unwrap();
            file.read_exact_at(&mut found, 0).unwrap();
        });
        assert_eq!(&found, b"Hello");
        assert_eq!(file.stream_position().unwrap(), 5);
        assert_eq!(file.read(&mut found).unwrap(), 0);
    });
}

#[test]
fn a_pipe_with_a_name_joins_two_fibers() {
    let bytes = pattern(1 << 20); // a pipe takes 64 KiB
    let exchange = |folder: Folder| {
        let path = folder.fifo("pipe");
        let writer = sinew::spawn({
            let (path, bytes) = (path.clone(), bytes.clone());
            move || {
                let mut pipe = File::options().write(true).open(path).unwrap();
                for piece in bytes.chunks(100_000) {
                    pipe.write_all(piece).unwrap();
                }
            }
        });
        let mut found = Vec::new();
        // Each waits until the other opens it, too.
        let mut pipe = File::open(&path).unwrap();
        pipe.read_to_end(&mut found).unwrap();
        assert!(found == bytes);
        assert_eq!(pipe.read(&mut [0; 4]).unwrap(), 0);
        writer.join().unwrap();
    };
    everywhere(|| {
        exchange(Folder::new());
        if let Some(folder) = Folder::in_memory() {
            // The name is in memory; what is read has to be waited for all the same.
            exchange(folder);
        }
    });
}

#[test]
fn readers_of_a_quiet_pipe_wait_without_threads() {
    on_fibers(|| {
        let (read_end, mut write_end) = pipe();
        let read_end = Arc::new(read_end);
        let readers: Vec<_> = (0..600)
            .map(|_| {
                let pipe = read_end.clone();
                sinew::spawn(move || {
                    let mut byte = [0];
                    (&*pipe).read_exact(&mut byte).unwrap();
                    byte[0]
                })
            })
            .collect();
        // More than the pool has threads, and still there is one for this.
        wait_until(|| {
            let waits = |reader: &sinew::JoinHandle<u8>| {
                reader.fiber().wait_reason() == sinew::WaitReason::File
            };
            readers.iter().all(waits)
        });
        assert!(fs::exists("/").unwrap());
        write_end.write_all(&[7; 600]).unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), 7);
        }
    });
}

#[test]
fn a_pipe_has_no_offsets() {
    everywhere(|| {
        let (ours, mut write_end) = pipe();
        let stds = ours.try_clone().unwrap().into_std();
        write_end.write_all(b"abc").unwrap();
        let mut one = [0];
        assert_as_std(ours.read_at(&mut one, 0), stds.read_at(&mut one, 0));
        assert_as_std((&ours).rewind(), (&stds).rewind());
        let mut all = [0; 3];
        (&ours).read_exact(&mut all).unwrap();
        assert_eq!(&all, b"abc");
    });
}

#[test]
fn a_pipe_whose_reader_is_gone_is_broken() {
    everywhere(|| {
        let (read_end, mut write_end) = pipe();
        drop(read_end);
        let error = write_end.write(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_pipe_that_its_owner_wants_not_to_wait_does_not() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.fifo("pipe");
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut reader = options.open(&path).unwrap();
        let mut writer = File::options().write(true).open(&path).unwrap();
        let error = reader.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        writer.write_all(b"x").unwrap();
        assert_eq!(reader.read(&mut [0; 4]).unwrap(), 1);
    });
}
