//! Futures polled by hand: the test decides what happens between two polls.

#![allow(dead_code)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often it was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future of which every poll is a line of the test.
pub struct ByHand<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    wakes: Arc<Wakes>,
}

impl<'a, T> ByHand<'a, T> {
    /// Not polled yet.
    pub fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self {
            future: Box::pin(future),
            wakes: Arc::default(),
        }
    }

    /// Polled once, and pending: it waits.
    #[track_caller]
    pub fn waiting(future: impl Future<Output = T> + Send + 'a) -> Self {
        let mut this = Self::new(future);
        assert!(this.poll().is_none(), "it is ready, and should wait");
        this
    }

    /// What it resolved to, if it did.
    pub fn poll(&mut self) -> Option<T> {
        let waker = Waker::from(self.wakes.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// Polls it with a waker that nobody has seen before; the wakes of the
    /// former one do not count.
    pub fn poll_elsewhere(&mut self) -> Option<T> {
        self.wakes = Arc::default();
        self.poll()
    }

    /// Whether its latest waker was woken.
    pub fn is_woken(&self) -> bool {
        self.wakes.0.load(Ordering::SeqCst) > 0
    }

    /// What it resolved to, now that it was woken.
    #[track_caller]
    pub fn woken(mut self) -> T {
        assert!(self.is_woken(), "nobody woke it");
        self.poll().expect("woken, and still not ready")
    }
}
