//! Cases that a review found: each failed once.

mod child;
mod events;
mod forks;
mod listeners;
mod many;
mod second;
mod streams;

use sinew::net::UnixStream;
use std::io::{Read, Write};

/// Has this fiber's worker hear of all that the kernel knows by now: it waits for what
/// happens later.
fn hear() {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let writes = sinew::spawn(move || theirs.write_all(b"x").unwrap());
    ours.read_exact(&mut [0]).unwrap();
    writes.join().unwrap();
}
