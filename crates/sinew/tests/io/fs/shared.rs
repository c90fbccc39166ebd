//! Files that several fibers use at once.

use super::{Folder, forget_cache, pattern};
use crate::harness::{Gate, Rng};
use crate::world::{drivers, everywhere, runtime};
use sinew::fs::File;
use std::io::{Read, Seek, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;

#[test]
fn sixty_four_fibers_read_at_places_of_their_own() {
    static SEEDS: AtomicU64 = AtomicU64::new(1);
    let bytes = pattern(4 << 20);
    everywhere(|| {
        // Relaxed: a number.
        let seed = SEEDS.fetch_add(1, Ordering::Relaxed);
        eprintln!("seed {seed}");
        let folder = Folder::new();
        let file = File::open(folder.file("a", &bytes)).unwrap();
        for cached in [true, false] {
            if !cached {
                forget_cache(&file);
            }
            sinew::scope(|scope| {
                for reader in 0..64 {
                    let (file, bytes) = (&file, &bytes);
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed << 8 | reader);
                        let mut page = [0; PAGE];
                        for _ in 0..32 {
                            let at = rng.below((bytes.len() - PAGE) as u64);
                            file.read_exact_at(&mut page, at).unwrap();
                            assert!(page[..] == bytes[at as usize..][..PAGE]);
                        }
                    });
                }
            });
        }
    });
}

#[test]
fn sixty_four_fibers_write_to_places_of_their_own() {
    let bytes = pattern(64 * PAGE);
    everywhere(|| {
        let folder = Folder::new();
        let file = File::create_new(folder.join("a")).unwrap();
        sinew::scope(|scope| {
            for (number, piece) in bytes.chunks(PAGE).enumerate() {
                let file = &file;
                scope.spawn(move || file.write_all_at(piece, (number * PAGE) as u64).unwrap());
            }
        });
        let mut found = Vec::new();
        (&file).read_to_end(&mut found).unwrap();
        assert!(found == bytes);
    });
}

#[test]
fn fibers_that_share_a_position_never_get_the_same_bytes() {
    const RECORDS: usize = 2000;
    const RECORD: usize = 8;

    everywhere(|| {
        let folder = Folder::new();
        let mut file = File::create_new(folder.join("a")).unwrap();
        let next = Mutex::new(0);
        sinew::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    loop {
                        let number: usize = {
                            let mut next = next.lock().unwrap();
                            *next += 1;
                            *next - 1
                        };
                        if number >= RECORDS {
                            break;
                        }
                        let record = number.to_le_bytes();
                        assert_eq!((&file).write(&record).unwrap(), RECORD);
                    }
                });
            }
        });
        let all = (RECORDS * RECORD) as u64;
        assert_eq!(file.stream_position().unwrap(), all);
        assert_eq!(file.metadata().unwrap().len(), all);

        for cached in [true, false] {
            if !cached {
                forget_cache(&file);
            }
            file.rewind().unwrap();
            let seen = Mutex::new(Vec::new());
            sinew::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        let mut record = [0; RECORD];
                        while (&file).read(&mut record).unwrap() == RECORD {
                            seen.lock().unwrap().push(usize::from_le_bytes(record));
                        }
                    });
                }
            });
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..RECORDS));
        }
    });
}

#[test]
fn a_fiber_that_reads_what_is_cached_lets_others_run() {
    for driver in drivers() {
        runtime(driver, 1).run(|| {
            let folder = Folder::new();
            let file = File::open(folder.file("a", "hello")).unwrap();
            let gate = Gate::new();
            let other = sinew::spawn({
                let gate = gate.clone();
                move || gate.open()
            });
            while !gate.is_open() {
                file.read_at(&mut [0; 5], 0).unwrap();
            }
            other.join().unwrap();
        });
    }
}
