//! Files: std's API, on which only the fiber waits.
//!
//! What differs from std is who waits, and where:
//!
//! | operation                                        | on a fiber                                             |
//! |--------------------------------------------------|--------------------------------------------------------|
//! | reads and writes                                 | at once from the page cache, if the kernel can do that |
//! | … that would wait, at an offset or of a pipe     | io_uring if the worker has one, else the blocking pool |
//! | … that would wait, at the file's own position    | the blocking pool, where the kernel locks the position |
//! | [`File::sync_all`], [`File::sync_data`]          | io_uring, else the blocking pool                       |
//! | opening, and everything about names and metadata | the blocking pool                                      |
//! | waiting for the lock of a file ([`File::lock`])  | tries, and sleeps in between                           |
//!
//! On a plain thread all of it runs in place, as std's does. What std's `Path` has
//! (`exists`, `metadata`, `read_dir`) is std's own, and keeps the worker: take [`exists`],
//! [`metadata`] and [`read_dir`] from here.
//!
//! Every operation but [`File::unlock`] is a cancellation point on entry: then nothing was done. One that
//! has begun is finished and its result returned, but for reads from and writes to a
//! pipe that wait: those are given up, unless bytes were moved. A fiber that opens a
//! FIFO waits for its other end on the pool, and is not woken by a cancellation.
//!
//! ```
//! use sinew::fs::{self, File};
//! use std::io::{Read, Write};
//!
//! sinew::run(|| -> std::io::Result<()> {
//!     let path = std::env::temp_dir().join(format!("sinew-fs-{}", std::process::id()));
//!     File::create_new(&path)?.write_all(b"hello")?;
//!     let mut text = String::new();
//!     File::open(&path)?.read_to_string(&mut text)?;
//!     assert_eq!(text, "hello");
//!     fs::remove_file(&path)?;
//!     assert!(!fs::exists(&path)?);
//!     Ok(())
//! })
//! .unwrap();
//! ```

mod away;
mod dir;
mod file;
mod lock;
mod nature;
mod options;
mod owner;
mod path;
mod transfer;

pub use dir::{DirBuilder, DirEntry, ReadDir, create_dir, create_dir_all, read_dir};
pub use file::File;
pub use lock::TryLockError;
pub use options::OpenOptions;
pub use owner::{chown, chroot, fchown, lchown};
#[expect(deprecated)]
pub use path::soft_link;
pub use path::{
    canonicalize, copy, exists, hard_link, metadata, read, read_link, read_to_string, remove_dir,
    remove_dir_all, remove_file, rename, set_permissions, symlink, symlink_metadata, write,
};
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};
