//! A connection that is read and written by reference.
//!
//! The socket's type is not told: with `impl<S> Read for &TlsDuplex<S>`, which holds for
//! every `S` that is read by reference, the compiler looks for `&TlsDuplex<TlsDuplex<…>>`
//! without end wherever it has to find out who is read so.

use super::split::{TlsReader, TlsWriter};
use crate::io::Duplex;
use crate::sync::Mutex;
use crate::wait::place::Hint;
use std::fmt;
use std::io::{self, Read, Write};
use std::panic::Location;

/// A connection that talks TLS, read and written by reference, by two fibers at a time; see
/// [`TlsStream::into_duplex`](super::TlsStream::into_duplex).
///
/// It is what [`split`](super::TlsStream::split) makes, kept together: each half behind a
/// lock of its own. Of several fibers that read, or write, all but one wait for that.
pub struct TlsDuplex {
    reader: Mutex<Box<dyn Read + Send>>,
    writer: Mutex<Box<dyn Goodbye>>,
}

/// A half that writes, and can say that nothing follows.
trait Goodbye: Write + Send {
    fn say_goodbye(&mut self) -> io::Result<()>;
}

impl<S: Duplex + Send + Sync> Goodbye for TlsWriter<S>
where
    for<'a> &'a S: Write,
{
    /// In TLS, then below.
    fn say_goodbye(&mut self) -> io::Result<()> {
        self.close_notify()?;
        self.get_ref().shutdown_write()
    }
}

impl TlsDuplex {
    pub(super) fn new<S>((reader, writer): (TlsReader<S>, TlsWriter<S>)) -> Self
    where
        S: Duplex + Send + Sync + 'static,
        for<'a> &'a S: Read + Write,
    {
        Self {
            reader: Mutex::new(Box::new(reader)),
            writer: Mutex::new(Box::new(writer)),
        }
    }
}

impl Read for &TlsDuplex {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let _hint = Hint::new(Location::caller());
        self.reader.lock_or_cancelled()?.read(into)
    }
}

impl Write for &TlsDuplex {
    #[track_caller]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let _hint = Hint::new(Location::caller());
        self.writer.lock_or_cancelled()?.write(from)
    }

    #[track_caller]
    fn flush(&mut self) -> io::Result<()> {
        let _hint = Hint::new(Location::caller());
        self.writer.lock_or_cancelled()?.flush()
    }
}

impl Read for TlsDuplex {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for TlsDuplex {
    #[track_caller]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        (&*self).write(from)
    }

    #[track_caller]
    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Duplex for TlsDuplex {
    fn shutdown_write(&self) -> io::Result<()> {
        self.writer.lock_or_cancelled()?.say_goodbye()
    }
}

impl fmt::Debug for TlsDuplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsDuplex").finish_non_exhaustive()
    }
}
