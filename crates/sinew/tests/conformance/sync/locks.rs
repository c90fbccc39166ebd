//! Locks, as operations that may wait: a thread holds them until released.

use super::operations::{Answer, BoxFuture, How, Operation, cancelled, timed_out};
use sinew::sync::{FairMutex, Mutex, RwLock};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// A lock, whichever.
pub trait Lock: Send + Sync + 'static {
    fn get(&self, how: How) -> Answer;
    fn get_async(self: Arc<Self>) -> BoxFuture;
    /// Holds it against all others while `inside` runs.
    fn hold(&self, inside: impl FnOnce());
}

/// A lock that a thread holds until it is released.
pub struct Held<L> {
    lock: Arc<L>,
    holder: std::sync::Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

impl<L: Lock> Held<L> {
    pub fn make(lock: fn() -> Arc<L>) -> Arc<dyn Operation> {
        let lock = lock();
        let (go, gone) = mpsc::channel();
        let (tell, inside) = mpsc::channel();
        let theirs = lock.clone();
        let thread = std::thread::spawn(move || {
            theirs.hold(|| {
                tell.send(()).unwrap();
                let _ = gone.recv();
            });
        });
        inside.recv().unwrap();
        let holder = std::sync::Mutex::new(Some((go, thread)));
        Arc::new(Self { lock, holder })
    }
}

impl<L: Lock> Operation for Held<L> {
    fn wait(&self, how: How) -> Answer {
        self.lock.get(how)
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        self.lock.clone().get_async()
    }

    fn release(&self) {
        let (go, thread) = self.holder.lock().unwrap().take().unwrap();
        go.send(()).unwrap();
        thread.join().unwrap();
    }
}

impl Lock for Mutex<()> {
    fn get(&self, how: How) -> Answer {
        match how {
            How::Plain => drop(self.lock()),
            How::For(time) => drop(self.lock_timeout(time).map_err(timed_out)?),
            How::OrCancelled => drop(self.lock_or_cancelled().map_err(cancelled)?),
        }
        Ok(())
    }

    fn get_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { drop(self.lock_async().await) })
    }

    fn hold(&self, inside: impl FnOnce()) {
        let _guard = self.lock();
        inside();
    }
}

impl Lock for FairMutex<()> {
    fn get(&self, how: How) -> Answer {
        match how {
            How::Plain => drop(self.lock()),
            How::For(time) => drop(self.lock_timeout(time).map_err(timed_out)?),
            How::OrCancelled => drop(self.lock_or_cancelled().map_err(cancelled)?),
        }
        Ok(())
    }

    fn get_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { drop(self.lock_async().await) })
    }

    fn hold(&self, inside: impl FnOnce()) {
        let _guard = self.lock();
        inside();
    }
}

/// The two-step lock.
#[derive(Default)]
pub struct Ticketed(FairMutex<()>);

impl Lock for Ticketed {
    fn get(&self, how: How) -> Answer {
        let ticket = self.0.ticket();
        match how {
            How::Plain => drop(ticket.lock()),
            How::For(time) => drop(ticket.lock_timeout(time).map_err(timed_out)?),
            How::OrCancelled => drop(ticket.lock_or_cancelled().map_err(cancelled)?),
        }
        Ok(())
    }

    fn get_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { drop(self.0.ticket().lock_async().await) })
    }

    fn hold(&self, inside: impl FnOnce()) {
        let _guard = self.0.ticket().lock();
        inside();
    }
}

/// A writer among readers.
#[derive(Default)]
pub struct Writing(RwLock<()>);

impl Lock for Writing {
    fn get(&self, how: How) -> Answer {
        match how {
            How::Plain => drop(self.0.write()),
            How::For(time) => drop(self.0.write_timeout(time).map_err(timed_out)?),
            How::OrCancelled => drop(self.0.write_or_cancelled().map_err(cancelled)?),
        }
        Ok(())
    }

    fn get_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { drop(self.0.write_async().await) })
    }

    fn hold(&self, inside: impl FnOnce()) {
        let _guards = (self.0.read(), self.0.read());
        inside();
    }
}

/// A reader behind a writer.
#[derive(Default)]
pub struct Reading(RwLock<()>);

impl Lock for Reading {
    fn get(&self, how: How) -> Answer {
        match how {
            How::Plain => drop(self.0.read()),
            How::For(time) => drop(self.0.read_timeout(time).map_err(timed_out)?),
            How::OrCancelled => drop(self.0.read_or_cancelled().map_err(cancelled)?),
        }
        Ok(())
    }

    fn get_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { drop(self.0.read_async().await) })
    }

    fn hold(&self, inside: impl FnOnce()) {
        let _guard = self.0.write();
        inside();
    }
}
