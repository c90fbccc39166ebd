//! Sleeping, ticking, and being told to stop.
//!
//! `cargo run -p sinew --example timers`

use sinew::{Cancelled, sleep};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(10);

/// Ticks until it is cancelled; tidies up; says how often it ticked.
fn ticker() -> (usize, &'static str) {
    let mut ticks = 0;
    for tick in sinew::interval(PERIOD) {
        match tick {
            Ok(_due) => ticks += 1,
            // A value, not an unwind: there is time for a last word.
            Err(Cancelled) => break,
        }
    }
    // From the request on, every cancellation point gives the same answer.
    assert_eq!(sleep(Duration::from_secs(3600)), Err(Cancelled));
    assert!(sinew::is_cancelled());
    (ticks, "tidied up")
}

fn main() {
    sinew::run(|| {
        let start = Instant::now();
        let ticker = sinew::spawn(ticker);

        // Ten thousand sleeps at once; only the fibers wait.
        let sleepers: Vec<_> = (1..=10_000_u64)
            .map(|i| sinew::spawn(move || sleep(Duration::from_micros(i * 10))))
            .collect();
        for sleeper in sleepers {
            let slept = sleeper.join().expect("nobody panics");
            assert_eq!(slept, Ok(()), "nobody cancels the sleepers");
        }
        let slept = start.elapsed();
        assert!(
            slept >= Duration::from_millis(100),
            "the longest took 100 ms"
        );
        println!("10,000 sleeps of up to 100 ms took {slept:.1?} in all");

        ticker.cancel();
        let (ticks, last_word) = ticker.join().expect("it had begun long ago");
        println!("{ticks} ticks, one each {PERIOD:?}, then it {last_word}");
        let most = start.elapsed().as_millis() / PERIOD.as_millis();
        assert!((1..=most).contains(&(ticks as u128)), "never early");
    });
}
