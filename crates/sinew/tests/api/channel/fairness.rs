//! Fair choice among arms, also where the other side chooses, too.

use super::{Scene, assert_fair, on_one_worker, scenes_of_one_kind};
use crate::harness::Gate;
use sinew::channel::{Receiver, Select, Sender, bounded, unbounded};

const ROUNDS: usize = 3000;

/// Fails if an arm has less than a fiftieth of an even share, as crossbeam's test does:
/// who is faster, and on which side a wait ends, is up to the machine.
#[track_caller]
fn assert_not_starved(counts: &[usize]) {
    let even = counts.iter().sum::<usize>() / counts.len();
    assert!(
        counts.iter().all(|count| *count >= even / 50),
        "an arm is starved: {counts:?}"
    );
}

/// A channel of each kind: any number, one, and no message kept.
type Three = [(Sender<()>, Receiver<()>); 3];

fn three() -> Three {
    [unbounded(), bounded(1), bounded(0)]
}

/// Sends by a dynamic select over the rendezvous, and of the others those that are empty.
fn send_to_any(senders: &[Sender<()>; 3]) {
    let mut select = Select::new();
    let mut operations = Vec::new();
    for (which, sender) in senders.iter().enumerate() {
        if which == 2 || sender.is_empty() {
            operations.push((select.send(sender), which));
        }
    }
    let operation = select.select();
    let chosen = operations
        .iter()
        .find(|(index, _)| *index == operation.index());
    let which = chosen.unwrap().1;
    operation.send(&senders[which], ()).unwrap();
}

fn recv_from_any(receivers: &[Receiver<()>; 3]) -> usize {
    let mut select = Select::new();
    for receiver in receivers {
        select.recv(receiver);
    }
    let operation = select.select();
    let which = operation.index();
    operation.recv(&receivers[which]).unwrap();
    which
}

/// How often each channel was received from.
fn count(rounds: usize, mut receive: impl FnMut() -> usize) -> Vec<usize> {
    let mut counts = vec![0; 3];
    for _ in 0..rounds {
        counts[receive()] += 1;
    }
    counts
}

fn run(
    scene: Scene<'_>,
    send: impl Fn(&[Sender<()>; 3]) + Send + 'static,
    receive: impl Fn(&[Receiver<()>; 3]) -> usize + Send + 'static,
) -> Vec<usize> {
    let [one, two, three] = three();
    let senders = [one.0, two.0, three.0];
    let receivers = [one.1, two.1, three.1];
    let done = Gate::new();
    let wait_for_end = done.clone();
    let sender = scene.left(move || {
        for _ in 0..ROUNDS {
            send(&senders);
        }
        wait_for_end.pass(); // else the receivers find the channels disconnected
    });
    let receiver = scene.right(move || {
        let counts = count(ROUNDS, || receive(&receivers));
        done.open();
        counts
    });
    let counts = receiver.join();
    sender.join();
    counts
}

#[test]
fn a_dynamic_select_is_fair_to_a_rendezvous_whose_partner_is_one_too() {
    // Several times: from some beginnings the two used to fall into step.
    for _ in 0..4 {
        on_one_worker(|scene| assert_fair(&run(scene, send_to_any, recv_from_any)));
    }
    // Of two that run at the same time one rarely finds the other waiting, which is when a
    // rendezvous is ready: so its share is small there. Before, it could be none.
    scenes_of_one_kind(|scene| {
        let mut sums = [0; 3];
        for _ in 0..4 {
            let counts = run(scene, send_to_any, recv_from_any);
            sums.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
        assert!(
            sums.iter().all(|&sum| sum > 0),
            "an arm is never chosen: {sums:?}"
        );
    });
}

/// As above with all arms, and room for one message in the second channel. On one worker:
/// of two that run at the same time the one hardly ever finds the other waiting, so its
/// rendezvous arm is hardly ever ready, and a choice among the ready cannot be fair to it.
#[test]
fn two_selects_that_are_always_ready_for_each_other_use_all_their_arms() {
    fn send_to_all(senders: &[Sender<()>; 3]) {
        let mut select = Select::new();
        select.send(&senders[1]);
        select.send(&senders[2]);
        let operation = select.select();
        let which = operation.index() + 1;
        operation.send(&senders[which], ()).unwrap();
    }
    for _ in 0..4 {
        on_one_worker(|scene| {
            let counts = run(scene, send_to_all, recv_from_any);
            assert_not_starved(&counts[1..]);
        });
    }
}

#[test]
fn a_select_macro_and_a_dynamic_select_use_all_their_arms() {
    fn send_to_all(senders: &[Sender<()>; 3]) {
        let [_, two, three] = senders;
        sinew::select! {
            send(two, ()) -> sent => sent.unwrap(),
            send(three, ()) -> sent => sent.unwrap(),
        }
    }
    fn recv_from_all(receivers: &[Receiver<()>; 3]) -> usize {
        let [_, two, three] = receivers;
        sinew::select! {
            recv(two) -> message => { message.unwrap(); 1 }
            recv(three) -> message => { message.unwrap(); 2 }
        }
    }
    for _ in 0..4 {
        on_one_worker(|scene| {
            let counts = run(scene, send_to_all, recv_from_any);
            assert_not_starved(&counts[1..]);
            let counts = run(scene, send_to_all, recv_from_all);
            assert_not_starved(&counts[1..]);
        });
    }
}
