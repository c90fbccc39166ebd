//! Time for tasks.

use super::under_each_executor;
use crate::world::everywhere;
use futures_util::future::{join_all, select};
use sinew::interop::sleep;
use std::pin::pin;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(3);
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_sleep_takes_its_time_under_each_executor() {
    under_each_executor(|| {
        Box::pin(async {
            let start = Instant::now();
            sleep(SHORT).await;
            assert!(start.elapsed() >= SHORT);
        })
    });
}

#[test]
fn an_earlier_sleep_is_not_late_because_of_a_later_one() {
    under_each_executor(|| {
        Box::pin(async {
            // The watchdog tells if it is.
            let mut late = pin!(sleep(LONG));
            for _ in 0..5 {
                let early = pin!(sleep(SHORT));
                match select(late, early).await {
                    futures_util::future::Either::Left(_) => panic!("an hour is over"),
                    futures_util::future::Either::Right((_, still)) => late = still,
                }
            }
        })
    });
}

#[test]
fn many_sleeps_end_each() {
    everywhere(|| {
        let start = Instant::now();
        let sleeps = (0..500u32).map(|i| async move {
            let time = Duration::from_micros(u64::from(i * 7919 % 500) * 20);
            sleep(time).await;
            assert!(start.elapsed() >= time);
        });
        sinew::block_on(join_all(sleeps));
    });
}

#[test]
fn a_sleep_that_is_set_anew_keeps_its_task() {
    under_each_executor(|| {
        Box::pin(async {
            let mut sleeping = pin!(sleep(LONG));
            let once = std::future::poll_fn(|context| {
                std::task::Poll::Ready(sleeping.as_mut().poll(context).is_pending())
            });
            assert!(once.await);
            let start = Instant::now();
            sleeping.reset(SHORT);
            sleeping.await;
            assert!(start.elapsed() >= SHORT);
        })
    });
}
