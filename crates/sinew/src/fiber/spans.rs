//! The spans of `tracing` that a fiber has entered, while it is off its thread.
//!
//! A subscriber keeps the entered spans per thread. When a fiber leaves its thread its spans
//! are exited, from the innermost outward, and when it is back they are entered again in the
//! order in which they were. So a thread has the spans of the fiber that runs on it and no
//! others, and layers see what they see of an async task that is polled: an exit when it is
//! suspended, an enter when it goes on. Times "busy" and "idle" are right because of that.
//!
//! Nothing of it depends on a certain subscriber: [`Dispatch::current_span`] says which span
//! is the innermost. A subscriber that does not know (`Current::is_known` is false) cannot be
//! helped.
//!
//! A wrapper around the subscriber, which would keep the entered spans in a fiber-local, was
//! rejected: layers ask the registry inside of the wrapper for the current span, so every
//! program would have to build its subscriber on a registry of ours.

use std::cell::Cell;
use tracing_core::{Dispatch, dispatcher, span::Id};

/// More than anybody has entered. A subscriber that reports a current span for ever would
/// otherwise hang the worker.
const MANY: usize = 1 << 20;

/// See the module header. Used by its fiber alone.
pub(crate) struct SuspendedSpans {
    /// The innermost first. A reference to each is held, so that none is closed meanwhile.
    ids: Cell<Vec<Id>>,
    /// Whose they are; none if there are no ids.
    dispatch: Cell<Option<Dispatch>>,
}

impl SuspendedSpans {
    pub(crate) const fn new() -> Self {
        Self {
            ids: Cell::new(Vec::new()),
            dispatch: Cell::new(None),
        }
    }

    /// Exits all spans that are entered on this thread; calls the subscriber.
    ///
    /// # Panics
    ///
    /// If the subscriber does, or reports a current span after everything was exited.
    pub(crate) fn take_off(&self) {
        dispatcher::get_default(|dispatch| {
            let Some((innermost, _)) = dispatch.current_span().into_inner() else {
                return;
            };
            let mut ids = self.ids.take();
            let mut current = Some(innermost);
            while let Some(id) = current {
                assert!(ids.len() < MANY, "the subscriber ignores Subscriber::exit");
                ids.push(dispatch.clone_span(&id));
                dispatch.exit(&id);
                let next = dispatch.current_span().into_inner();
                current = next.map(|(id, _)| id);
            }
            self.ids.set(ids);
            self.dispatch.set(Some(dispatch.clone()));
        });
    }

    /// Enters on this thread what [`take_off`](Self::take_off) has exited.
    ///
    /// # Panics
    ///
    /// If the subscriber does.
    pub(crate) fn put_back(&self) {
        let Some(dispatch) = self.dispatch.take() else {
            return;
        };
        let mut ids = self.ids.take();
        for id in ids.drain(..).rev() {
            dispatch.enter(&id);
            dispatch.try_close(id);
        }
        self.ids.set(ids); // its memory, for the next time
    }

    /// Exits all spans that are entered on this thread, for good: guards that were leaked.
    ///
    /// # Panics
    ///
    /// As [`take_off`](Self::take_off).
    pub(crate) fn discard(&self) {
        self.take_off();
        if let Some(dispatch) = self.dispatch.take() {
            for id in self.ids.take() {
                dispatch.try_close(id);
            }
        }
    }
}
