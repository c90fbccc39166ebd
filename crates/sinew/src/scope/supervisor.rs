//! The scope that starts its children again.
//!
//! Children report their ends through a channel; when the closure of the scope has
//! returned its owner reads them, one after the other, and decides. So a decision is never
//! made by two at once, and restarts of a group wait for the ends of all of it first.
//!
//! A child's *run* has a number: an end is looked at only if it is that of the present run
//! (one whose fiber could not be made is heard of, too).

use super::core::ScopeCore;
use super::failure::Panic;
use super::supervision::{
    ChildReport, ChildResult, Exit, Report, Restart, Strategy, Supervision, SupervisionError,
};
use crate::cancel::{CancelToken, shield};
use crate::channel::{Receiver, Sender, unbounded};
use crate::fiber::CancelReason;
use crate::sys::Lock;
use crate::task::{Builder, Fiber, JoinHandle, cannot_spawn, check_name};
use crate::time::Instant;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f`, which starts children that may borrow, and supervises them until all have
/// ended for good.
///
/// A child that fails, by an `Err` or a panic, is nobody else's concern, but is started
/// again, as its [`Restart`] and the [`Strategy`] say. Too many restarts in too short a
/// time ([`Supervision::intensity`]) end them all.
///
/// **Supervision begins when `f` has returned**: `f` only starts children. A main loop is a
/// child, too.
///
/// Cancelled, with what is around it or by [`Supervisor::cancel`], it starts nobody again.
///
/// # Errors
///
/// [`SupervisionError`] if it gave up; all children have ended by then.
///
/// # Panics
///
/// If `f` does, after the children were cancelled and have ended.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
/// use sinew::scope::{Exit, Restart, Supervision, supervise};
///
/// let tries = AtomicU32::new(0);
/// let flaky = || match tries.fetch_add(1, Ordering::Relaxed) {
///     0 => Err("not yet"),
///     _ => Ok(()),
/// };
/// let limits = Supervision::new().intensity(3, Duration::from_secs(1));
/// let report = supervise(limits, |s| {
///     s.child("flaky", Restart::Transient, flaky);
/// })
/// .unwrap();
/// assert_eq!(report.restarts, 1);
/// assert_eq!(report.children[0].last_exit, Exit::Normal);
/// ```
#[track_caller]
pub fn supervise<'env, F>(supervision: Supervision, f: F) -> Result<Report, SupervisionError>
where
    F: for<'scope> FnOnce(&'scope Supervisor<'scope, 'env>),
{
    let at = Location::caller();
    let (sender, ends) = unbounded();
    let supervisor = Supervisor {
        core: ScopeCore::new(),
        children: Lock::new(Vec::new()),
        closed: AtomicBool::new(false),
        sender,
        at,
        scope: PhantomData,
        env: PhantomData,
    };
    let mut office = Office {
        supervision,
        ends,
        later: VecDeque::new(),
        restarts: VecDeque::new(),
        count: 0,
    };
    let outcome = supervisor.core.run(
        || {
            let worked = catch_unwind(AssertUnwindSafe(|| {
                f(&supervisor);
                office.work(&supervisor)
            }));
            if worked.is_err() {
                // What `f` or a decision panics with ends the children first.
                supervisor.core.cancel(&CancelReason::Failed);
            }
            let report = supervisor.close();
            (worked, report)
        },
        at,
    );
    match outcome {
        Err(panic) | Ok((Err(panic), _)) => resume_unwind(panic),
        Ok((Ok(why), children)) => {
            let report = Report {
                children,
                restarts: office.count,
            };
            match why {
                None => Ok(report),
                Some(why) => Err(SupervisionError { report, why }),
            }
        }
    }
}

/// A child's closure; its lifetime is forgotten, for it is dropped by [`supervise`].
type Body = Arc<dyn Fn() -> Exit + Send + Sync>;

struct Child {
    name: String,
    restart: Restart,
    body: Body,
    /// How often it was started: the number of its present run.
    starts: usize,
    /// It was started, and the end of that run was not heard of yet.
    runs: bool,
    /// The fiber of the present run, once that is known.
    fiber: Option<Fiber>,
    /// Its present run is to be cancelled, also if its fiber is not known yet.
    stop: bool,
    last_exit: Exit,
}

impl Child {
    /// Whether it is to be started again, after the end that was last heard of.
    fn wants_restart(&self) -> bool {
        match self.restart {
            Restart::Permanent => true,
            Restart::Transient => self.last_exit.is_failure(),
            Restart::Temporary => false,
        }
    }

    fn report(&self) -> ChildReport {
        ChildReport {
            name: self.name.clone(),
            starts: self.starts,
            last_exit: self.last_exit.clone(),
        }
    }
}

/// A run has ended.
struct End {
    child: usize,
    run: usize,
    exit: Exit,
}

/// What the closure of [`supervise`] starts children with.
pub struct Supervisor<'scope, 'env: 'scope> {
    core: ScopeCore,
    children: Lock<Vec<Child>>,
    /// Supervision has ended; changed under the lock of `children`.
    closed: AtomicBool,
    sender: Sender<End>,
    at: &'static Location<'static>,
    /// Invariant, as in [`Scope`](super::Scope).
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Supervisor<'scope, '_> {
    /// Starts a child that runs `f`, which may borrow, and is called again for each
    /// restart: what it keeps between runs is in atomics or locks.
    ///
    /// Once supervision has ended, in the drop of another child's `f` say, nothing is
    /// started any more.
    ///
    /// # Panics
    ///
    /// As [`spawn`](crate::spawn), or if the name contains a NUL byte.
    #[track_caller]
    pub fn child<F, R>(&'scope self, name: impl Into<String>, restart: Restart, f: F)
    where
        F: Fn() -> R + Send + Sync + 'scope,
        R: ChildResult,
    {
        let name = name.into();
        check_name(&name);
        let body: Arc<dyn Fn() -> Exit + Send + Sync + 'scope> = Arc::new(move || f().into_exit());
        // SAFETY: only the lifetime is changed. It is called by children, which end before
        // `'scope` does; the last clone is dropped by `supervise`, or by a child, and if
        // that is leaked never.
        let body: Body = unsafe { std::mem::transmute(body) };
        let child = Child {
            name,
            restart,
            body,
            starts: 0,
            runs: false,
            fiber: None,
            stop: false,
            last_exit: Exit::Cancelled,
        };
        let mut child = Some(child);
        let index = {
            let mut children = self.children.lock();
            // Relaxed: under the lock.
            if !self.closed.load(Ordering::Relaxed) {
                children.extend(child.take());
            }
            children.len().wrapping_sub(1)
        };
        if child.is_some() {
            return; // it is dropped here
        }
        if let Err(error) = self.start(index) {
            cannot_spawn(&error);
        }
    }

    /// Cancels all children; none is started again.
    pub fn cancel(&self) {
        self.core.cancel(&CancelReason::Requested);
    }

    /// Whether it was cancelled, or something around it.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// The token that stands for this scope: cancelled with it, and cancels it.
    pub fn token(&self) -> CancelToken {
        self.core.token()
    }
}

impl Supervisor<'_, '_> {
    /// The end: no child comes any more. The closures are dropped here, while the scope
    /// is still one, for their captures may use it; runs that are left have their own.
    fn close(&self) -> Vec<ChildReport> {
        let children = {
            let mut children = self.children.lock();
            // Relaxed: under the lock.
            self.closed.store(true, Ordering::Relaxed);
            std::mem::take(&mut *children)
        };
        children.iter().map(Child::report).collect()
    }

    /// Starts a run of a child that has none.
    ///
    /// The lock is not held while the fiber is made, since what is not started is
    /// dropped: its end may be heard of, or it may be told to stop, before the fiber is
    /// known here.
    fn start(&self, index: usize) -> io::Result<()> {
        let (body, name, run) = {
            let mut children = self.children.lock();
            let Some(child) = children.get_mut(index) else {
                return Ok(()); // closed meanwhile
            };
            child.starts += 1;
            (child.runs, child.stop, child.fiber) = (true, false, None);
            (child.body.clone(), child.name.clone(), child.starts)
        };
        let run = Run {
            body: Some(body),
            duty: Duty {
                sender: self.sender.clone(),
                child: index,
                run,
                exit: Exit::Cancelled,
            },
        };
        let request = Builder::new().name(name).request(self.at)?;
        // SAFETY: `Send`; what the body borrows is valid for `'scope`, which ends after
        // `run`. The handle is dropped here, and the value is `()`.
        let spawned = unsafe { self.core.spawn(request, move || run.run()) };
        let fiber = spawned.as_ref().ok().map(JoinHandle::fiber);
        let wanted_to_stop = {
            let mut children = self.children.lock();
            children.get_mut(index).is_some_and(|child| {
                if fiber.is_none() {
                    (child.runs, child.starts) = (false, child.starts - 1);
                }
                child.fiber = fiber.clone();
                child.stop
            })
        };
        if let (true, Some(fiber)) = (wanted_to_stop, fiber) {
            stop(&fiber);
        }
        spawned.map(drop)
    }
}

/// Cancels a run that is to be started again.
fn stop(fiber: &Fiber) {
    fiber.token().cancel_with(CancelReason::Supervisor);
}

/// One run, and the duty to tell of its end, also if it never ran.
struct Run {
    body: Option<Body>,
    duty: Duty,
}

struct Duty {
    sender: Sender<End>,
    child: usize,
    run: usize,
    exit: Exit,
}

impl Drop for Duty {
    fn drop(&mut self) {
        let exit = std::mem::replace(&mut self.exit, Exit::Normal);
        let (child, run) = (self.child, self.run);
        // Unbounded, and the receiver lives as long as there are children. Shielded: it
        // is told whether or not the child was cancelled.
        let sent = shield(|| self.sender.send(End { child, run, exit }));
        debug_assert!(sent.is_ok(), "the office is open while there are children");
    }
}

impl Run {
    fn run(mut self) {
        let body = self.body.take().expect("a run runs once");
        let outcome = catch_unwind(AssertUnwindSafe(&*body));
        drop(body); // user code, if it is the last
        self.duty.exit = match outcome {
            Ok(exit) => exit,
            Err(payload) => {
                let panic = Panic::new(payload);
                let text = panic.text().map(String::from);
                // A payload may panic when it is dropped.
                std::mem::forget(panic);
                Exit::Panicked(text)
            }
        };
    }
}

/// Where the ends of children are heard of; of the supervisor's owner alone.
struct Office {
    supervision: Supervision,
    ends: Receiver<End>,
    /// Children whose end was heard of while a group was awaited.
    later: VecDeque<usize>,
    /// When there were restarts, within the last period.
    restarts: VecDeque<Instant>,
    count: usize,
}

impl Office {
    /// Until no child runs any more; says why if it gave up.
    fn work(&mut self, supervisor: &Supervisor<'_, '_>) -> Option<String> {
        let mut why = None;
        while let Some(index) = self.next_end(supervisor) {
            let (wanted, exit, name) = {
                let children = supervisor.children.lock();
                let child = &children[index];
                let wanted = child.wants_restart();
                (wanted, child.last_exit.clone(), child.name.clone())
            };
            if !wanted || supervisor.is_cancelled() {
                continue; // those who are left are heard of, too
            }
            if !self.may_restart() {
                let Supervision {
                    restarts, period, ..
                } = self.supervision;
                why = Some(format!(
                    "child '{name}' {exit}, after {restarts} restarts within {period:?}"
                ));
            } else if let Err(error) = self.restart(supervisor, index) {
                why = Some(format!("child '{name}' cannot be started again: {error}"));
            }
            if why.is_some() {
                supervisor.core.cancel(&CancelReason::Supervisor);
            }
        }
        why
    }

    /// Waits for the end of a run; none if there is none any more.
    fn next_end(&mut self, supervisor: &Supervisor<'_, '_>) -> Option<usize> {
        if let Some(child) = self.later.pop_front() {
            return Some(child);
        }
        let runs = |child: &Child| child.runs;
        while supervisor.children.lock().iter().any(runs) {
            let heard = self.hear(supervisor);
            if heard.is_some() {
                return heard;
            }
        }
        None
    }

    /// Whose run has ended: waits whether or not we are cancelled, for the children are,
    /// too, then. None for one that never began.
    fn hear(&self, supervisor: &Supervisor<'_, '_>) -> Option<usize> {
        let end = shield(|| self.ends.recv()).expect("the supervisor has a sender");
        let mut children = supervisor.children.lock();
        let child = &mut children[end.child];
        if !child.runs || child.starts != end.run {
            return None;
        }
        child.last_exit = end.exit;
        (child.runs, child.fiber) = (false, None);
        Some(end.child)
    }

    /// Whether one more restart is within the limits; counts it.
    fn may_restart(&mut self) -> bool {
        let now = Instant::now();
        let period = self.supervision.period;
        while self.restarts.front().is_some_and(|&at| now - at > period) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.supervision.restarts {
            return false;
        }
        self.restarts.push_back(now);
        self.count += 1;
        true
    }

    /// Starts a child again, and those that the strategy says, in order.
    fn restart(&mut self, supervisor: &Supervisor<'_, '_>, failed: usize) -> io::Result<()> {
        let last = supervisor.children.lock().len();
        let group = match self.supervision.strategy {
            Strategy::OneForOne => failed..failed + 1,
            Strategy::OneForAll => 0..last,
            Strategy::RestForOne => failed..last,
        };
        let (again, running) = {
            let mut children = supervisor.children.lock();
            let mut again = Vec::new();
            let mut running = Vec::new();
            for index in group.clone() {
                let child = &mut children[index];
                let down = self.later.contains(&index) && child.wants_restart();
                let stopped = child.runs && child.restart != Restart::Temporary;
                if index == failed || down || stopped {
                    again.push(index);
                }
                if child.runs {
                    child.stop = true;
                    running.extend(child.fiber.clone());
                }
            }
            (again, running)
        };
        // Who was down before is started with the others.
        self.later.retain(|child| !group.contains(child));
        // The last started first, as OTP does.
        running.iter().rev().for_each(stop);
        while supervisor.children.lock()[group.clone()]
            .iter()
            .any(|child| child.runs)
        {
            let heard = self.hear(supervisor);
            self.later
                .extend(heard.filter(|child| !group.contains(child)));
        }
        for index in again {
            if supervisor.is_cancelled() {
                break;
            }
            supervisor.start(index)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Supervisor<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("children", &self.children.lock().len())
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
