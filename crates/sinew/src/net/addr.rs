//! From names to addresses.

use crate::cancel::check_cancelled;
use crate::error::Cancelled;
use crate::task::blocking;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::{iter, option, slice, vec};

/// What can be turned into addresses: std's trait of this name, for fibers.
///
/// A name is looked up by the system's resolver, which blocks; so that is done on
/// the blocking pool, and only this fiber waits. Addresses need no lookup.
///
/// ```
/// use sinew::net::ToSocketAddrs;
///
/// let found: Vec<_> = ("127.0.0.1", 80).to_socket_addrs()?.collect();
/// assert_eq!(found, ["127.0.0.1:80".parse().unwrap()]);
/// # std::io::Result::Ok(())
/// ```
pub trait ToSocketAddrs {
    /// The addresses, in the order in which they should be tried.
    type Iter: Iterator<Item = SocketAddr>;

    /// Turns it into addresses, waiting for a lookup if it takes one.
    ///
    /// # Errors
    ///
    /// If the text is no address and the resolver knows no such name.
    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;
}

/// Looks up the addresses of `host`, such as `"localhost:80"` or
/// `("localhost", 80)`.
///
/// ```
/// sinew::run(|| {
///     let mut found = sinew::net::lookup_host("127.0.0.1:80")?;
///     assert_eq!(found.next().unwrap().port(), 80);
///     std::io::Result::Ok(())
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// As [`ToSocketAddrs::to_socket_addrs`].
#[track_caller]
pub fn lookup_host<A: ToSocketAddrs>(host: A) -> io::Result<impl Iterator<Item = SocketAddr>> {
    host.to_socket_addrs()
}

/// Calls `each` with the addresses in turn until one succeeds; else the last error.
#[track_caller]
pub(super) fn each<A: ToSocketAddrs, T>(
    addresses: A,
    mut each: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match each(address) {
            Ok(done) => return Ok(done),
            Err(error) if Cancelled::is_in(&error) => return Err(error),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "could not resolve to any addresses",
        )
    }))
}

macro_rules! is_an_address {
    ($($address:ty),*) => {
        $(impl ToSocketAddrs for $address {
            type Iter = option::IntoIter<SocketAddr>;

            #[track_caller]
            fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
                Ok(Some(SocketAddr::from(*self)).into_iter())
            }
        })*
    };
}

is_an_address!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16)
);

impl ToSocketAddrs for (&str, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        let (host, port) = *self;
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)].into_iter());
        }
        check_cancelled()?;
        blocking(|| std::net::ToSocketAddrs::to_socket_addrs(&(host, port)))
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (&*self.0, self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for str {
    type Iter = vec::IntoIter<SocketAddr>;

    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        if let Ok(address) = self.parse::<SocketAddr>() {
            return Ok(vec![address].into_iter());
        }
        check_cancelled()?;
        blocking(|| std::net::ToSocketAddrs::to_socket_addrs(self))
    }
}

impl ToSocketAddrs for String {
    type Iter = vec::IntoIter<SocketAddr>;

    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (**self).to_socket_addrs()
    }
}

impl<'a> ToSocketAddrs for &'a [SocketAddr] {
    type Iter = iter::Cloned<slice::Iter<'a, SocketAddr>>;

    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(self.iter().cloned())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    type Iter = T::Iter;

    #[track_caller]
    fn to_socket_addrs(&self) -> io::Result<T::Iter> {
        (**self).to_socket_addrs()
    }
}
