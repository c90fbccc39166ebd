//! A pipeline whose middle waits for several things at once: `select!`.
//!
//! `cargo run -p sinew --example pipeline_select`

use sinew::channel::{Receiver, Sender, bounded, tick};
use std::time::Duration;

/// How a stage ended, and what it had done.
struct Report {
    end: &'static str,
    passed: u32,
    beats: u32,
}

/// Passes on the squares of what comes in, until there is no more, it takes too
/// long, or the fiber is cancelled.
fn squares(input: &Receiver<u64>, output: &Sender<u64>) -> Report {
    let beat = tick(Duration::from_millis(1));
    let (mut passed, mut beats) = (0, 0);
    let end = loop {
        let number = sinew::select! {
            recv(input) -> number => match number {
                Ok(number) => number,
                Err(_) => break "no more",
            },
            recv(beat) -> _ => {
                beats += 1;
                continue;
            },
            cancelled => break "cancelled",
            default(Duration::from_secs(5)) => break "idle",
        };
        // The message is made only if there is room for it.
        sinew::select! {
            send(output, number * number) -> sent => match sent {
                Ok(()) => passed += 1,
                Err(_) => break "nobody listens",
            },
            cancelled => break "cancelled",
        }
    };
    Report { end, passed, beats }
}

fn main() {
    sinew::run(|| {
        // To the end: the first stage is a fiber, the last is this one.
        let (number, numbers) = bounded(4);
        let (square, results) = bounded(4);
        sinew::spawn(move || {
            for i in 1..=100 {
                sinew::sleep(Duration::from_micros(100)).expect("nobody cancels it");
                number.send(i).expect("the next stage is there");
            }
        });
        let stage = sinew::spawn(move || squares(&numbers, &square));
        let sum: u64 = results.iter().sum();
        let report = stage.join().expect("it does not panic");
        println!("{} squares make {sum}", report.passed);
        println!("the stage heard {} beats meanwhile", report.beats);
        assert_eq!(sum, 338_350);
        assert_eq!((report.end, report.passed), ("no more", 100));

        // Cut short: nobody takes the squares, so the stage waits in its `send`.
        let (number, numbers) = bounded(0);
        let (square, results) = bounded(0);
        let stage = sinew::spawn(move || squares(&numbers, &square));
        number.send(1).expect("the stage is there");
        stage.cancel();
        let report = stage.join().expect("it had begun");
        println!(
            "cut short, it was {} before its square was taken",
            report.end
        );
        assert_eq!((report.end, report.passed), ("cancelled", 0));
        assert!(results.try_recv().is_err(), "the arm that lost did nothing");
    });
}
