//! Two players and one ball: `park` and `unpark`, between fibers and with a
//! plain thread.
//!
//! `cargo run --release -p sinew --example ping_pong`

use sinew::Fiber;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 20_000;

/// Whose turn it is: even for the first player, odd for the second.
struct Ball(AtomicU32);

/// Hits the ball whenever it is `parity`'s turn, then wakes the other.
fn play(ball: &Ball, parity: u32, other: &Fiber) {
    let mut turn = parity;
    while turn < 2 * ROUNDS {
        // A token may come early, so look at the ball after each `park`. What
        // the other wrote before its `unpark` is seen after our `park`; the
        // Acquire is for a look that needed no park.
        while ball.0.load(Ordering::Acquire) != turn {
            sinew::park();
        }
        ball.0.store(turn + 1, Ordering::Release);
        other.unpark();
        turn += 2;
    }
}

/// The caller and a new fiber play; works from a fiber and from a thread.
fn game() -> Duration {
    let ball = Arc::new(Ball(AtomicU32::new(0)));
    let me = sinew::current();
    let start = Instant::now();
    let theirs = ball.clone();
    let opponent = sinew::spawn(move || play(&theirs, 1, &me));
    play(&ball, 0, &opponent.fiber());
    opponent.join().expect("nobody panics");
    assert_eq!(ball.0.load(Ordering::Relaxed), 2 * ROUNDS);
    start.elapsed() / ROUNDS
}

fn main() -> std::io::Result<()> {
    let runtime = sinew::Runtime::builder().workers(1).build()?;
    println!(
        "fiber and fiber, one worker: {:?} a round",
        runtime.run(game)
    );
    println!(
        "fiber and fiber:             {:?} a round",
        sinew::run(game)
    );
    // `spawn` on a plain thread uses the global runtime.
    println!("thread and fiber:            {:?} a round", game());
    Ok(())
}
