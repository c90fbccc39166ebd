//! What is done to files by their names.

use super::{Folder, assert_as_std, pattern};
use crate::world::everywhere;
use sinew::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn whole_files_are_written_and_read() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.join("a");
        for contents in [&b"first, and long"[..], b"second", b""] {
            fs::write(&path, contents).unwrap();
            assert_eq!(fs::read(&path).unwrap(), contents);
            assert_eq!(fs::read_to_string(&path).unwrap().as_bytes(), contents);
        }
        fs::write(&path, b"\xff").unwrap();
        let error = fs::read_to_string(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let missing = folder.join("missing");
        assert_as_std(fs::read(&missing), std::fs::read(&missing));
        assert_as_std(fs::write(&folder.0, ""), std::fs::write(&folder.0, ""));
    });
}

#[test]
fn a_copy_has_the_bytes_and_permissions() {
    let bytes = pattern(300_000);
    everywhere(|| {
        let folder = Folder::new();
        let (from, to) = (folder.file("from", &bytes), folder.join("to"));
        fs::set_permissions(&from, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::copy(&from, &to).unwrap(), 300_000);
        assert!(fs::read(&to).unwrap() == bytes);
        let mode = fs::metadata(&to).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let missing = folder.join("missing");
        assert_as_std(fs::copy(&missing, &to), std::fs::copy(&missing, &to));
        assert_as_std(fs::copy(&folder.0, &to), std::fs::copy(&folder.0, &to));
    });
}

#[test]
fn names_move_and_go() {
    everywhere(|| {
        let folder = Folder::new();
        let (old, new) = (folder.file("old", "x"), folder.file("new", "y"));
        fs::rename(&old, &new).unwrap();
        assert_eq!(fs::read(&new).unwrap(), b"x");
        assert!(!fs::exists(&old).unwrap());
        assert!(fs::exists(&new).unwrap());
        let error = fs::rename(&old, &new).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        fs::remove_file(&new).unwrap();
        let error = fs::remove_file(&new).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_as_std(fs::remove_file(&folder.0), std::fs::remove_file(&folder.0));
        let below = folder.file("file", "").join("below");
        assert_as_std(fs::exists(&below), std::fs::exists(&below));
    });
}

#[test]
fn links_lead_to_their_files() {
    everywhere(|| {
        let folder = Folder::new();
        let file = folder.file("file", "hello");
        let (hard, soft) = (folder.join("hard"), folder.join("soft"));
        fs::hard_link(&file, &hard).unwrap();
        fs::symlink("file", &soft).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
        assert_eq!(fs::read(&hard).unwrap(), b"hello");
        assert_eq!(fs::read(&soft).unwrap(), b"hello");
        assert_eq!(fs::read_link(&soft).unwrap().to_str(), Some("file"));
        assert!(fs::metadata(&soft).unwrap().is_file());
        assert!(fs::symlink_metadata(&soft).unwrap().is_symlink());
        let whole = std::fs::canonicalize(&file).unwrap();
        assert_eq!(fs::canonicalize(&soft).unwrap(), whole);
        for again in [fs::hard_link(&file, &hard), fs::symlink(&file, &soft)] {
            assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
        }
        assert_as_std(fs::read_link(&file), std::fs::read_link(&file));
        fs::remove_file(&file).unwrap();
        fs::remove_file(&hard).unwrap();
        assert!(!fs::exists(&soft).unwrap());
        let error = fs::canonicalize(&soft).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = fs::metadata(&soft).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn permissions_are_changed_by_name() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("a", "x");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        let permissions = fs::metadata(&path).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o444);
        assert!(permissions.readonly());
        let missing = folder.join("missing");
        let error = fs::set_permissions(&missing, permissions).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}
