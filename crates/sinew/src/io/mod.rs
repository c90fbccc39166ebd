//! What I/O has in common.

mod async_fd;
mod copy;
mod stdio;
mod transfer;

pub(crate) use transfer::{Read, Recv, RecvParts, Send, SendParts, Write};
