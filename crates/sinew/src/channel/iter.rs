//! The messages of a channel, one after the other.

use super::receiver::Receiver;
use std::fmt;
use std::iter::FusedIterator;

/// Made by [`Receiver::iter`].
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
    ended: bool,
}

impl<'a, T> Iter<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Self {
        Self {
            receiver,
            ended: false,
        }
    }
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        next_of(self.receiver, &mut self.ended)
    }
}

/// The next message, unless there was none before: a limit of time, say, because of which
/// it ended, may be gone.
#[track_caller]
fn next_of<T>(receiver: &Receiver<T>, ended: &mut bool) -> Option<T> {
    if *ended {
        return None;
    }
    let message = receiver.recv().ok();
    *ended = message.is_none();
    message
}

impl<T> FusedIterator for Iter<'_, T> {}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Iter { .. }")
    }
}

/// Made by [`Receiver::try_iter`].
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<'a, T> TryIter<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Self {
        Self { receiver }
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T> fmt::Debug for TryIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("TryIter { .. }")
    }
}

/// Made by turning a [`Receiver`] into an iterator.
pub struct IntoIter<T> {
    receiver: Receiver<T>,
    ended: bool,
}

impl<T> IntoIter<T> {
    pub(super) fn new(receiver: Receiver<T>) -> Self {
        Self {
            receiver,
            ended: false,
        }
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        next_of(&self.receiver, &mut self.ended)
    }
}

impl<T> FusedIterator for IntoIter<T> {}

impl<T> fmt::Debug for IntoIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("IntoIter { .. }")
    }
}
