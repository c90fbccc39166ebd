//! Models of readiness: who uses a descriptor against who hears of its events.
//!
//! The kernel is two counters of bytes, changed before the event is heard, and
//! no stronger than it must be: a call may see an old number unless the readiness
//! orders it.
//!
//! Every ordering below was weakened once by hand, every step changed; the model named
//! caught it.
//!
//! | weakened or changed                              | caught by |
//! |--------------------------------------------------|-----------|
//! | `look` Acquire → Relaxed                         | `no_byte_stays_unread…`, `two_workers…`, `both_of_two_readers…`, `the_end_is_seen…`, `closing_ends_the_waits…` |
//! | `set` AcqRel → Acquire                           | the same, `who_waited…`, `a_task_that_waits…`, both of who gives up |
//! | `set` AcqRel → Release                           | nothing: not needed (1) |
//! | `announce` Acquire → Relaxed                     | `who_waited…`, `a_task_that_waits…`, `who_gives_up_while…` |
//! | `announce` in two steps: a load, then the bit    | `no_byte_stays_unread…`, `two_workers…`, `both_of_two_readers…`, `who_waited…` |
//! | `announce` before the lock is taken              | nearly all |
//! | `set` looks for the waiting bit before its change | `no_byte_stays_unread…`, `two_workers…`, `who_waited…` |
//! | `set` clears the waiting bit after the lock      | `a_wait_that_begins…` |
//! | `set` clears the waiting bit before the lock     | nothing: it would do (2) |
//! | `set` claims one instead of all                  | `both_of_two_readers…`, `who_gives_up_leaves…` |
//! | `set` does not count, or `clear` does not compare | `no_byte_stays_unread…`, `two_workers…`, `the_end_is_seen…` |
//! | `close` claims only where a waiting bit is       | `closing_ends_a_wait_for_an_answer…` |
//! | `Completion::enlist` does not look for a closing | `closing_ends_a_wait_for_an_answer…` |
//! | `tell_readers` claims only where a waiting bit is | `who_waits_to_accept…` |
//! | `note_left` Release → Relaxed                    | `who_waits_to_accept…` |
//! | `Completion::enlist` does not look for what is left | `who_waits_to_accept…` |
//! | what is left does not make it ready              | `what_is_left_there…` |
//! | `would_block` clears `CLOSED`                    | `a_call_that_would_block…` |
//! | `drained` clears the end                         | `the_end_is_seen…` |
//! | `delist` clears the waiting bit                  | `who_gives_up_leaves…` |
//!
//! (1) Who finds a waiting bit takes the lock under which it was set. It cannot come
//! before who set it: then its own change would have come before the bit. (2) Who
//! announces itself between the two links before it gives up the lock, and is claimed.

use super::completion::Completion;
use super::readiness::{Direction, Readiness};
use crate::fiber::WaitReason;
use crate::primitive::{AtomicUsize, Ordering};
use crate::sys::epoll::{HANG_UP, IN, OUT, READ_END};
use crate::sys::poll::{self, PollFor};
use crate::wait::{Deadline, Pending, WaitOutcome, WaitSpec, perform};
use Direction::{Read, Write};
use loom::model::Builder;
use loom::thread;
use std::panic::Location;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

fn spec() -> WaitSpec<'static> {
    WaitSpec::new(WaitReason::Read, Location::caller())
}

/// The peer sends no more.
const END: usize = 1 << 16;

/// A socket, and what the kernel knows of it.
struct Socket {
    readiness: Arc<Readiness>,
    /// Bytes that have come, in all, and [`END`].
    arrived: AtomicUsize,
    /// Bytes that may be sent, in all.
    room: AtomicUsize,
}

impl Socket {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            readiness: Arc::new(Readiness::new()),
            arrived: AtomicUsize::new(0),
            room: AtomicUsize::new(0),
        })
    }

    /// One of which it is known that there is nothing to read or write.
    fn idle() -> Arc<Self> {
        let socket = Self::new();
        for direction in [Read, Write] {
            let look = socket.readiness.look();
            socket.readiness.would_block(look, direction);
        }
        socket
    }

    fn count(&self, direction: Direction) -> &AtomicUsize {
        match direction {
            Read => &self.arrived,
            Write => &self.room,
        }
    }

    fn hear(&self, events: u32) {
        self.readiness.hear(events).fire();
    }

    /// A byte comes, and a worker hears of that.
    fn receive(&self) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        self.hear(IN);
    }

    /// Moves what can be moved after `done` bytes, but one at least; none at the end.
    /// As `call::make_on_fiber`.
    fn transfer(&self, direction: Direction, done: usize, tells: bool) -> Option<usize> {
        loop {
            let look = self.readiness.look();
            if look.is_ready(direction) {
                let now = self.count(direction).load(Ordering::Relaxed);
                if now % END > done {
                    if tells {
                        self.readiness.drained(look, direction);
                    }
                    return Some(now % END);
                }
                if now >= END {
                    return None;
                }
                self.readiness.would_block(look, direction);
            }
            perform(&self.readiness.ready(direction), &spec()).unwrap();
        }
    }

    /// Moves so many bytes.
    fn transfer_all(&self, direction: Direction, bytes: usize, tells: bool) {
        let mut done = 0;
        while done < bytes {
            done = self.transfer(direction, done, tells).expect("no end");
        }
    }
}

/// A byte that nobody reads is a sleep that nobody ends, which loom reports.
#[test]
fn no_byte_stays_unread_whether_a_call_would_block_or_moved_less_than_it_could() {
    for tells in [false, true] {
        bounded(3).check(move || {
            let socket = Socket::new();
            let worker = thread::spawn({
                let socket = socket.clone();
                move || (0..2).for_each(|_| socket.receive())
            });
            socket.transfer_all(Read, 2, tells);
            worker.join().unwrap();
        });
    }
}

#[test]
fn two_workers_that_hear_of_the_same_bytes_or_of_one_each_lose_none() {
    for same in [false, true] {
        bounded(2).check(move || {
            let socket = Socket::new();
            let workers = [0, 1].map(|_| {
                let socket = socket.clone();
                if same {
                    // Both watch; the kernel tells each.
                    socket.arrived.fetch_add(1, Ordering::Relaxed);
                }
                thread::spawn(move || {
                    if same {
                        socket.hear(IN);
                    } else {
                        socket.receive();
                    }
                })
            });
            socket.transfer_all(Read, 2, true);
            for worker in workers {
                worker.join().unwrap();
            }
        });
    }
}

#[test]
fn a_reader_and_a_writer_are_woken_by_one_event_or_by_one_each() {
    for at_once in [false, true] {
        bounded(2).check(move || {
            let socket = Socket::idle();
            let writer = thread::spawn({
                let socket = socket.clone();
                move || socket.transfer_all(Write, 1, true)
            });
            let worker = thread::spawn({
                let socket = socket.clone();
                move || {
                    socket.arrived.fetch_add(1, Ordering::Relaxed);
                    if !at_once {
                        socket.hear(IN);
                    }
                    socket.room.fetch_add(1, Ordering::Relaxed);
                    socket.hear(if at_once { IN | OUT } else { OUT });
                }
            });
            socket.transfer_all(Read, 1, true);
            writer.join().unwrap();
            worker.join().unwrap();
        });
    }
}

#[test]
fn both_of_two_readers_are_woken_by_one_event() {
    bounded(3).check(|| {
        let socket = Socket::idle();
        let reader = thread::spawn({
            let socket = socket.clone();
            move || socket.transfer_all(Read, 1, false)
        });
        let worker = thread::spawn({
            let socket = socket.clone();
            move || socket.receive()
        });
        socket.transfer_all(Read, 1, false);
        reader.join().unwrap();
        worker.join().unwrap();
    });
}

/// The last byte and the end come together: no event follows.
#[test]
fn the_end_is_seen_after_a_call_that_moved_less_than_it_could() {
    for events in [IN | READ_END, IN | HANG_UP] {
        loom::model(move || {
            let socket = Socket::new();
            let worker = thread::spawn({
                let socket = socket.clone();
                move || {
                    socket.arrived.fetch_add(1 + END, Ordering::Relaxed);
                    socket.hear(events);
                }
            });
            assert_eq!(socket.transfer(Read, 0, true), Some(1));
            assert_eq!(socket.transfer(Read, 1, true), None);
            worker.join().unwrap();
        });
    }
}

/// As `call::until_ready`: what follows is the user's own call.
#[test]
fn who_waited_for_a_direction_sees_what_made_it_ready() {
    loom::model(|| {
        let socket = Socket::idle();
        let worker = thread::spawn({
            let socket = socket.clone();
            move || socket.receive()
        });
        perform(&socket.readiness.ready(Read), &spec()).unwrap();
        assert_eq!(socket.arrived.load(Ordering::Relaxed), 1);
        worker.join().unwrap();
    });
}

/// A task's executor: counts its wakes.
#[derive(Default)]
struct Executor(AtomicUsize);

impl Wake for Executor {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task's wait links a place without a look before.
#[test]
fn a_task_that_waits_is_woken_and_sees_what_made_it_ready_or_is_dropped() {
    for keeps in [true, false] {
        loom::model(move || {
            let socket = Socket::idle();
            let worker = thread::spawn({
                let socket = socket.clone();
                move || socket.receive()
            });
            let executor = Arc::new(Executor::default());
            let waker = Waker::from(executor.clone());
            {
                let mut task = pin!(Pending::new(socket.readiness.ready(Read)));
                let mut context = Context::from_waker(&waker);
                let mut ready = task.as_mut().poll(&mut context).is_ready();
                while keeps && !ready {
                    while executor.0.load(Ordering::Relaxed) == 0 {
                        thread::yield_now(); // the executor runs others
                    }
                    ready = task.as_mut().poll(&mut context).is_ready();
                }
                if ready {
                    assert_eq!(socket.arrived.load(Ordering::Relaxed), 1);
                }
            }
            worker.join().unwrap();
            assert!(socket.readiness.line(Read).lock().is_empty());
        });
    }
}

/// Who claims the task clears the waiting bit that it finds, not one that comes later.
#[test]
fn a_wait_that_begins_while_another_is_claimed_is_ended_by_the_next_event() {
    bounded(3).check(|| {
        let socket = Socket::idle();
        let waker = Waker::from(Arc::new(Executor::default()));
        let mut task = pin!(Pending::new(socket.readiness.ready(Read)));
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let worker = thread::spawn({
            let socket = socket.clone();
            move || (0..2).for_each(|_| socket.receive())
        });
        socket.transfer_all(Read, 2, true);
        worker.join().unwrap();
    });
}

#[test]
fn closing_ends_the_waits_of_both_directions_and_those_that_are_about_to_begin() {
    bounded(3).check(|| {
        let socket = Socket::idle();
        let wait = |socket: &Socket, direction| {
            let wait = socket.readiness.ready(direction);
            perform(&wait, &spec()).unwrap();
            assert!(socket.readiness.look().is_closed());
            // What closed it came before.
            assert_eq!(socket.arrived.load(Ordering::Relaxed), END);
        };
        let writer = thread::spawn({
            let socket = socket.clone();
            move || wait(&socket, Write)
        });
        let closer = thread::spawn({
            let socket = socket.clone();
            move || {
                socket.arrived.fetch_add(END, Ordering::Relaxed);
                socket.readiness.close().fire();
            }
        });
        wait(&socket, Read);
        writer.join().unwrap();
        closer.join().unwrap();
    });
}

/// Such a wait stands in the same line, and has no waiting bit.
#[test]
fn closing_ends_a_wait_for_an_answer_of_the_kernel() {
    loom::model(|| {
        let socket = Socket::idle();
        let closer = thread::spawn({
            let socket = socket.clone();
            move || socket.readiness.close().fire()
        });
        let line = socket.readiness.line(Read);
        let completion = Completion::new(line, Some(&socket.readiness), false, NonNull::dangling());
        let answer = perform(&completion, &spec()).unwrap();
        assert!(answer.is_none() && socket.readiness.look().is_closed());
        closer.join().unwrap();
    });
}

/// As `Source::leave_accepted` and `Socket::accept` on a ring do.
#[test]
fn who_waits_to_accept_finds_what_is_left_there() {
    loom::model(|| {
        let socket = Socket::idle();
        let leaver = thread::spawn({
            let socket = socket.clone();
            move || {
                socket.arrived.store(1, Ordering::Relaxed);
                socket.readiness.note_left(true);
                socket.readiness.tell_readers().fire();
            }
        });
        let line = socket.readiness.line(Read);
        while !socket.readiness.look().has_left() {
            let readiness = Some(&*socket.readiness);
            let completion = Completion::new(line, readiness, true, NonNull::dangling());
            assert!(perform(&completion, &spec()).unwrap().is_none());
        }
        assert_eq!(socket.arrived.load(Ordering::Relaxed), 1);
        leaver.join().unwrap();
    });
}

/// An answer of the kernel says that it has no more; what is left here it knows nothing of.
#[test]
fn what_is_left_there_is_ready_whatever_the_kernel_has() {
    loom::model(|| {
        let socket = Socket::idle();
        let leaver = thread::spawn({
            let socket = socket.clone();
            move || {
                socket.arrived.store(1, Ordering::Relaxed);
                socket.readiness.note_left(true);
                socket.readiness.tell_readers().fire();
            }
        });
        let answered = thread::spawn({
            let socket = socket.clone();
            move || {
                let look = socket.readiness.look();
                socket.readiness.drained(look, Read);
                let look = socket.readiness.look();
                socket.readiness.would_block(look, Read);
            }
        });
        perform(&socket.readiness.ready(Read), &spec()).unwrap();
        // Woken, or ready: who looks now finds it, as `Accept::attempt` does.
        assert!(socket.readiness.look().has_left());
        assert_eq!(socket.arrived.load(Ordering::Relaxed), 1);
        leaver.join().unwrap();
        answered.join().unwrap();
    });
}

/// The last word is that it is closed, whatever a call that was under way says.
#[test]
fn a_call_that_would_block_does_not_undo_a_closing() {
    loom::model(|| {
        let socket = Socket::new();
        let closer = thread::spawn({
            let socket = socket.clone();
            move || socket.readiness.close().fire()
        });
        let look = socket.readiness.look();
        socket.readiness.would_block(look, Read);
        socket.readiness.seems_ready(Read);
        let look = socket.readiness.look();
        socket.readiness.would_block(look, Read);
        perform(&socket.readiness.ready(Read), &spec()).unwrap();
        assert!(socket.readiness.look().is_closed());
        closer.join().unwrap();
    });
}

#[test]
fn who_gives_up_while_an_event_comes_is_woken_or_leaves_and_the_event_stays() {
    loom::model(|| {
        let socket = Socket::idle();
        let worker = thread::spawn({
            let socket = socket.clone();
            move || socket.receive()
        });
        let soon = spec().deadline(Some(Deadline(0)));
        let outcome = perform(&socket.readiness.ready(Read), &soon);
        if outcome.is_ok() {
            assert_eq!(socket.arrived.load(Ordering::Relaxed), 1);
        } else {
            assert_eq!(outcome, Err(WaitOutcome::TimedOut));
        }
        worker.join().unwrap();
        assert!(socket.readiness.line(Read).lock().is_empty());
        assert!(socket.readiness.look().is_ready(Read));
    });
}

/// The waiting bit is of the line, not of a place in it.
#[test]
fn who_gives_up_leaves_others_in_line_who_are_woken() {
    bounded(3).check(|| {
        let socket = Socket::idle();
        let impatient = thread::spawn({
            let socket = socket.clone();
            move || {
                let soon = spec().deadline(Some(Deadline(0)));
                let _either = perform(&socket.readiness.ready(Read), &soon);
            }
        });
        let worker = thread::spawn({
            let socket = socket.clone();
            move || socket.receive()
        });
        socket.transfer_all(Read, 1, false);
        impatient.join().unwrap();
        worker.join().unwrap();
        assert!(socket.readiness.line(Read).lock().is_empty());
    });
}

/// As `call::make_on_thread`: the thread polls the descriptor itself, stands in line
/// for who closes, and its bell is the next one's as soon as it is gone.
#[test]
fn a_thread_that_polls_is_woken_by_its_descriptor_or_by_who_closes() {
    for closes in [false, true] {
        bounded(3).check(move || {
            let socket = Socket::idle();
            let fd = poll::take_bell().unwrap();
            let wait = move |socket: &Socket| {
                let what = PollFor { fd, events: 0 };
                let wait = socket.readiness.ready(Read);
                perform(&wait, &spec().watching(what)).unwrap();
                socket.readiness.look().is_closed()
            };
            let other = thread::spawn({
                let socket = socket.clone();
                move || wait(&socket)
            });
            let closer = closes.then(|| {
                let socket = socket.clone();
                thread::spawn(move || socket.readiness.close().fire())
            });
            if !closes {
                poll::ring(fd);
            }
            assert_eq!(wait(&socket), closes);
            assert_eq!(other.join().unwrap(), closes);
            if let Some(closer) = closer {
                closer.join().unwrap();
            }
            assert!(socket.readiness.line(Read).lock().is_empty());
            poll::give_bell(fd);
        });
    }
}
