//! Making, listing and removing directories.

use super::{Folder, assert_as_std};
use crate::world::everywhere;
use sinew::fs::{self, DirBuilder};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn a_thousand_entries_are_listed_once_each() {
    everywhere(|| {
        let folder = Folder::new();
        let names: BTreeSet<String> = (0..1000).map(|i| format!("file {i}")).collect();
        for name in &names {
            folder.file(name, "");
        }
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&folder.0).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.path(), folder.0.join(entry.file_name()));
            assert!(entry.file_type().unwrap().is_file());
            assert!(found.insert(entry.file_name().into_string().unwrap()));
        }
        assert_eq!(found, names);
    });
}

#[test]
fn an_entry_knows_about_its_file() {
    everywhere(|| {
        let folder = Folder::new();
        let file = folder.file("file", "hello");
        let entry = fs::read_dir(&folder.0).unwrap().next().unwrap().unwrap();
        assert_eq!(entry.metadata().unwrap().len(), 5);
        assert_eq!(entry.ino(), fs::metadata(&file).unwrap().ino());
        assert!(format!("{entry:?}").contains("file"));
        fs::remove_file(&file).unwrap();
        let error = entry.metadata().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    });
}

#[test]
fn listing_fails_as_std_does() {
    everywhere(|| {
        let folder = Folder::new();
        let (file, missing) = (folder.file("file", ""), folder.join("missing"));
        assert_as_std(fs::read_dir(&file), std::fs::read_dir(&file));
        assert_as_std(fs::read_dir(&missing), std::fs::read_dir(&missing));
    });
}

#[test]
fn directories_are_made_and_removed() {
    everywhere(|| {
        let folder = Folder::new();
        let (one, deep) = (folder.join("one"), folder.join("one/two/three"));
        fs::create_dir(&one).unwrap();
        let error = fs::create_dir(&one).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let error = fs::create_dir(&deep).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir_all(&deep).unwrap();
        let error = fs::remove_dir(&one).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_dir(&deep).unwrap();
        let error = fs::remove_dir(&deep).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let private = folder.join("private/deep");
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&private)
            .unwrap();
        let mode = fs::metadata(&private).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let file = folder.file("file", "");
        assert_as_std(fs::create_dir_all(&file), std::fs::create_dir_all(&file));
    });
}

#[test]
fn a_tree_is_removed_but_not_what_its_links_lead_to() {
    everywhere(|| {
        let folder = Folder::new();
        let kept = folder.join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let tree = folder.join("tree");
        for branch in 0..5 {
            let leaf = tree.join(format!("{branch}/a/b"));
            fs::create_dir_all(&leaf).unwrap();
            fs::write(leaf.join("file"), "x").unwrap();
            fs::symlink(&kept, leaf.join("link")).unwrap();
        }
        fs::remove_dir_all(&tree).unwrap();
        assert!(!fs::exists(&tree).unwrap());
        assert!(fs::exists(kept.join("file")).unwrap());
        let error = fs::remove_dir_all(&tree).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}
