//! How to wait: why, for how long, and what else may end it.

use super::deadline::Deadline;
use crate::fiber::cancel::Errands;
use crate::fiber::{Block, WaitReason};
use crate::sys::poll::PollFor;
use std::panic::Location;

/// How to wait.
pub(crate) struct WaitSpec<'a> {
    pub(crate) reason: WaitReason,
    pub(crate) at: &'static Location<'static>,
    pub(crate) deadline: Option<Deadline>,
    /// What it does when its fiber or thread is cancelled.
    pub(crate) on_cancel: OnCancel<'a>,
    /// Who should run at least as urgently as the waiter, meanwhile.
    pub(crate) lend: Option<Lend<'a>>,
    /// A token whose arrival ends the wait; it is taken.
    pub(crate) token: Option<Token>,
    /// How a wait with one place gives up: leaves its list, under that list's
    /// lock; false if it was in it no more. None if it is in no list.
    pub(crate) leave: Option<&'a dyn Fn() -> bool>,
    /// A descriptor that ends the wait when it is ready: a thread watches it
    /// itself. A fiber's worker does that for it; it only does not look out for
    /// what takes its time.
    pub(crate) io: Option<PollFor>,
}

/// What a wait does when its fiber or thread is cancelled.
#[derive(Clone, Copy)]
pub(crate) enum OnCancel<'a> {
    /// It waits on: it is no point.
    Ignore,
    /// It gives up, and answers so.
    Answer,
    /// It passes that on, perhaps more than once, and waits on.
    PassOn(&'a dyn Fn(&mut Errands)),
}

/// Whom a waiting fiber lends its priority to.
#[derive(Clone, Copy)]
pub(crate) enum Lend<'a> {
    /// This fiber, whatever happens.
    To(&'a Block),
    /// Whoever it is when the waiter looks: asked with the waiting fiber.
    By(&'a dyn Fn(&Block)),
}

/// What may be left for a fiber or thread without a waiter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// By `unpark`.
    Unpark,
    /// By a waker that `block_on` made.
    Poll,
}

impl<'a> WaitSpec<'a> {
    /// A plain wait; the caller sets what is different.
    #[inline]
    pub(crate) fn new(reason: WaitReason, at: &'static Location<'static>) -> Self {
        Self {
            reason,
            at,
            deadline: None,
            on_cancel: OnCancel::Ignore,
            lend: None,
            token: None,
            leave: None,
            io: None,
        }
    }

    #[inline]
    pub(crate) fn deadline(mut self, deadline: Option<Deadline>) -> Self {
        self.deadline = deadline;
        self
    }

    #[inline]
    pub(crate) fn cancellable(mut self) -> Self {
        self.on_cancel = OnCancel::Answer;
        self
    }

    pub(crate) fn passing_on(mut self, pass_on: &'a dyn Fn(&mut Errands)) -> Self {
        self.on_cancel = OnCancel::PassOn(pass_on);
        self
    }

    pub(crate) fn lending_to(mut self, block: &'a Block) -> Self {
        self.lend = Some(Lend::To(block));
        self
    }

    pub(crate) fn lending_by(mut self, lend: &'a dyn Fn(&Block)) -> Self {
        self.lend = Some(Lend::By(lend));
        self
    }

    pub(crate) fn leaving_by(mut self, leave: &'a dyn Fn() -> bool) -> Self {
        self.leave = Some(leave);
        self
    }

    pub(crate) fn watching(mut self, io: PollFor) -> Self {
        self.io = Some(io);
        self
    }

    pub(crate) fn until(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }
}
