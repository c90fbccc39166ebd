//! How much of a fiber's stack a message takes on its way through a channel, and that big
//! ones pass through fibers with stacks of the default size.
//!
//! By value through the calls of a send a message took eleven times its size in an optimised
//! build (`channel/parcel.rs`). In one without optimisation it was 24 to 33 times in sends and
//! 17 to 47 in receives; today it is 12 to 19, and 5 to 11.

use super::{run_case, watch};
use sinew::channel::{Receiver, Select, Sender, bounded, oneshot, unbounded};
use sinew::{Builder, Runtime};
use std::hint::black_box;
use std::time::Duration;

/// A sixth of what a fiber may use of its stack. In a build without optimisation, which
/// moves a value at each step, a twentieth.
const BIG: usize = if cfg!(debug_assertions) {
    48 << 10
} else {
    32 << 10
};

const HOUR: Duration = Duration::from_secs(3600);

struct BigMessage([u8; BIG]);

impl BigMessage {
    #[inline(always)]
    fn new() -> Self {
        Self([black_box(7); BIG])
    }

    #[inline(always)]
    fn check(&self) {
        assert_eq!(black_box(&self.0)[BIG - 1], 7);
    }
}

type Ends = (Sender<BigMessage>, Receiver<BigMessage>);

#[inline(never)]
fn send(ends: &Ends) {
    assert!(ends.0.send(BigMessage::new()).is_ok());
}

#[inline(never)]
fn try_send(ends: &Ends) {
    assert!(ends.0.try_send(BigMessage::new()).is_ok());
}

#[inline(never)]
fn send_timeout(ends: &Ends) {
    assert!(ends.0.send_timeout(BigMessage::new(), HOUR).is_ok());
}

#[inline(never)]
fn send_by_select(ends: &Ends) {
    sinew::select! {
        send(ends.0, BigMessage::new()) -> sent => assert!(sent.is_ok()),
    }
}

#[inline(never)]
fn send_by_dynamic_select(ends: &Ends) {
    let mut select = Select::new();
    select.send(&ends.0);
    let operation = select.select();
    assert!(operation.send(&ends.0, BigMessage::new()).is_ok());
}

#[inline(never)]
fn recv(ends: &Ends) {
    ends.1.recv().unwrap().check();
}

#[inline(never)]
fn recv_timeout(ends: &Ends) {
    ends.1.recv_timeout(HOUR).unwrap().check();
}

#[inline(never)]
fn try_iter(ends: &Ends) {
    let mut received = 0;
    for message in ends.1.try_iter() {
        message.check();
        received += 1;
    }
    assert_eq!(received, 1);
}

#[inline(never)]
fn recv_by_select(ends: &Ends) {
    sinew::select! {
        recv(ends.1) -> message => message.unwrap().check(),
    }
}

#[inline(never)]
fn send_once() {
    let (tx, rx) = oneshot::channel();
    assert!(tx.send(BigMessage::new()).is_ok());
    rx.recv().unwrap().check();
}

type Way = (&'static str, fn(&Ends));

const SENDS: [Way; 4] = [
    ("send", send),
    ("send_timeout", send_timeout),
    ("select! send", send_by_select),
    ("Select send", send_by_dynamic_select),
];

const RECVS: [Way; 3] = [
    ("recv", recv),
    ("recv_timeout", recv_timeout),
    ("select! recv", recv_by_select),
];

pub fn child(case: &str) -> bool {
    match case {
        "big messages" => pass_big_messages(),
        _ => return false,
    }
    true
}

/// Sends and receives a big message in every way, on default stacks.
fn pass_big_messages() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    for capacity in [0, 1] {
        for ((_, send), (_, recv)) in pairs() {
            let ends = bounded(capacity);
            let theirs = ends.clone();
            let sender = runtime.spawn(move || send(&theirs));
            runtime.spawn(move || recv(&ends)).join().unwrap();
            sender.join().unwrap();
        }
    }
    let ends = unbounded();
    let both = runtime.spawn(move || {
        send(&ends);
        try_iter(&ends);
        try_send(&ends);
        try_iter(&ends);
        send_once();
    });
    both.join().unwrap();
    println!("they went through");
}

fn pairs() -> impl Iterator<Item = (Way, Way)> {
    SENDS
        .into_iter()
        .flat_map(|send| RECVS.into_iter().map(move |recv| (send, recv)))
}

#[test]
fn a_big_message_passes_through_fibers_with_stacks_of_the_default_size() {
    let _watch = watch();
    run_case("big messages", &[])
        .succeeded()
        .says(&["they went through"]);
}

/// How many times the size of a message `way` takes of the stack, in tenths.
fn of_the_stack(way: impl FnOnce() + Send + 'static) -> usize {
    const ROOM: usize = 2 << 20;
    const UNTOUCHED: u8 = 0xa5;
    #[inline(never)]
    fn used(way: impl FnOnce()) -> usize {
        let here = black_box(0u8);
        // Not what the frames that are there, and those of these calls, need.
        let top = (&raw const here).addr() - 4096;
        let low = top - ROOM;
        // SAFETY: memory of this fiber's stack, which is larger, and of no frame: it is
        // below all of them. Signals are handled on another stack.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(low).write_bytes(UNTOUCHED, ROOM) };
        way();
        let untouched = |at| {
            let at = std::ptr::with_exposed_provenance::<u8>(at);
            // SAFETY: as above.
            unsafe { at.read_volatile() == UNTOUCHED }
        };
        let touched = (low..top).find(|&at| !untouched(at));
        touched.map_or(0, |touched| top - touched)
    }
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let fiber = Builder::new().stack_size(4 << 20);
    let fiber = fiber.spawn_on(&runtime.handle(), || used(way));
    fiber.unwrap().join().unwrap() * 10 / BIG
}

/// In tenths: sends, receives. A send that hands its message back has it in its result, too,
/// and without optimisation each step has a copy of that.
const LIMITS: (usize, usize) = if cfg!(debug_assertions) {
    (230, 140)
} else {
    (60, 50)
};

#[test]
fn a_message_takes_few_times_its_size_of_the_stack() {
    let _watch = watch();
    #[track_caller]
    fn check(what: &str, limit: usize, way: impl FnOnce() + Send + 'static) {
        let used = of_the_stack(way);
        println!("{what}: {used} tenths of a message");
        assert!(used <= limit, "{what}: {used} tenths of a message");
    }
    for capacity in [0, 1] {
        for (what, send) in SENDS {
            let ends = bounded(capacity);
            let theirs = ends.clone();
            let receiver = std::thread::spawn(move || recv(&theirs));
            check(what, LIMITS.0, move || send(&ends));
            receiver.join().unwrap();
        }
        for (what, recv) in RECVS {
            let ends = bounded(capacity);
            let theirs = ends.clone();
            let sender = std::thread::spawn(move || send(&theirs));
            check(what, LIMITS.1, move || recv(&ends));
            sender.join().unwrap();
        }
    }
    let ends = unbounded();
    let theirs: Ends = ends.clone();
    check("send (unbounded)", LIMITS.0, move || send(&theirs));
    let theirs = ends.clone();
    check("try_send", LIMITS.0, move || try_send(&theirs));
    let two: &Ends = &ends;
    two.1.recv().unwrap().check();
    check("try_iter", LIMITS.1, move || try_iter(&ends));
    check("oneshot", LIMITS.0, send_once);
}
