//! Seeded random programs, against lost wake-ups, double wakes, use after free
//! and hangs.
//!
//! Each test prints its seed when it fails; `SINEW_SEED=<seed>` replays it (the
//! choices, not the interleaving of threads), `SINEW_STRESS=<n>` makes it run n
//! times as long.

#[path = "../harness/mod.rs"]
mod harness;

mod channels;
mod ends;
mod leaks;
mod scopes;
mod sync;
mod tokens;
mod trees;

use harness::{OnDrop, Rng, watch};

/// Calls `test` with numbers from a fresh or given seed, and says which seed it
/// was if it panics or hangs.
fn seeded(name: &str, rounds: u64, test: impl Fn(&mut Rng)) {
    let given = std::env::var("SINEW_SEED")
        .ok()
        .map(|text| text.parse().unwrap());
    let times: u64 = std::env::var("SINEW_STRESS").map_or(1, |text| text.parse().unwrap());
    let clock = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let first = given.unwrap_or(clock.as_nanos() as u64);
    // Printed also when the process aborts: the harness shows it then.
    println!("{name}: SINEW_SEED={first}");
    let rounds = if given.is_some() { 1 } else { rounds * times };
    for round in 0..rounds {
        // Each round for itself: with sanitizers, beside others, all of them take long.
        let _watch = watch();
        let seed = first.wrapping_add(round);
        let told = OnDrop(move || {
            if std::thread::panicking() {
                eprintln!("replay with SINEW_SEED={seed}");
            }
        });
        test(&mut Rng::new(seed));
        drop(told);
    }
}
