//! Reading and writing at offsets.

use super::{Folder, assert_as_std, forget_cache, pattern};
use crate::world::everywhere;
use sinew::fs::{self, File};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Seek};
use std::os::unix::fs::FileExt;

#[test]
fn positioned_transfers_leave_the_position_alone() {
    everywhere(|| {
        let folder = Folder::new();
        let mut file = File::create_new(folder.join("a")).unwrap();
        assert_eq!(file.write_at(b"hello", 3).unwrap(), 5);
        file.write_all_at(b"abc", 0).unwrap();
        let mut found = [0; 20];
        assert_eq!(file.read_at(&mut found, 2).unwrap(), 6);
        assert_eq!(&found[..6], b"chello");
        assert_eq!(file.read_at(&mut found, 8).unwrap(), 0);
        assert_eq!(file.read_at(&mut found, 1 << 40).unwrap(), 0);
        assert_eq!(file.stream_position().unwrap(), 0);
    });
}

#[test]
fn vectored_positioned_transfers_fill_one_part_after_the_other() {
    everywhere(|| {
        let folder = Folder::new();
        let file = File::create_new(folder.join("a")).unwrap();
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
        assert_eq!(file.write_vectored_at(&parts, 1).unwrap(), 5);
        for cached in [true, false] {
            if !cached {
                forget_cache(&file);
            }
            let (mut head, mut tail) = ([9; 4], [9; 4]);
            let mut into = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
            assert_eq!(file.read_vectored_at(&mut into, 0).unwrap(), 6);
            assert_eq!((&head, &tail), (b"\0abc", b"de\x09\x09"));
        }
    });
}

#[test]
fn exact_reads_tell_when_there_is_less() {
    everywhere(|| {
        let folder = Folder::new();
        let file = File::open(folder.file("a", "hello")).unwrap();
        let mut three = [0; 3];
        file.read_exact_at(&mut three, 2).unwrap();
        assert_eq!(&three, b"llo");
        let error = file.read_exact_at(&mut three, 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        file.read_exact_at(&mut [], 100).unwrap();
    });
}

#[test]
fn offsets_beyond_what_the_kernel_counts_are_refused_as_by_std() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("a", "hello");
        let stds = std::fs::File::options().read(true).write(true).open(&path);
        let stds = stds.unwrap();
        let ours = File::from(stds.try_clone().unwrap());
        let mut one = [0];
        for offset in [u64::MAX, 1 << 63] {
            assert_as_std(
                ours.read_at(&mut one, offset),
                stds.read_at(&mut one, offset),
            );
            assert_as_std(ours.write_at(b"x", offset), stds.write_at(b"x", offset));
        }
        assert_eq!(ours.into_std().stream_position().unwrap(), 0);
        assert_eq!(fs::read(&path).unwrap(), b"hello");
    });
}

#[test]
fn large_positioned_transfers_are_whole() {
    let bytes = pattern(3 << 20);
    everywhere(|| {
        let folder = Folder::new();
        let file = File::create_new(folder.join("a")).unwrap();
        for piece in bytes.chunks(700_000).enumerate() {
            file.write_all_at(piece.1, piece.0 as u64 * 700_000)
                .unwrap();
        }
        for cached in [true, false] {
            if !cached {
                forget_cache(&file);
            }
            let mut found = vec![0; bytes.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == bytes);
        }
        file.write_all_at(&bytes, 1).unwrap();
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, 1).unwrap();
        assert!(found == bytes);
    });
}

#[test]
fn synchronous_and_direct_files_work() {
    #[repr(align(4096))]
    struct Page([u8; 4096]);

    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        for flags in [libc::O_SYNC, libc::O_DSYNC, libc::O_DIRECT] {
            let mut options = File::options();
            options.read(true).write(true).create(true);
            let file = match options.custom_flags(flags).open(&path) {
                // Not all file systems know direct transfers.
                Err(error) if error.kind() == ErrorKind::InvalidInput => continue,
                opened => opened.unwrap(),
            };
            let mut page = Page([flags as u8; 4096]);
            file.write_all_at(&page.0, 4096).unwrap();
            page.0.fill(1);
            file.read_exact_at(&mut page.0, 4096).unwrap();
            assert!(page.0.iter().all(|&byte| byte == flags as u8));
        }
    });
}
