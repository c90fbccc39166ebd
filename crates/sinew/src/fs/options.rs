//! How to open a file.

use super::away;
use super::file::File;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// How a file is to be opened: std's `OpenOptions`, with its Unix extensions.
///
/// ```
/// use sinew::fs::OpenOptions;
/// use std::io::Write;
///
/// let path = std::env::temp_dir().join(format!("sinew-options-{}", std::process::id()));
/// for line in ["one\n", "two\n"] {
///     let mut log = OpenOptions::new().append(true).create(true).open(&path)?;
///     log.write_all(line.as_bytes())?;
/// }
/// assert_eq!(sinew::fs::read_to_string(&path)?, "one\ntwo\n");
/// sinew::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

impl OpenOptions {
    /// For nothing yet: all is off.
    #[allow(clippy::new_without_default)] // as std's
    pub fn new() -> Self {
        Self(fs::OpenOptions::new())
    }

    /// Whether to read.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.0.read(read);
        self
    }

    /// Whether to write; over what is there, unless it is truncated.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.0.write(write);
        self
    }

    /// Whether to write at the end, wherever that is at the time of each write.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.0.append(append);
        self
    }

    /// Whether to empty it first; needs `write`.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.0.truncate(truncate);
        self
    }

    /// Whether to make it if it is not there; needs `write` or `append`.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.0.create(create);
        self
    }

    /// Whether to make it, failing if it is there already.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.0.create_new(create_new);
        self
    }

    /// The permission bits of a file that is made, before the umask; 0o666 if not set.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.0.mode(mode);
        self
    }

    /// More flags for `open(2)`, such as `O_NOFOLLOW`.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.0.custom_flags(flags);
        self
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    ///
    /// As std: among them `NotFound`, `PermissionDenied`, `AlreadyExists` with
    /// [`create_new`](Self::create_new), `InvalidInput` for options that contradict each
    /// other; or a cancellation.
    #[track_caller]
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        let path = path.as_ref();
        away::call(|| self.0.open(path).map(File::opened))
    }
}
