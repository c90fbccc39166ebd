//! What the servers of the I/O workloads share.
//!
//! A server is a child whose first line is `port N`, where it listens on
//! 127.0.0.1; it then serves until it is killed. `load` is who talks to it and
//! who measures. Like `child`, this file is also compiled by `sinew-rivals`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::child::Job;

/// Bytes of a message of the echo workloads and of a request and a response of
/// the short connections.
pub const MESSAGE: usize = 64;
/// What a handler of a connection reads into: more than a message, less than
/// the 1 KiB of locals that it may have.
pub const BUFFER: usize = 512;
/// What the ends of a proxy send and receive at once.
pub const CHUNK: usize = 64 * 1024;
/// What a proxy copies at once, where its runtime lets one say: tokio took 44.5 µs for a
/// chunk with this, 51.5 with twice as much.
#[allow(dead_code, reason = "only the rivals are told")]
pub const COPIED: usize = 32 * 1024;
/// Where a proxy connects to.
pub const UPSTREAM: &str = "SINEW_BENCH_UPSTREAM";

/// Bytes of one read from a file.
pub const BLOCK: usize = 4096;
/// Reads in flight at once.
pub const IN_FLIGHT: u64 = 64;
/// Blocks of the file that is read: 64 MiB.
pub const BLOCKS: u64 = 16 * 1024;

/// What a computing task does between two looks at whether others wait: some µs.
#[allow(dead_code, reason = "the rival that has it is not written in Rust")]
pub const PIECE: u32 = 12;
/// How long a server sleeps that is told to.
#[allow(dead_code, reason = "as above")]
pub const SHORT_NAP: Duration = Duration::from_millis(1);
/// Until tasks that compute are known to.
#[allow(dead_code, reason = "as above")]
pub const SETTLE: Duration = Duration::from_millis(100);

/// How many tasks compute in a server: `busy_K` says how many for each worker;
/// `busy_fewer` has one for all workers but one.
#[allow(dead_code, reason = "as above")]
pub fn busy_tasks(job: &Job) -> usize {
    match job.name.strip_prefix("busy_").map(str::parse::<usize>) {
        Some(Ok(each)) => each * job.workers,
        _ => job.workers - 1,
    }
}

/// What the first byte of a message asks such a server for. The answer has the
/// order's value in the eight bytes from the ninth on.
#[allow(dead_code, reason = "as above")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Order {
    /// To send the message back.
    Echo = 0,
    /// To sleep for [`SHORT_NAP`]: the value is how late it was, in ns.
    Nap = 1,
    /// The value is how many pieces of work are done.
    Count = 2,
}

#[allow(dead_code, reason = "as above")]
impl Order {
    pub fn of(message: &[u8; MESSAGE]) -> Order {
        match message[0] {
            1 => Order::Nap,
            2 => Order::Count,
            _ => Order::Echo,
        }
    }

    pub fn write_to(self, message: &mut [u8; MESSAGE]) {
        message[0] = self as u8;
    }

    pub fn value(message: &[u8; MESSAGE]) -> u64 {
        u64::from_le_bytes(message[8..16].try_into().expect("eight bytes"))
    }

    pub fn set_value(message: &mut [u8; MESSAGE], value: u64) {
        message[8..16].copy_from_slice(&value.to_le_bytes());
    }
}

/// Where every server listens: the kernel chooses the port.
pub const ANYWHERE: &str = "127.0.0.1:0";

/// Tells the parent where we listen.
pub fn announce(at: SocketAddr) {
    println!("port {}", at.port()); // stdout is line buffered, also into a pipe
}

/// Where the proxy has to connect to.
pub fn upstream() -> SocketAddr {
    std::env::var(UPSTREAM)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("{UPSTREAM} must be an address"))
}

/// Allows this process as many open files as it may have.
pub fn raise_file_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a valid rlimit; the first fills it in.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            let raised = libc::rlimit {
                rlim_cur: limit.rlim_max,
                ..limit
            };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0 {
                return raised.rlim_cur;
            }
        }
    }
    limit.rlim_cur
}

/// A file to read from, all of it in the page cache; removed when dropped.
pub struct Blocks {
    path: PathBuf,
}

impl Blocks {
    /// Writes the file; each block begins with its number.
    pub fn new() -> io::Result<Blocks> {
        let name = format!("sinew-bench-{}", std::process::id());
        let blocks = Blocks {
            path: std::env::temp_dir().join(name),
        };
        let mut file = io::BufWriter::with_capacity(1 << 20, File::create(&blocks.path)?);
        let mut block = [7; BLOCK];
        for number in 0..BLOCKS {
            block[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all(&block)?;
        }
        file.flush()?;
        Ok(blocks)
    }

    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Whether `block` is the one that begins at `offset`.
    pub fn is_at(block: &[u8; BLOCK], offset: u64) -> bool {
        block[..8] == (offset / BLOCK as u64).to_le_bytes() && block[BLOCK - 1] == 7
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // it is in a temporary folder
    }
}

/// Offsets of blocks in random order, the same for all; one for each reader.
pub struct Offsets(u64);

impl Offsets {
    pub fn new(reader: u64) -> Offsets {
        Offsets(reader.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % BLOCKS * BLOCK as u64
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_block_is_told_from_another() {
        let blocks = Blocks::new().unwrap();
        let file = File::open(blocks.path()).unwrap();
        let mut block = [0; BLOCK];
        let mut offsets = Offsets::new(3);
        for _ in 0..100 {
            let offset = offsets.next();
            file.read_exact_at(&mut block, offset).unwrap();
            assert!(Blocks::is_at(&block, offset));
            assert!(!Blocks::is_at(&block, offset + BLOCK as u64));
        }
    }

    #[test]
    fn the_file_is_removed_at_the_end() {
        let path = {
            let blocks = Blocks {
                path: std::env::temp_dir().join(format!("sinew-gone-{}", std::process::id())),
            };
            fs::write(blocks.path(), "x").unwrap();
            blocks.path().to_owned()
        };
        assert!(!path.exists());
    }
}
