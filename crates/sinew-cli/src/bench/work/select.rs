//! `sinew::select!` over receivers.

use std::time::{Duration, Instant};

use sinew::channel::{Receiver, Sender, bounded};
use sinew::{Runtime, select, spawn};

use super::super::child::{Job, report, steady};
use super::super::waits::Dice;

/// Receivers to select over.
pub trait Arms: Send {
    /// The next message of any.
    fn any(&self) -> u64;
}

/// Writes the arms out, since the macro wants them so.
macro_rules! arms {
    ($count:literal: $($arm:ident)+) => {
        impl Arms for [Receiver<u64>; $count] {
            fn any(&self) -> u64 {
                let [$($arm),+] = self;
                select! { $(recv($arm) -> message => message.unwrap(),)+ }
            }
        }
    };
}

arms!(2: a b);
arms!(8: a b c d e f g h);
arms!(32: a0 a1 a2 a3 a4 a5 a6 a7 b0 b1 b2 b3 b4 b5 b6 b7
          c0 c1 c2 c3 c4 c5 c6 c7 d0 d1 d2 d3 d4 d5 d6 d7);

/// As many channels, each with room for one message.
pub fn channels<const N: usize>() -> (Vec<Sender<u64>>, [Receiver<u64>; N]) {
    let mut senders = Vec::new();
    let receivers = std::array::from_fn(|_| {
        let (tx, rx) = bounded(1);
        senders.push(tx);
        rx
    });
    (senders, receivers)
}

pub fn run<const N: usize>(job: &Job, rt: &Runtime)
where
    [Receiver<u64>; N]: Arms + 'static,
{
    let ready = steady(job.target(), |n| rt.run(|| with_one_ready::<N>(n)));
    report("ready", ready);
    let parked = steady(job.target(), |n| rt.run(|| with_a_partner::<N>(n)));
    report("parked", parked);
}

fn with_one_ready<const N: usize>(n: u64) -> Duration
where
    [Receiver<u64>; N]: Arms,
{
    let (senders, receivers) = channels::<N>();
    let mut dice = Dice::new();
    let start = Instant::now();
    for i in 0..n {
        senders[dice.roll(N)].try_send(i).unwrap();
        assert_eq!(receivers.any(), i);
    }
    start.elapsed()
}

/// `n` round trips: a message to a random arm, and its answer.
fn with_a_partner<const N: usize>(n: u64) -> Duration
where
    [Receiver<u64>; N]: Arms + 'static,
{
    let (senders, receivers) = channels::<N>();
    let (reply, replies) = bounded(1);
    let start = Instant::now();
    let selector = spawn(move || {
        for _ in 0..n {
            reply.send(receivers.any()).unwrap();
        }
    });
    let partner = spawn(move || {
        let mut dice = Dice::new();
        for i in 0..n {
            senders[dice.roll(N)].send(i).unwrap();
            assert_eq!(replies.recv(), Ok(i));
        }
    });
    selector.join().unwrap();
    partner.join().unwrap();
    start.elapsed()
}
