//! Futures that a fiber or thread drives: `block_on_or_cancelled`.

use super::{HOUR, SHORT, everywhere, spawn_parked};
use crate::harness::{Gate, OnDrop, in_fibers};
use sinew::channel::bounded;
use sinew::{CancelToken, Cancelled, block_on, block_on_or_cancelled, timeout};
use std::future::pending;

#[test]
fn it_answers_what_the_future_does() {
    everywhere(|| {
        assert_eq!(block_on_or_cancelled(async { 5 }), Ok(5));
        let handle = sinew::spawn(|| 5);
        let joined = block_on_or_cancelled(handle);
        assert_eq!(joined.unwrap().unwrap(), 5);
    });
}

#[test]
fn a_request_ends_it_and_drops_the_future_where_it_stands() {
    in_fibers(|| {
        let dropped = Gate::new();
        let theirs = dropped.clone();
        let fiber = spawn_parked(move || {
            block_on_or_cancelled(async move {
                let _guard = OnDrop(|| theirs.open());
                pending::<()>().await;
            })
        });
        assert!(!dropped.is_open());
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), Err(Cancelled));
        assert!(dropped.is_open());
    });
}

#[test]
fn a_limit_and_a_token_end_it() {
    everywhere(|| {
        let outcome = timeout(SHORT, || block_on_or_cancelled(pending::<()>()));
        assert_eq!(outcome.unwrap_err().into_inner(), Err(Cancelled));
        let token = CancelToken::new();
        let theirs = token.clone();
        let canceller = std::thread::spawn(move || theirs.cancel());
        let answer = token.enter(|| block_on_or_cancelled(pending::<()>()));
        assert_eq!(answer, Err(Cancelled));
        canceller.join().unwrap();
        // On entry the future is not even polled.
        let answer = token.enter(|| block_on_or_cancelled(async { panic!("polled") }));
        assert_eq!(answer.map(|()| ()), Err(Cancelled));
    });
}

#[test]
fn the_plain_one_is_no_point() {
    in_fibers(|| {
        let (tx, rx) = bounded(1);
        let fiber = spawn_parked(move || {
            let got = block_on(rx.recv_async());
            (got, sinew::check_cancelled())
        });
        fiber.cancel();
        super::parked(&fiber.fiber());
        tx.send(5).unwrap();
        assert_eq!(fiber.join().unwrap(), (Ok(5), Err(Cancelled)));
    });
}

#[test]
fn a_message_for_a_future_that_was_dropped_stays() {
    in_fibers(|| {
        let (tx, rx) = bounded(1);
        let theirs = rx.clone();
        let fiber = spawn_parked(move || block_on_or_cancelled(theirs.recv_async()));
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), Err(Cancelled));
        tx.send(5).unwrap();
        assert_eq!(rx.recv(), Ok(5));
    });
}

#[test]
fn a_future_of_a_shielded_block_on_goes_on() {
    in_fibers(|| {
        sinew::current().cancel();
        let answer = sinew::shield(|| {
            block_on_or_cancelled(async {
                let nap = sinew::spawn(|| sinew::sleep(SHORT));
                nap.await.unwrap()
            })
        });
        assert_eq!(answer, Ok(Ok(())));
        assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
    });
}
