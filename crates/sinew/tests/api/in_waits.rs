//! What happens in the middle of a wait: wakers of tasks that wait themselves, frames that
//! come and go, closures that are dropped late.

use crate::harness::{Gate, on_workers, runtime, watch};
use sinew::channel::{Receiver, Sender, unbounded};
use sinew::scope::{Exit, Restart, Supervision, Supervisor, supervise};
use sinew::{CancelToken, Cancelled, Elapsed};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(2);

/// A waker that waits for a message.
struct Waits {
    gate: Receiver<u32>,
    called: Gate,
    done: Gate,
}

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        self.called.open();
        assert_eq!(sinew::shield(|| self.gate.recv()), Ok(8));
        self.done.open();
    }
}

/// Polls the future of `token` once, by `waker`, and leaks it.
fn awaits(token: CancelToken, waker: &Arc<Waits>) {
    let token: &'static CancelToken = Box::leak(Box::new(token));
    let future: &'static mut _ = Box::leak(Box::new(token.cancelled()));
    let waker = Waker::from(waker.clone());
    let polled = Pin::static_mut(future).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
}

type Body<'a> = dyn Fn() -> Result<u32, Cancelled> + Sync + 'a;

#[derive(Clone, Copy)]
enum Shape {
    Recv,
    Join,
    ScopeEnd,
    Select,
}

/// A limit is reached while its owner waits in this shape, with a token in it that a task
/// awaits whose waker waits, too.
fn owner(shape: Shape, rx: Receiver<u32>, waker: &Arc<Waits>) -> Result<u32, Cancelled> {
    let limited = sinew::timeout(SOON, || {
        sinew::scope(|s| {
            awaits(s.token(), waker);
            match shape {
                Shape::Recv => rx.recv().map_err(|_| Cancelled),
                Shape::Select => sinew::select! {
                    recv(rx) -> message => message.map_err(|_| Cancelled),
                    recv(sinew::channel::never::<u32>()) -> _ => unreachable!(),
                },
                Shape::Join => {
                    let deaf = sinew::spawn(move || sinew::shield(|| rx.recv().unwrap()));
                    Ok(deaf.join().unwrap())
                }
                Shape::ScopeEnd => {
                    s.spawn(move || sinew::shield(|| assert_eq!(rx.recv(), Ok(7))));
                    Ok(7)
                }
            }
        })
    });
    limited.unwrap_or_else(Elapsed::into_inner)
}

fn helper(waker: Arc<Waits>, tx: Sender<u32>, gate: Sender<u32>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        waker.called.pass();
        tx.send(7).unwrap();
        gate.send(8).unwrap();
        waker.done.pass();
    })
}

#[test]
fn a_waker_that_waits_takes_no_notification_of_the_wait_in_which_a_limit_is_reached() {
    use Shape::{Join, Recv, ScopeEnd, Select};
    let play = |shape: Shape, on: &dyn Fn(&Body<'_>)| {
        let (tx, rx) = unbounded();
        let keep = rx.clone();
        let (gate_tx, gate) = unbounded();
        let (called, done) = (Gate::new(), Gate::new());
        let waker = Arc::new(Waits { gate, called, done });
        let other = helper(waker.clone(), tx, gate_tx);
        on(&|| owner(shape, rx.clone(), &waker));
        other.join().unwrap();
        drop(keep);
    };
    on_workers(|runtime| {
        for shape in [Recv, Select] {
            play(shape, &|body| {
                assert_eq!(runtime.run(body), Err(Cancelled));
            });
        }
        for shape in [Join, ScopeEnd] {
            // The child may have been cancelled before it ran: then nobody waits.
            play(shape, &|body| {
                let outcome =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.run(body)));
                assert!(outcome.is_err() || outcome.unwrap() == Ok(7));
            });
        }
    });
    play(Recv, &|body| assert_eq!(body(), Err(Cancelled)));
    play(ScopeEnd, &|body| assert_eq!(body(), Ok(7)));
}

/// Uses its supervisor when it is dropped.
struct LastWord<'scope, 'env> {
    supervisor: &'scope Supervisor<'scope, 'env>,
    token: &'env Mutex<Option<CancelToken>>,
}

impl Drop for LastWord<'_, '_> {
    fn drop(&mut self) {
        *self.token.lock().unwrap() = Some(self.supervisor.token());
        self.supervisor
            .child("too late", Restart::Permanent, || -> () {
                panic!("supervision is over")
            });
    }
}

#[test]
fn the_closure_of_a_supervised_child_may_use_the_supervisor_when_it_is_dropped() {
    on_workers(|runtime| {
        let token = Mutex::new(None);
        runtime.run(|| {
            let report = supervise(Supervision::new(), |s| {
                let last_word = LastWord {
                    supervisor: s,
                    token: &token,
                };
                s.child("child", Restart::Temporary, move || {
                    let _captured = &last_word;
                });
            });
            assert_eq!(report.unwrap().children.len(), 1);
        });
        // It stands for nothing any more.
        token.lock().unwrap().take().unwrap().cancel();
    });
}

#[test]
fn a_limit_that_is_reached_where_nothing_is_told_reports_nothing() {
    on_workers(|runtime| {
        runtime.run(|| {
            let outcome = sinew::timeout(SOON, || {
                sinew::blocking(|| {
                    std::thread::sleep(2 * SOON); // so that it is over
                    42
                })
            });
            assert_eq!(outcome, Ok(42));
            let (begun, go) = (Gate::new(), Gate::new());
            let theirs = (begun.clone(), go.clone());
            let deaf = sinew::spawn(move || {
                theirs.0.open();
                theirs.1.pass();
                42
            });
            begun.pass();
            let over = sinew::spawn(move || {
                sinew::sleep(2 * SOON).unwrap();
                go.open();
            });
            let outcome = sinew::timeout(SOON, || deaf.join().unwrap());
            assert_eq!(outcome, Ok(42));
            over.join().unwrap();
        });
    });
}

#[test]
fn a_token_asked_for_while_its_fiber_starts_cancels_it_or_finds_it_cancelled() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..2000 {
        let fiber = runtime.spawn(|| sinew::scope(|s| s.spawn(|| sinew::sleep(HOUR)).join()));
        let token = fiber.fiber().token();
        token.cancel_with("at once");
        assert!(token.is_cancelled());
        if let Ok(Ok(slept)) = fiber.join() {
            assert_eq!(slept, Err(Cancelled));
        }
    }
}

#[test]
fn a_scope_whose_child_never_starts_learns_that_when_the_runtime_is_given_up() {
    let _watch = watch();
    let runtime = runtime(1);
    let (begun, go) = (Gate::new(), Gate::new());
    let theirs = (begun.clone(), go.clone());
    let (tell, told) = std::sync::mpsc::channel();
    let asked = Gate::new();
    let gate = asked.clone();
    runtime.run(|| {
        // On a thread of the pool, whose children are fibers of this runtime.
        drop(sinew::spawn_blocking(move || {
            begun.pass();
            let report = supervise(Supervision::new(), |s| {
                s.child("never", Restart::Temporary, || -> () {
                    unreachable!("no worker is left")
                });
                gate.open();
            });
            let exit = report.map(|report| report.children[0].last_exit.clone());
            tell.send(exit).unwrap();
        }));
        drop(sinew::spawn(move || {
            theirs.0.open();
            theirs.1.spin(); // keeps the only worker
        }));
    });
    asked.pass();
    let given_up = runtime.shutdown_timeout(SOON);
    assert!(given_up.is_err());
    assert_eq!(told.recv().unwrap().unwrap(), Exit::Cancelled);
    go.open();
}
