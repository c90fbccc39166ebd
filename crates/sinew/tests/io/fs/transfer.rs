//! Reading, writing and seeking at a file's own position.

use super::{Folder, assert_as_std, forget_cache, pattern};
use crate::world::everywhere;
use sinew::fs::{self, File, FileTimes, OpenOptions};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

#[test]
fn what_is_written_is_read_back() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        File::create(&path).unwrap().write_all(b"hello").unwrap();
        let mut text = String::new();
        let mut file = File::open(&path).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert_eq!(file.read(&mut [0; 8]).unwrap(), 0);
        assert!(format!("{file:?}").contains("fd"));
    });
}

#[test]
fn opening_fails_as_std_does() {
    everywhere(|| {
        let folder = Folder::new();
        let there = folder.file("there", "x");
        let missing = folder.join("missing");
        let kind = |result: std::io::Result<File>| result.unwrap_err().kind();
        assert_eq!(kind(File::open(&missing)), ErrorKind::NotFound);
        assert_eq!(kind(File::create_new(&there)), ErrorKind::AlreadyExists);
        let below = there.join("below");
        assert_eq!(kind(File::open(&below)), ErrorKind::NotADirectory);
        assert_eq!(kind(File::create(&folder.0)), ErrorKind::IsADirectory);
        let nothing = File::options().open(&there);
        assert_eq!(kind(nothing), ErrorKind::InvalidInput);
        let contradiction = File::options().read(true).truncate(true).open(&there);
        assert_eq!(kind(contradiction), ErrorKind::InvalidInput);
        let zero = File::open("a\0b");
        assert_eq!(kind(zero), ErrorKind::InvalidInput);
    });
}

#[test]
fn transfers_in_the_wrong_direction_fail_as_std_does() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("a", "x");
        let mut std_reader = std::fs::File::open(&path).unwrap();
        let mut reader = File::open(&path).unwrap();
        assert_as_std(reader.write(b"y"), std_reader.write(b"y"));
        let mut std_writer = std::fs::File::create(&path).unwrap();
        let mut writer = File::create(&path).unwrap();
        assert_as_std(writer.read(&mut [0]), std_writer.read(&mut [0]));
        assert_as_std(reader.set_len(3), std_reader.set_len(3));
        let mut std_folder = std::fs::File::open(&folder.0).unwrap();
        let mut opened = File::open(&folder.0).unwrap();
        assert_as_std(opened.read(&mut [0]), std_folder.read(&mut [0]));
    });
}

#[test]
fn options_mean_what_they_do_in_std() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o640);
        let mut file = options.clone().open(&path).unwrap();
        file.write_all(b"0123456789").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "no more than was asked for");
        assert_eq!(
            options.open(&path).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        let mut over = File::options().write(true).open(&path).unwrap();
        over.write_all(b"ab").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ab23456789");
        File::options()
            .write(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        fs::symlink(&path, folder.join("link")).unwrap();
        let mut not_by_link = File::options();
        not_by_link.read(true).custom_flags(libc::O_NOFOLLOW);
        let error = not_by_link.open(folder.join("link")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    });
}

#[test]
fn seeking_moves_the_position_as_std_does() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("a", "0123456789");
        let mut file = File::open(&path).unwrap();
        let mut two = [0; 2];
        assert_eq!(file.seek(SeekFrom::Start(3)).unwrap(), 3);
        file.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"34");
        assert_eq!(file.seek(SeekFrom::Current(1)).unwrap(), 6);
        assert_eq!(file.seek(SeekFrom::End(-2)).unwrap(), 8);
        file.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"89");
        let beyond = file.read_exact(&mut two).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
        let before = file.seek(SeekFrom::Current(-11)).unwrap_err();
        assert_eq!(before.kind(), ErrorKind::InvalidInput);
        assert_eq!(file.stream_position().unwrap(), 10);
        file.rewind().unwrap();
        assert_eq!((&file).stream_position().unwrap(), 0);
    });
}

#[test]
fn vectored_transfers_fill_one_part_after_the_other() {
    everywhere(|| {
        let folder = Folder::new();
        let mut file = File::create_new(folder.join("a")).unwrap();
        let parts = [
            IoSlice::new(b"ab"),
            IoSlice::new(b""),
            IoSlice::new(b"cdefg"),
        ];
        assert_eq!(file.write_vectored(&parts).unwrap(), 7);
        assert_eq!(file.stream_position().unwrap(), 7);
        file.rewind().unwrap();
        let (mut head, mut tail) = ([0; 3], [0; 8]);
        let mut into = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
        assert_eq!(file.read_vectored(&mut into).unwrap(), 7);
        assert_eq!((&head, &tail[..4]), (b"abc", &b"defg"[..]));
        assert_eq!(file.stream_position().unwrap(), 7);
        assert_eq!(file.read_vectored(&mut []).unwrap(), 0);
        assert_eq!(file.write_vectored(&[]).unwrap(), 0);
        assert_eq!(file.write(b"").unwrap(), 0);
        assert_eq!(file.read(&mut []).unwrap(), 0);
    });
}

#[test]
fn more_parts_than_a_call_takes_are_a_short_transfer() {
    everywhere(|| {
        let folder = Folder::new();
        let mut file = File::create_new(folder.join("a")).unwrap();
        let parts = vec![IoSlice::new(b"xy"); 1500];
        let written = file.write_vectored(&parts).unwrap();
        assert!((1..=3000).contains(&written));
        let mut bytes = vec![0; 1500];
        let mut into: Vec<_> = bytes.chunks_mut(1).map(IoSliceMut::new).collect();
        let read = file.read_vectored_at(&mut into, 0).unwrap();
        assert!((1..=1500).contains(&read));
        assert_eq!(&bytes[..2], b"xy");
    });
}

#[test]
fn appended_bytes_go_to_the_end() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("log", "start ");
        let open = || File::options().append(true).open(&path).unwrap();
        let (mut one, mut other) = (open(), open());
        for _ in 0..3 {
            one.write_all(b"one ").unwrap();
            other.write_all(b"other ").unwrap();
        }
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "start one other one other one other "
        );
    });
}

#[test]
fn a_large_file_is_read_as_it_was_written() {
    let bytes = pattern(8 << 20);
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("large");
        let mut file = File::create_new(&path).unwrap();
        file.write_all(&bytes).unwrap();
        assert_eq!(file.stream_position().unwrap(), bytes.len() as u64);
        for cached in [true, false] {
            if !cached {
                forget_cache(&file);
            }
            // By pieces that do and that do not go to the pool for their size.
            for piece in [3 << 20, 100_000] {
                let mut file = File::open(&path).unwrap();
                let mut found = Vec::new();
                let mut buffer = vec![0; piece];
                loop {
                    let count = file.read(&mut buffer).unwrap();
                    if count == 0 {
                        break;
                    }
                    found.extend_from_slice(&buffer[..count]);
                }
                assert!(found == bytes, "by {piece} bytes");
            }
        }
        let mut found = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == bytes);
    });
}

#[test]
fn a_file_that_is_partly_in_memory_does_not_end_there() {
    let bytes = pattern(1 << 20);
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("a", &bytes);
        let mut file = File::open(&path).unwrap();
        for start in [0, 100_000, 1_000_000] {
            forget_cache(&file);
            // Brings in some pages around it, and not the others.
            file.read_at(&mut [0; 10], start).unwrap();
            file.rewind().unwrap();
            let mut found = vec![0; bytes.len()];
            file.read_exact(&mut found).unwrap();
            assert!(found == bytes);
            assert_eq!(file.read(&mut found).unwrap(), 0);
        }
    });
}

#[test]
fn length_permissions_and_times_can_be_changed() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        let mut file = File::create_new(&path).unwrap();
        file.write_all(b"hello").unwrap();
        file.set_len(2).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2);
        assert_eq!(file.stream_position().unwrap(), 5);
        file.set_len(4).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"he\0\0");
        file.sync_data().unwrap();
        file.sync_all().unwrap();

        file.set_permissions(fs::Permissions::from_mode(0o400))
            .unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);

        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        file.set_modified(then).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), then);
        let later = then + Duration::from_secs(1);
        file.set_times(FileTimes::new().set_accessed(later))
            .unwrap();
        assert_eq!(file.metadata().unwrap().accessed().unwrap(), later);
        assert_eq!(file.metadata().unwrap().modified().unwrap(), then);
    });
}

#[test]
fn a_clone_shares_the_position() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("a", "abcdef");
        let mut file = File::open(&path).unwrap();
        let mut clone = file.try_clone().unwrap();
        let mut two = [0; 2];
        file.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"ab");
        clone.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"cd");
        file.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"ef");
        drop(file);
        assert_eq!(clone.stream_position().unwrap(), 6);
    });
}

#[test]
fn a_file_is_made_of_stds_and_back() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("a", "abcdefgh");
        let mut two = [0; 2];
        let mut ours = File::from(std::fs::File::open(&path).unwrap());
        ours.read_exact(&mut two).unwrap();
        assert_eq!(ours.as_fd().as_raw_fd(), ours.as_raw_fd());
        let mut stds = ours.into_std();
        stds.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"cd");
        let mut ours = File::from(OwnedFd::from(stds));
        ours.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"ef");
        let raw = OwnedFd::from(ours).into_raw_fd();
        // SAFETY: nobody else has it.
        let mut ours = unsafe { File::from_raw_fd(raw) };
        assert_eq!(
            std::fs::File::from(ours.try_clone().unwrap())
                .metadata()
                .unwrap()
                .len(),
            8
        );
        ours.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"gh");
        // SAFETY: as above.
        drop(unsafe { OwnedFd::from_raw_fd(ours.into_raw_fd()) });
    });
}
