//! Scopes: fibers that borrow, all or nothing, the first answer, all answers.
//!
//! cargo run --example scopes

use sinew::scope::{Failure, collect, nursery, race};
use std::time::Duration;

const TEXT: &str = "the quick brown fox jumps over the lazy dog";

/// Asks a mirror; the slow ones take an hour, unless they are cancelled.
fn fetch(mirror: &str, speed: u64) -> Result<String, String> {
    sinew::sleep(Duration::from_secs(speed)).map_err(|told| format!("{mirror}: {told}"))?;
    Ok(format!("page from {mirror}"))
}

fn main() {
    sinew::run(|| {
        // Children borrow, also mutably, and have ended when the scope returns.
        let words: Vec<&str> = TEXT.split(' ').collect();
        let mut lengths = vec![0; words.len()];
        sinew::scope(|s| {
            for (word, length) in words.iter().zip(&mut lengths) {
                s.spawn(|| *length = word.len());
            }
        });
        println!("lengths: {lengths:?}");
        assert_eq!(lengths.iter().sum::<usize>(), 35);

        // All or nothing: the broken mirror cancels the two that would take an hour.
        let all = nursery(|n| {
            let pages = [("a", 3600), ("b", 3600)].map(|(m, s)| n.spawn(move || fetch(m, s)));
            n.spawn(|| Err::<(), _>("c: connection refused".to_owned()));
            let pages = pages.into_iter().map(|page| page.join());
            pages
                .collect::<Result<Vec<_>, _>>()
                .map_err(|told| told.to_string())
        });
        let failure = all.unwrap_err();
        println!("all of them: {failure}");
        assert!(matches!(failure, Failure::Error(why) if why.starts_with("c:")));

        // The first answer: the others are told, and awaited.
        let mirrors = [("a", 3600), ("b", 0), ("c", 3600)];
        let first = race(|r| {
            for (mirror, speed) in mirrors {
                r.spawn(move || fetch(mirror, speed));
            }
        });
        println!("the first: {first:?}");
        assert_eq!(first.unwrap(), "page from b");

        // All answers, in order, good or bad; here those who are late are cancelled.
        let answers = collect(|c| {
            let fetches = mirrors.map(|(mirror, speed)| c.spawn(move || fetch(mirror, speed)));
            fetches[1].wait().unwrap();
            c.cancel();
        });
        for answer in &answers {
            println!("one of all: {answer:?}");
        }
        assert!(answers[1].as_ref().is_ok_and(Result::is_ok));
        assert!(!answers[2].as_ref().is_ok_and(Result::is_ok));
    });
}
