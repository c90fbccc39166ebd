//! I/O through the public API: each fact on both drivers, with one worker and with
//! two, and on plain threads.

#[path = "../harness/mod.rs"]
mod harness;
mod world;

mod async_fd;
mod cancel;
mod close;
mod copy;
mod fs;
mod interop;
mod latency;
mod pipe;
mod places;
mod process;
mod reliability;
mod review;
mod signal;
mod stdio;
mod tcp;
mod threads;
mod tls;
mod udp;
mod unix;
