//! News for everybody, and a setting that all of them watch.
//!
//! `cargo run -p sinew --example pubsub`

use sinew::channel::broadcast::{self, RecvError};
use sinew::channel::watch;
use sinew::sync::Barrier;
use std::sync::Arc;

const READERS: usize = 3;
const EDITIONS: u64 = 100;

/// Reads all editions; how many it read and how many it was too slow for.
fn read(mut news: broadcast::Receiver<u64>) -> (u64, u64) {
    let (mut read, mut missed) = (0, 0);
    loop {
        match news.recv() {
            Ok(_edition) => read += 1,
            // The sender does not wait: who is too slow is told what it missed.
            Err(RecvError::Lagged(editions)) => missed += editions,
            Err(_) => return (read, missed),
        }
    }
}

/// Follows a setting until nobody can change it any more; the last it saw.
fn follow(mut setting: watch::Receiver<&'static str>) -> (&'static str, usize) {
    let mut changes = 0;
    while setting.changed().is_ok() {
        changes += 1;
        // Only the newest counts: some in between may never be seen.
        let _now = *setting.borrow_and_update();
    }
    (*setting.borrow(), changes)
}

fn main() {
    sinew::run(|| {
        let (press, first) = broadcast::channel(16);
        let (dial, setting) = watch::channel("quiet");
        let ready = Arc::new(Barrier::new(READERS + 1));
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (news, ready) = (press.subscribe(), ready.clone());
                sinew::spawn(move || {
                    ready.wait();
                    read(news)
                })
            })
            .collect();
        let follower = sinew::spawn(move || follow(setting));
        drop(first); // it would only be told what it missed
        ready.wait();

        for edition in 0..EDITIONS {
            assert_eq!(press.send(edition), Ok(READERS));
            if edition % 25 == 0 {
                sinew::yield_now();
            }
        }
        for value in ["loud", "louder", "off"] {
            dial.send(value).expect("somebody follows");
        }
        drop((press, dial));

        for (number, reader) in readers.into_iter().enumerate() {
            let (read, missed) = reader.join().expect("it does not panic");
            println!("reader {number}: {read} editions read, {missed} missed");
            assert_eq!(read + missed, EDITIONS);
        }
        let (last, changes) = follower.join().expect("it does not panic");
        println!("the follower saw {changes} of 3 changes, and \"{last}\" in the end");
        assert!(last == "off" && changes <= 3);
    });
}
