//! Files.

use std::sync::Arc;
use std::time::Instant;

use sinew::fs::File;
use sinew::{Runtime, spawn};

use super::super::child::{Job, report, steady};
use super::super::serve::{BLOCK, Blocks, IN_FLIGHT, Offsets};

pub fn file_read(job: &Job, rt: &Runtime) {
    let blocks = Blocks::new().expect("can't write a file");
    let file = Arc::new(rt.run(|| File::open(blocks.path()).expect("can't open it")));
    let ns = steady(job.target(), |n| {
        let share = (n / IN_FLIGHT).max(1);
        let took = rt.run(|| {
            let start = Instant::now();
            let readers: Vec<_> = (0..IN_FLIGHT)
                .map(|reader| {
                    let file = file.clone();
                    spawn(move || read_blocks(&file, reader, share))
                })
                .collect();
            for reader in readers {
                reader.join().unwrap();
            }
            start.elapsed()
        });
        took.mul_f64(n as f64 / (share * IN_FLIGHT) as f64)
    });
    report("ns", ns);
}

fn read_blocks(file: &File, reader: u64, n: u64) {
    let mut offsets = Offsets::new(reader);
    let mut block = [0; BLOCK];
    for _ in 0..n {
        let offset = offsets.next();
        let read = file.read_at(&mut block, offset).expect("can't read");
        assert!(read == BLOCK && Blocks::is_at(&block, offset));
    }
}
