//! Calls that block a thread: on the blocking pool, so that no worker stands
//! still.
//!
//! For files there is `sinew::fs`; this is how to call what Sinew knows nothing of,
//! with std's files in its place.
//!
//! `cargo run -p sinew --example blocking_io`

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

const FILES: usize = 16;

fn main() -> io::Result<()> {
    let folder = std::env::temp_dir().join(format!("sinew-example-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let outcome = write_and_read(&folder);
    fs::remove_dir_all(&folder)?;
    outcome
}

fn write_and_read(folder: &Path) -> io::Result<()> {
    let runtime = sinew::Runtime::builder().blocking_threads(4).build()?;
    let lengths = runtime.run(|| -> io::Result<Vec<usize>> {
        // `spawn_blocking` takes an owned closure and gives a handle.
        let writers: Vec<_> = (0..FILES)
            .map(|i| {
                let path = folder.join(i.to_string());
                sinew::spawn_blocking(move || File::create(path)?.write_all(&vec![b'x'; i * 100]))
            })
            .collect();
        for writer in writers {
            writer.join().expect("writing does not panic")?;
        }

        // `blocking` may borrow: here the buffer and the folder's path.
        let mut buffer = Vec::new();
        let mut lengths = Vec::new();
        for i in 0..FILES {
            buffer.clear();
            let read = sinew::blocking(|| {
                File::open(folder.join(i.to_string()))?.read_to_end(&mut buffer)
            })?;
            assert_eq!(read, buffer.len());
            lengths.push(read);
        }
        Ok(lengths)
    })?;
    let expected: Vec<usize> = (0..FILES).map(|i| i * 100).collect();
    assert_eq!(lengths, expected);
    let threads = runtime.stats().blocking_threads;
    assert!((1..=4).contains(&threads));
    println!("{FILES} files written and read by {threads} blocking threads");
    println!("bytes read: {}", lengths.iter().sum::<usize>());
    Ok(())
}
