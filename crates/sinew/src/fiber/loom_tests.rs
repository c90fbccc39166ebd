//! Models of the state word, of the token of `park`, of a fiber's end and its
//! references, of who starts a fiber, and of a thread's proxy.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                                     | caught by |
//! |----------------------------------------------|-----------|
//! | `State::occupy` Release → Relaxed            | `a_reference_made_by_the_registry…` |
//! | `State::load` Acquire → Relaxed              | `whoever_sees_the_end…`, `wait::a_task_that_awaits…`, `wait::an_owner_and_a_listed_waiter…` |
//! | `State::notify` AcqRel → Acquire             | `a_wake_before_during_or_after…`, `each_of_two_waits…`, `wait::a_fiber_that_times_out…` |
//! | `State::notify` AcqRel → Release             | `of_two_wakers…`, `a_wake_before_during_or_after…`, `each_of_two_waits…` |
//! | `State::wake_by` AcqRel → Acquire            | `a_cancelled_park…`, `a_wake_before_during_or_after…`, both token models |
//! | `State::wake_by` AcqRel → Release            | the same, `of_two_wakers…` |
//! | `State::commit_park` Release → Relaxed       | the same, `each_of_two_waits…` |
//! | `State::take_wakes`, load Acquire → Relaxed  | `a_wake_before_during_or_after…`, `each_of_two_waits…`, `wait::a_fiber_that_times_out…` |
//! | `State::take_wakes`, `fetch_and` Acquire → Relaxed | `a_wake_before_during_or_after…`, `wait::a_fiber_that_times_out…` |
//! | `State::take_wakes` does not keep what it heard | `a_wake_before_during_or_after…`, `each_of_two_waits…` |
//! | `State::take_token` Acquire → Relaxed        | `a_fiber_that_takes_a_token…` |
//! | `State::take_poll` Acquire → Relaxed         | `a_fiber_that_polls_again…` |
//! | `State::complete` AcqRel → Acquire           | `a_dropped_handle…`, `a_waiter_comes_too_late…` |
//! | `State::complete` AcqRel → Release           | `a_waiter_comes_too_late…`, `wait::an_owner_and_a_listed_waiter…` |
//! | `State::complete` without its fence          | `a_dropped_handle…`, `whoever_sees_the_end…` |
//! | `State::complete_empty` AcqRel → Acquire     | `who_waits_for_a_detached_fiber…` |
//! | `State::complete_empty` AcqRel → Release     | nothing: not needed (1) |
//! | `State::announce_owner` AcqRel → either half | `a_waiter_comes_too_late…`, `wait::an_owner_and_a_listed_waiter…` |
//! | `State::announce_waiter` Acquire → Relaxed   | `a_waiter_comes_too_late…`, `who_waits_for_a_detached_fiber…` |
//! | `State::detach` AcqRel → either half         | `a_dropped_handle…`, `whoever_sees_the_end…` |
//! | `State::try_acquire` Acquire → Relaxed       | `a_reference_made_by_the_registry…` |
//! | `State::release` Release → Relaxed           | `a_dropped_handle…`, `a_reference_made_by_the_registry…` |
//! | `State::release` without its fence           | `a_dropped_handle…`, `a_reference_made_by_the_registry…` |
//! | `Block::claim_start` swap → load and store   | `of_two_workers_and_a_joiner…` |
//! | `ThreadProxy::wake_by` Release → Relaxed     | `a_notified_thread…`, `a_thread_that_takes_a_token…` |
//! | `ThreadProxy::take_wakes` Acquire → Relaxed  | `a_notified_thread…`, `wait::a_join_that_times_out…` |
//! | `ThreadProxy::take_token` Acquire → Relaxed  | `a_thread_that_takes_a_token…` |
//! | `ThreadProxy::take_poll` Acquire → Relaxed   | `a_thread_that_takes_a_token…` |
//!
//! (1) Without a handle there is no owner in the block's place; the list has a lock.
//! Not modelled: `ThreadProxy::{has_ended, set_ended}`, which are std's.
//!
//! That `detach` releases to the fence in `complete` is what `state` promises;
//! nothing that a handle does today needs it.
//!
//! Loom keeps one last access per word: a thread that loads a word before it
//! changes it hides an earlier load of another thread, and loom does not try the
//! change before that load. So who only looks is started last here.

use super::block::{Birth, Block, Kind, Ops, OpsOf};
use super::priority::Priority;
use super::proxy::ThreadProxy;
use super::state::{Completed, Detached, Heard, Park, Snapshot, State, Wake, Wakes};
use crate::primitive::model::Plain;
use crate::primitive::{AtomicBool, AtomicUsize, Ordering};
use crate::stack::StackClass;
use crate::sys::Lock;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::panic::Location;
use std::ptr::NonNull;

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

fn occupied(references: u64) -> State {
    let state = State::vacant();
    state.occupy(references);
    state
}

/// A state word, and what its fiber has heard of, as a block has both.
struct Word {
    state: State,
    heard: Heard,
    /// Used with `heard`, so that loom sees who does.
    owner: Plain<u32>,
}

// SAFETY: `heard` is touched by who owns the fiber; loom checks `owner`.
unsafe impl Sync for Word {}

impl Word {
    fn new(references: u64) -> Self {
        Self {
            state: occupied(references),
            heard: Heard::new(),
            owner: Plain::new(0),
        }
    }

    fn take_wakes(&self) -> Wakes {
        self.owner.set(1);
        self.state.take_wakes(&self.heard)
    }

    fn commit_park(&self) -> Park {
        self.owner.set(2);
        self.state.commit_park(&self.heard)
    }
}

/// A fiber that runs until one notification and one nudge have come.
struct Sleeper {
    word: Word,
    /// What is saved when it leaves its stack: which wakes it has seen.
    context: Plain<(bool, bool)>,
    /// What the notifier and the nudger wrote before they woke it.
    payload: [Plain<u32>; 2],
    ended: Plain<bool>,
}

impl Sleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: Word::new(3),
            context: Plain::new((false, false)),
            payload: [Plain::new(0), Plain::new(0)],
            ended: Plain::new(false),
        })
    }

    /// Runs the fiber on this thread, which owns it, until it parks or ends.
    fn run(&self) {
        let (mut notified, mut nudged) = self.context.get();
        loop {
            // As in `wait::waiter::is_over`.
            let wakes = self.word.take_wakes();
            if wakes.notified {
                assert!(!notified, "one notification came twice");
                assert_eq!(self.payload[0].get(), 1);
                notified = true;
            }
            if wakes.seen.nudged() {
                assert_eq!(self.payload[1].get(), 1);
                nudged = true;
            }
            if notified && nudged {
                assert!(!self.ended.get());
                self.ended.set(true);
                return;
            }
            self.context.set((notified, nudged));
            match self.word.commit_park() {
                Park::Asleep => return,
                Park::Awake => {}
            }
        }
    }

    fn follow(&self, wake: Wake) {
        match wake {
            Wake::Enqueue => self.run(),
            Wake::Nothing => {}
        }
    }
}

#[test]
fn a_wake_before_during_or_after_a_park_is_taken_once_with_all_that_came_before_it() {
    loom::model(|| {
        let fiber = Sleeper::new();
        let wakers = [0, 1].map(|which| {
            let fiber = fiber.clone();
            thread::spawn(move || {
                fiber.payload[which].set(1);
                fiber.follow(if which == 0 {
                    fiber.word.state.notify()
                } else {
                    fiber.word.state.nudge()
                });
            })
        });
        fiber.run();
        for waker in wakers {
            waker.join().unwrap();
        }
        assert!(fiber.ended.get(), "a wake was lost");
    });
}

/// A fiber that waits twice, each time for one of two permits.
struct Twice {
    word: Word,
    /// Permits that are free, and whether the fiber stands in line.
    line: Lock<(u32, bool)>,
    /// How many waits are over; saved when it leaves its stack.
    rounds: Plain<u32>,
    /// What who hands a permit over wrote before.
    payload: Plain<u32>,
}

impl Twice {
    fn run(&self) {
        loop {
            if self.rounds.get() == 2 {
                return;
            }
            {
                let mut line = self.line.lock();
                if line.0 > 0 {
                    line.0 -= 1;
                    self.rounds.set(self.rounds.get() + 1);
                    continue;
                }
                line.1 = true;
            }
            if !self.wait() {
                return;
            }
        }
    }

    /// False if the fiber left this thread.
    fn wait(&self) -> bool {
        while !self.word.take_wakes().notified {
            match self.word.commit_park() {
                Park::Asleep => return false,
                Park::Awake => {}
            }
        }
        assert!(!self.line.lock().1, "heard of a notification twice");
        assert_eq!(self.payload.get(), 1);
        self.payload.set(0);
        self.rounds.set(self.rounds.get() + 1);
        true
    }

    fn release(&self) {
        {
            let mut line = self.line.lock();
            if !std::mem::take(&mut line.1) {
                line.0 += 1;
                return;
            }
        }
        self.payload.set(1);
        // Woken, it goes on inside `wait`.
        if self.word.state.notify() == Wake::Enqueue && self.wait() {
            self.run();
        }
    }
}

#[test]
fn each_of_two_waits_in_a_row_ends_by_its_own_notification() {
    bounded(3).check(|| {
        let fiber = Arc::new(Twice {
            word: Word::new(3),
            line: Lock::new((0, false)),
            rounds: Plain::new(0),
            payload: Plain::new(0),
        });
        let wakers = [0, 1].map(|_| {
            let fiber = fiber.clone();
            thread::spawn(move || fiber.release())
        });
        fiber.run();
        for waker in wakers {
            waker.join().unwrap();
        }
        assert_eq!(fiber.rounds.get(), 2, "a notification was lost");
    });
}

#[test]
fn of_two_wakers_of_one_park_exactly_one_enqueues() {
    loom::model(|| {
        let state = Arc::new(occupied(3));
        let context = Arc::new(Plain::new(0));
        let wakers = [State::notify, State::nudge].map(|wake| {
            let (state, context) = (state.clone(), context.clone());
            thread::spawn(move || {
                let enqueues = wake(&state) == Wake::Enqueue;
                if enqueues {
                    assert_eq!(context.get(), 1, "the saved context is not visible");
                    context.set(2);
                }
                enqueues
            })
        });
        context.set(1);
        let awake = state.commit_park(&Heard::new()) == Park::Awake;
        if awake {
            context.set(2);
        }
        let mut owners = u32::from(awake);
        for waker in wakers {
            owners += u32::from(waker.join().unwrap());
        }
        assert_eq!(owners, 1);
    });
}

/// Which of the two tokens a fiber waits for.
#[derive(Clone, Copy)]
struct Token {
    leave: fn(&State) -> Wake,
    seen: fn(Snapshot) -> bool,
    take: fn(&State) -> bool,
}

/// A fiber that parks until `count` has reached 2.
struct Parker {
    word: Word,
    count: AtomicUsize,
    token: Token,
    ended: Plain<bool>,
}

impl Parker {
    fn run(&self) {
        // Relaxed: only the token orders it.
        while self.count.load(Ordering::Relaxed) < 2 {
            if !self.park() {
                return; // another thread goes on with it
            }
        }
        self.ended.set(true);
    }

    /// `park` as `wait_fiber` has it; false if the fiber left this thread.
    fn park(&self) -> bool {
        loop {
            let seen = self.word.take_wakes().seen;
            if (self.token.seen)(seen) && (self.token.take)(&self.word.state) {
                return true;
            }
            match self.word.commit_park() {
                Park::Asleep => return false,
                Park::Awake => {}
            }
        }
    }

    /// A woken fiber goes on inside `park`.
    fn resume(&self) {
        if self.park() {
            self.run();
        }
    }
}

fn tokens_merge_but_nothing_before_them_is_missed(token: Token) {
    // Three threads that each go on with the fiber: bounded.
    bounded(3).check(move || {
        let fiber = Arc::new(Parker {
            word: Word::new(3),
            count: AtomicUsize::new(0),
            token,
            ended: Plain::new(false),
        });
        let unparkers = [0, 1].map(|_| {
            let fiber = fiber.clone();
            thread::spawn(move || {
                fiber.count.fetch_add(1, Ordering::Relaxed);
                if (fiber.token.leave)(&fiber.word.state) == Wake::Enqueue {
                    fiber.resume();
                }
            })
        });
        fiber.run();
        for unparker in unparkers {
            unparker.join().unwrap();
        }
        assert!(fiber.ended.get(), "the fiber sleeps for ever");
    });
}

#[test]
fn a_fiber_that_takes_a_token_sees_what_came_before_every_unpark_it_stands_for() {
    tokens_merge_but_nothing_before_them_is_missed(Token {
        leave: State::unpark,
        seen: |snapshot| snapshot.token(),
        take: State::take_token,
    });
}

#[test]
fn a_fiber_that_polls_again_sees_what_came_before_every_wake_of_its_waker() {
    tokens_merge_but_nothing_before_them_is_missed(Token {
        leave: State::wake_poll,
        seen: |snapshot| snapshot.poll(),
        take: State::take_poll,
    });
}

#[test]
fn a_cancelled_park_returns_and_knows_why() {
    loom::model(|| {
        let fiber = Arc::new((Word::new(2), Plain::new(0)));
        fn park(fiber: &(Word, Plain<u32>)) {
            loop {
                let seen = fiber.0.take_wakes().seen;
                if seen.token() && fiber.0.state.take_token() {
                    assert!(fiber.0.state.look());
                    assert_eq!(fiber.1.get(), 1);
                    fiber.1.set(2);
                    return;
                }
                match fiber.0.commit_park() {
                    Park::Asleep => return,
                    Park::Awake => {}
                }
            }
        }
        let canceller = thread::spawn({
            let fiber = fiber.clone();
            move || {
                fiber.1.set(1);
                if fiber.0.state.cancel().wake == Wake::Enqueue {
                    park(&fiber);
                }
            }
        });
        park(&fiber);
        canceller.join().unwrap();
        assert_eq!(fiber.1.get(), 2);
    });
}

/// A fiber's end, seen from its worker, its handle and one more reference.
struct Ending {
    state: State,
    /// 7 from the end of the body until somebody takes or drops it.
    outcome: Plain<u32>,
    /// Used by all who have a reference; written by who frees.
    memory: Plain<bool>,
    /// What the handle did before it was dropped.
    handle: Plain<u32>,
}

impl Ending {
    fn new(references: u64) -> Arc<Self> {
        Arc::new(Self {
            state: occupied(references),
            outcome: Plain::new(0),
            memory: Plain::new(true),
            handle: Plain::new(0),
        })
    }

    fn release(&self) {
        assert!(self.memory.get());
        if self.state.release(1) {
            self.memory.set(false);
        }
    }

    fn take_outcome(&self) {
        assert_eq!(self.outcome.get(), 7);
        self.outcome.set(8);
    }

    /// As `run_to_completion` and `run::finish`.
    fn complete(&self) {
        self.outcome.set(7);
        match self.state.complete() {
            Completed::ForHandle(_) => {}
            Completed::OutcomeIsOurs => {
                self.handle.set(2);
                self.take_outcome();
                self.state.complete_empty();
            }
        }
        self.release();
    }

    /// As the drop of a `JoinHandle`.
    fn drop_handle(&self) {
        self.handle.set(1);
        match self.state.detach() {
            Detached::Running => {}
            Detached::OutcomeIsOurs => self.take_outcome(),
        }
        self.release();
    }

    fn assert_clean(&self) {
        assert_eq!(self.outcome.get(), 8, "the outcome leaked");
        assert!(!self.memory.get(), "the block leaked");
    }
}

#[test]
fn a_dropped_handle_and_the_end_agree_who_drops_the_outcome_and_the_last_one_frees() {
    // Each reference is a step or two on one word: bounded.
    bounded(4).check(|| {
        let ending = Ending::new(3);
        let worker = thread::spawn({
            let ending = ending.clone();
            move || ending.complete()
        });
        let friend = thread::spawn({
            let ending = ending.clone();
            move || {
                // A `Fiber` that is cloned, used after the end, and dropped.
                ending.state.acquire();
                ending.release();
                let _ = ending.state.unpark();
                ending.release();
            }
        });
        ending.drop_handle();
        worker.join().unwrap();
        friend.join().unwrap();
        ending.assert_clean();
    });
}

#[test]
fn whoever_sees_the_end_sees_the_outcome() {
    loom::model(|| {
        let ending = Ending::new(2);
        // The other way round loom would forget this look: `complete` begins
        // with one of its own.
        let joiner = thread::spawn({
            let ending = ending.clone();
            move || {
                // As `try_join`, which takes the outcome or gives the handle back.
                if ending.state.load().complete() {
                    ending.take_outcome();
                    ending.release();
                } else {
                    ending.drop_handle();
                }
            }
        });
        ending.complete();
        joiner.join().unwrap();
        ending.assert_clean();
    });
}

#[test]
fn a_waiter_comes_too_late_and_sees_the_outcome_or_is_seen_by_the_end() {
    loom::model(|| {
        // The state, the outcome, and the place for the handle's owner.
        let ending = Arc::new((occupied(3), Plain::new(0), Plain::new(0)));
        let worker = thread::spawn({
            let ending = ending.clone();
            move || {
                ending.1.set(7);
                let Completed::ForHandle(audience) = ending.0.complete() else {
                    unreachable!("nobody detaches");
                };
                if audience.owner {
                    assert_eq!(ending.2.get(), 1, "the owner's waiter is not visible");
                }
                audience
            }
        });
        let listed = thread::spawn({
            let ending = ending.clone();
            move || {
                let too_late = ending.0.announce_waiter();
                if too_late {
                    assert_eq!(ending.1.get(), 7);
                }
                !too_late
            }
        });
        ending.2.set(1);
        let too_late = ending.0.announce_owner();
        if too_late {
            assert_eq!(ending.1.get(), 7);
        }
        let audience = worker.join().unwrap();
        assert_eq!(audience.owner, !too_late);
        assert_eq!(audience.list, listed.join().unwrap());
    });
}

#[test]
fn who_waits_for_a_detached_fiber_finds_its_outcome_dropped_or_is_seen_by_the_end() {
    loom::model(|| {
        let ending = Arc::new((occupied(3), Plain::new(0)));
        assert_eq!(ending.0.detach(), Detached::Running);
        let worker = thread::spawn({
            let ending = ending.clone();
            move || {
                assert_eq!(ending.0.complete(), Completed::OutcomeIsOurs);
                ending.1.set(8); // dropped
                ending.0.complete_empty().list
            }
        });
        let too_late = ending.0.announce_waiter();
        if too_late {
            assert_eq!(ending.1.get(), 8);
        }
        assert_eq!(worker.join().unwrap(), !too_late);
    });
}

#[test]
fn a_reference_made_by_the_registry_is_to_a_block_that_is_wholly_there() {
    loom::model(|| {
        let block = Arc::new((State::vacant(), Plain::new(0)));
        /// The last reference makes room for a next life, here or not at all.
        fn release(block: &(State, Plain<u32>), next: u32) {
            assert!(block.1.get() > 0);
            if block.0.release(1) {
                block.1.set(0);
                if next > 0 {
                    block.1.set(next);
                    block.0.occupy(1);
                }
            }
        }
        let registry = thread::spawn({
            let block = block.clone();
            move || {
                if block.0.try_acquire() {
                    release(&block, 0);
                }
            }
        });
        block.1.set(1);
        block.0.occupy(1);
        release(&block, 2);
        registry.join().unwrap();
    });
}

struct NoOps;

impl OpsOf for NoOps {
    const OPS: Ops = Ops {
        enqueue: |_| unreachable!("nothing is woken here"),
        recycle: |_| {},
    };
}

fn unstarted() -> Block {
    let block = Block::vacant();
    let birth = Birth {
        runtime: NonNull::dangling(),
        ops: NoOps,
        class: StackClass::SMALLEST,
        priority: Priority::Normal,
        kind: Kind {
            daemon: false,
            local: false,
            migratable: false,
            on_pool: false,
            always_runs: false,
        },
        name: None,
        spawned_at: Location::caller(),
        parent: None,
    };
    // SAFETY: nobody else knows the block.
    unsafe { block.occupy(birth, || ()) };
    block
}

/// An unstarted fiber in a queue, and its closure.
struct Fresh {
    block: Block,
    closure: Plain<u32>,
    /// The queue: a stand-in.
    queued: AtomicBool,
    starts: Plain<u32>,
}

impl Fresh {
    fn try_start(&self) -> bool {
        let won = self.block.claim_start();
        if won {
            assert_eq!(self.closure.get(), 7);
            self.closure.set(8); // taken out
            self.starts.set(self.starts.get() + 1);
        }
        won
    }
}

#[test]
fn of_two_workers_and_a_joiner_exactly_one_starts_a_fiber() {
    loom::model(|| {
        let fresh = Arc::new(Fresh {
            block: unstarted(),
            closure: Plain::new(0),
            queued: AtomicBool::new(false),
            starts: Plain::new(0),
        });
        let thief = thread::spawn({
            let fresh = fresh.clone();
            // Acquire: the queue's own.
            move || fresh.queued.load(Ordering::Acquire) && fresh.try_start()
        });
        fresh.closure.set(7);
        let joiner = thread::spawn({
            // It got the handle from the spawner.
            let fresh = fresh.clone();
            move || !fresh.block.is_claimed() && fresh.try_start()
        });
        fresh.queued.store(true, Ordering::Release);
        let mut started = u32::from(fresh.try_start());
        started += u32::from(thief.join().unwrap());
        started += u32::from(joiner.join().unwrap());
        assert_eq!(started, 1);
        assert_eq!(fresh.starts.get(), 1);
    });
}

#[test]
fn a_thread_that_takes_a_token_sees_what_came_before_every_unpark_it_stands_for() {
    let tokens: [(fn(&ThreadProxy), fn(&ThreadProxy) -> bool); 2] = [
        (ThreadProxy::unpark, ThreadProxy::take_token),
        (ThreadProxy::wake_poll, ThreadProxy::take_poll),
    ];
    // Each round of the parker is a dozen steps: all interleavings of three
    // threads take two minutes, those with three preemptions find the same.
    for (leave, take) in tokens {
        bounded(3).check(move || {
            let parker = Arc::new((ThreadProxy::of_current_thread(), AtomicUsize::new(0)));
            let unparkers = [0, 1].map(|_| {
                let parker = parker.clone();
                thread::spawn(move || {
                    parker.1.fetch_add(1, Ordering::Relaxed);
                    leave(&parker.0);
                })
            });
            while parker.1.load(Ordering::Relaxed) < 2 {
                // `park` as `wait_thread` has it.
                loop {
                    assert!(!parker.0.take_wakes(), "nobody notifies");
                    if take(&parker.0) {
                        break;
                    }
                    parker.0.sleep(None);
                }
            }
            for unparker in unparkers {
                unparker.join().unwrap();
            }
        });
    }
}

#[test]
fn a_notified_thread_leaves_its_wait_after_the_notifier_is_done_with_it() {
    loom::model(|| {
        let wait = Arc::new((ThreadProxy::of_current_thread(), Plain::new(0)));
        let notifier = thread::spawn({
            let wait = wait.clone();
            move || {
                wait.1.set(1);
                wait.0.notify();
            }
        });
        let nudger = thread::spawn({
            let wait = wait.clone();
            move || wait.0.unpark()
        });
        while !wait.0.take_wakes() {
            wait.0.sleep(None);
        }
        assert_eq!(wait.1.get(), 1);
        wait.1.set(2); // the waiter's frame is gone
        notifier.join().unwrap();
        nudger.join().unwrap();
        // The other wake left its token; it is there for the next park.
        while !wait.0.take_token() {
            thread::yield_now();
        }
    });
}

/// A fiber that waits for a stack, as `worker::starve` has it: parked without a context.
struct Starved {
    word: Word,
    /// The inbox of its worker.
    inbox: AtomicBool,
    /// What it became, as its owner has decided: 1 started, 2 dropped unrun.
    became: Plain<u32>,
}

impl Starved {
    /// As `look_and_park`; false if it is cancelled.
    fn look_and_park(&self) -> bool {
        loop {
            if self.word.state.load().cancelled() {
                return false;
            }
            match self.word.commit_park() {
                Park::Asleep => return true,
                Park::Awake => drop(self.word.take_wakes()),
            }
        }
    }

    fn becomes(&self, what: u32) {
        assert_eq!(self.became.get(), 0, "two have it");
        self.became.set(what);
    }

    /// The worker: parks it, and has a stack for it a moment later.
    fn wait_and_feed(&self) {
        if !self.look_and_park() {
            return self.becomes(2);
        }
        // As `take_over`.
        if self.word.state.nudge() == Wake::Enqueue {
            let _heard = self.word.take_wakes();
            return self.becomes(1);
        }
        // Who nudged it brings it here. Acquire: as the inbox does.
        while !self.inbox.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let _heard = self.word.take_wakes();
        assert!(!self.look_and_park(), "it was nudged by who cancelled it");
        self.becomes(2);
    }
}

#[test]
fn a_fiber_that_waits_for_a_stack_starts_or_is_dropped_by_one_owner() {
    loom::model(|| {
        let starved = Arc::new(Starved {
            word: Word::new(3),
            inbox: AtomicBool::new(false),
            became: Plain::new(0),
        });
        let cancels = thread::spawn({
            let starved = starved.clone();
            move || {
                if starved.word.state.cancel().wake == Wake::Enqueue {
                    starved.word.owner.set(3); // ours: its link, say
                    // Release: as the inbox does.
                    starved.inbox.store(true, Ordering::Release);
                }
            }
        });
        starved.wait_and_feed();
        cancels.join().unwrap();
        assert_ne!(starved.became.get(), 0);
    });
}
