//! A child whose end is judged: it succeeded, it failed, or it never ran.

use super::failure::{Failure, Panic};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Who is told how a child has ended.
pub(super) trait Judge<T, E> {
    /// What a handle gets of a child that succeeded.
    type Kept;

    fn succeeded(&self, value: T) -> Option<Self::Kept>;
    fn failed(&self, failure: Failure<E>);
}

/// A child's closure, and the duty to tell: exactly once, also if the closure is
/// dropped without running. Fields are dropped in this order.
pub(super) struct JudgedChild<'a, F, T, E, J: Judge<T, E>> {
    f: Option<F>,
    duty: Duty<'a, T, E, J>,
}

struct Duty<'a, T, E, J: Judge<T, E>> {
    judge: &'a J,
    done: bool,
    _result: std::marker::PhantomData<fn() -> (T, E)>,
}

impl<T, E, J: Judge<T, E>> Drop for Duty<'_, T, E, J> {
    fn drop(&mut self) {
        if !self.done {
            self.judge.failed(Failure::Cancelled);
        }
    }
}

impl<'a, F, T, E, J> JudgedChild<'a, F, T, E, J>
where
    F: FnOnce() -> Result<T, E>,
    J: Judge<T, E>,
{
    pub(super) fn new(judge: &'a J, f: F) -> Self {
        Self {
            f: Some(f),
            duty: Duty {
                judge,
                done: false,
                _result: std::marker::PhantomData,
            },
        }
    }

    /// What its handle gets; none if it failed.
    pub(super) fn run(mut self) -> Option<J::Kept> {
        let f = self.f.take().expect("a child runs once");
        let outcome = catch_unwind(AssertUnwindSafe(f));
        self.duty.done = true;
        match outcome {
            Ok(Ok(value)) => self.duty.judge.succeeded(value),
            Ok(Err(error)) => {
                self.duty.judge.failed(Failure::Error(error));
                None
            }
            Err(payload) => {
                let panic = Panic::of_child(payload);
                self.duty.judge.failed(Failure::Panic(panic));
                None
            }
        }
    }
}
