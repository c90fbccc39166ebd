//! Addresses of Unix sockets, between std's type and the kernel's.

use socket2::SockAddr;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

/// The address of a path.
///
/// # Errors
///
/// `InvalidInput` if it is too long, or has a NUL in it.
pub(super) fn of_path(path: &Path) -> io::Result<SockAddr> {
    // std's check: to the kernel a NUL in front would make it another kind of name.
    from_std(&SocketAddr::from_pathname(path)?)
}

/// As the kernel takes it.
pub(super) fn from_std(address: &SocketAddr) -> io::Result<SockAddr> {
    if let Some(path) = address.as_pathname() {
        return SockAddr::unix(path);
    }
    let name: Vec<u8> = match address.as_abstract_name() {
        Some(name) => [b"\0", name].concat(),
        None => Vec::new(),
    };
    SockAddr::unix(OsStr::from_bytes(&name))
}

/// As std has it.
///
/// A name that std cannot make counts as none: a path that fills the kernel's room
/// to the last byte. That is better than to lose the datagram that came from it.
pub(super) fn to_std(address: &SockAddr) -> io::Result<SocketAddr> {
    let named = match (address.as_pathname(), address.as_abstract_namespace()) {
        (Some(path), _) => SocketAddr::from_pathname(path),
        (None, Some(name)) => SocketAddr::from_abstract_name(name),
        (None, None) => return unnamed(),
    };
    named.or_else(|_| unnamed())
}

fn unnamed() -> io::Result<SocketAddr> {
    SocketAddr::from_pathname("")
}
