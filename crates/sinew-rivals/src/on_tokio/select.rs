//! `tokio::select!` over receivers.

use std::future::Future;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::on;
use crate::child::{Job, report, steady};
use crate::waits::Dice;

/// Receivers to select over.
pub trait Arms: Send {
    /// The next message of any.
    fn any(&mut self) -> impl Future<Output = Option<u64>> + Send;
}

/// Writes the arms out, since the macro wants them so.
macro_rules! arms {
    ($count:literal: $($arm:ident)+) => {
        impl Arms for [Receiver<u64>; $count] {
            async fn any(&mut self) -> Option<u64> {
                let [$($arm),+] = self;
                tokio::select! { $(message = $arm.recv() => message,)+ }
            }
        }
    };
}

arms!(2: a b);
arms!(8: a b c d e f g h);
arms!(32: a0 a1 a2 a3 a4 a5 a6 a7 b0 b1 b2 b3 b4 b5 b6 b7
          c0 c1 c2 c3 c4 c5 c6 c7 d0 d1 d2 d3 d4 d5 d6 d7);

fn channels<const N: usize>() -> ([Sender<u64>; N], [Receiver<u64>; N]) {
    let mut senders = Vec::new();
    let receivers = std::array::from_fn(|_| {
        let (tx, rx) = mpsc::channel(1);
        senders.push(tx);
        rx
    });
    (senders.try_into().unwrap(), receivers)
}

pub fn run<const N: usize>(job: &Job, rt: &Runtime)
where
    [Receiver<u64>; N]: Arms + 'static,
{
    let ready = steady(job.target(), |n| {
        on(rt, async move {
            let (senders, mut receivers) = channels::<N>();
            let mut dice = Dice::new();
            let start = Instant::now();
            for i in 0..n {
                senders[dice.roll(N)].try_send(i).unwrap();
                assert_eq!(receivers.any().await, Some(i));
            }
            start.elapsed()
        })
    });
    report("ready", ready);
    let parked = steady(job.target(), |n| {
        on(rt, async move {
            let (senders, mut receivers) = channels::<N>();
            let (reply, mut replies) = mpsc::channel(1);
            let start = Instant::now();
            let selector = tokio::spawn(async move {
                for _ in 0..n {
                    let i = receivers.any().await.unwrap();
                    reply.send(i).await.unwrap();
                }
            });
            let partner = tokio::spawn(async move {
                let mut dice = Dice::new();
                for i in 0..n {
                    senders[dice.roll(N)].send(i).await.unwrap();
                    assert_eq!(replies.recv().await, Some(i));
                }
            });
            selector.await.unwrap();
            partner.await.unwrap();
            start.elapsed()
        })
    });
    report("parked", parked);
}
