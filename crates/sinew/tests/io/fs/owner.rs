//! Whose a file is, and where this process' files begin.

#![allow(deprecated)] // `soft_link`, which std has deprecated, is to act as std's does

use super::{Folder, assert_as_std};
use crate::reliability::child;
use crate::world::everywhere;
use sinew::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What may do anything with a file.
fn is_root() -> bool {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A user and a group that a file of ours may be given to: any for root; else ourselves and,
/// if there is one, a group that we are in besides our own.
fn others() -> (u32, u32) {
    // SAFETY: take nothing, and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if is_root() {
        return (user + 1, group + 2);
    }
    let mut groups = [0; 64];
    // SAFETY: room for 64.
    let count = unsafe { libc::getgroups(64, groups.as_mut_ptr()) };
    let groups = &groups[..usize::try_from(count).unwrap_or(0)];
    let other = groups.iter().find(|&&other| other != group);
    (user, *other.unwrap_or(&group))
}

fn owner(path: &Path) -> (u32, u32) {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}

#[test]
fn a_file_gets_the_owner_and_the_group_that_it_is_given() {
    everywhere(|| {
        let folder = Folder::new();
        let (user, group) = others();
        let path = folder.file("file", "");
        let before = owner(&path);
        fs::chown(&path, None, Some(group)).unwrap();
        assert_eq!(owner(&path), (before.0, group));
        fs::chown(&path, Some(user), None).unwrap();
        assert_eq!(owner(&path), (user, group));
        let path = folder.file("open", "");
        let file = fs::File::open(&path).unwrap();
        fs::fchown(&file, Some(user), Some(group)).unwrap();
        assert_eq!(owner(&path), (user, group));
        fs::fchown(&file, None, None).unwrap();
        assert_eq!(owner(&path), (user, group));
    });
}

#[test]
fn the_owner_of_a_link_is_not_that_of_its_file() {
    everywhere(|| {
        let folder = Folder::new();
        let (user, group) = others();
        let (file, link) = (folder.file("file", ""), folder.join("link"));
        let before = owner(&file);
        fs::soft_link("file", &link).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
        fs::lchown(&link, Some(user), Some(group)).unwrap();
        assert_eq!((owner(&link), owner(&file)), ((user, group), before));
        let of_link = owner(&link);
        fs::chown(&link, None, Some(before.1)).unwrap();
        assert_eq!((owner(&link), owner(&file)), (of_link, before));
        fs::chown(&link, None, Some(group)).unwrap();
        assert_eq!((owner(&link), owner(&file)), (of_link, (before.0, group)));
    });
}

#[test]
fn what_cannot_be_given_away_fails_as_std_does() {
    use std::os::unix::fs as stds;
    everywhere(|| {
        let folder = Folder::new();
        let (file, gone) = (folder.file("file", ""), folder.join("gone"));
        assert_as_std(fs::chown(&gone, None, None), stds::chown(&gone, None, None));
        assert_as_std(
            fs::lchown(&gone, None, None),
            stds::lchown(&gone, None, None),
        );
        let mut named = std::fs::File::options();
        let named = named.read(true).custom_flags(libc::O_PATH).open(&file);
        let named = named.unwrap();
        assert_as_std(
            fs::fchown(&named, None, None),
            stds::fchown(&named, None, None),
        );
        let again = fs::soft_link(&file, &file).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        if !is_root() {
            let error = fs::chown(&file, Some(0), None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        }
    });
}

/// In a child, which ends with its new root.
pub fn change_root() {
    let folder = std::env::var("SINEW_TEST_ROOT").unwrap();
    sinew::run(|| match fs::chroot(&folder) {
        Ok(()) => {
            std::env::set_current_dir("/").unwrap();
            assert_eq!(std::fs::read("/inside").unwrap(), b"here");
            let elsewhere = sinew::blocking(|| std::fs::read("inside").unwrap());
            assert_eq!(elsewhere, b"here");
            assert!(!Path::new("/proc").exists());
            println!("changed");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            println!("refused");
        }
    });
}

#[test]
fn another_root_holds_for_every_path_of_the_process() {
    let _watch = crate::harness::watch();
    let folder = Folder::new();
    folder.file("inside", "here");
    let root = folder.join("");
    let variables = [("SINEW_TEST_ROOT", root.to_str().unwrap())];
    let ended = child::start("another root", &variables).end();
    assert!(ended.status.success(), "{}", ended.stderr);
    // Root in a container may not be allowed it.
    let [changed, refused] = ["changed", "refused"].map(|word| ended.stdout.contains(word));
    assert!(changed || refused, "{}", ended.stdout);
    assert!(is_root() || refused);
}
