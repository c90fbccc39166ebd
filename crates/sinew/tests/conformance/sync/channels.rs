//! Sending and receiving, as operations that may wait.

use super::operations::{Answer, BoxFuture, Early, How, Operation};
use sinew::channel::{
    Receiver, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender, bounded, unbounded,
};
use std::sync::{Arc, Mutex};

/// Receives from a channel that is empty until it is released.
pub struct Receiving {
    sender: Mutex<Option<Sender<u32>>>,
    receiver: Receiver<u32>,
    release: Release,
}

/// What ends the wait for a message.
#[derive(Clone, Copy)]
pub enum Release {
    Message,
    Disconnection,
}

impl Receiving {
    /// From a channel of that capacity, or none.
    pub fn make(capacity: Option<usize>, release: Release) -> Arc<dyn Operation> {
        let (sender, receiver) = capacity.map_or_else(unbounded, bounded);
        Arc::new(Self {
            sender: Mutex::new(Some(sender)),
            receiver,
            release,
        })
    }

    /// The message, or the end, whichever it was released by.
    fn check(&self, answer: Result<u32, RecvError>) -> Answer {
        match (answer, self.release) {
            (Ok(5), Release::Message) => Ok(()),
            (Err(RecvError::Disconnected), Release::Disconnection) => Ok(()),
            (Err(RecvError::Cancelled), _) => Err(Early::Cancelled),
            (other, _) => panic!("{other:?}"),
        }
    }
}

impl Operation for Receiving {
    fn wait(&self, how: How) -> Answer {
        let How::For(time) = how else {
            return self.check(self.receiver.recv());
        };
        self.check(match self.receiver.recv_timeout(time) {
            Ok(message) => Ok(message),
            Err(RecvTimeoutError::Timeout) => return Err(Early::Timeout),
            Err(RecvTimeoutError::Disconnected) => Err(RecvError::Disconnected),
            Err(RecvTimeoutError::Cancelled) => Err(RecvError::Cancelled),
            Err(other) => panic!("{other:?}"),
        })
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move {
            let answer = self.receiver.recv_async().await;
            assert_eq!(self.check(answer), Ok(()));
        })
    }

    fn release(&self) {
        let sender = self.sender.lock().unwrap();
        match self.release {
            Release::Disconnection => drop({ sender }.take()),
            Release::Message => {
                let sender = sender.clone().unwrap();
                if sender.capacity() == Some(0) {
                    // It waits until somebody takes it.
                    std::thread::spawn(move || sender.send(5).unwrap());
                } else {
                    sender.send(5).unwrap();
                }
            }
        }
    }
}

/// Sends into a channel that is full until it is released.
pub struct Sending {
    sender: Sender<u32>,
    receiver: Receiver<u32>,
}

impl Sending {
    /// Into a channel of that capacity.
    pub fn make(capacity: usize) -> Arc<dyn Operation> {
        let (sender, receiver) = bounded(capacity);
        for _ in 0..capacity {
            sender.send(1).unwrap();
        }
        Arc::new(Self { sender, receiver })
    }
}

impl Operation for Sending {
    fn wait(&self, how: How) -> Answer {
        if let How::For(time) = how {
            return self.sender.send_timeout(2, time).map_err(|e| match e {
                SendTimeoutError::Timeout(2) => Early::Timeout,
                SendTimeoutError::Cancelled(2) => Early::Cancelled,
                other => panic!("{other:?}"),
            });
        }
        self.sender.send(2).map_err(|e| match e {
            SendError::Cancelled(2) => Early::Cancelled,
            other => panic!("{other:?}"),
        })
    }

    fn wait_async(self: Arc<Self>) -> BoxFuture {
        Box::pin(async move { self.sender.send_async(2).await.unwrap() })
    }

    fn release(&self) {
        let receiver = self.receiver.clone();
        if receiver.capacity() == Some(0) {
            // It waits until somebody sends.
            std::thread::spawn(move || assert_eq!(receiver.recv(), Ok(2)));
        } else {
            receiver.recv().unwrap();
        }
    }
}
