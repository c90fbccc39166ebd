//! Async code and fibers, each waiting for the other.
//!
//! `cargo run -p sinew --example async_bridge`

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A value that arrives later; any executor can wait for it.
#[derive(Clone, Default)]
struct Letter(Arc<Mutex<(Option<String>, Option<Waker>)>>);

impl Letter {
    fn deliver(&self, text: &str) {
        let waker = {
            let mut letter = self.0.lock().unwrap();
            letter.0 = Some(text.to_owned());
            letter.1.take()
        };
        if let Some(waker) = waker {
            waker.wake(); // after the lock: it makes a fiber runnable
        }
    }
}

impl Future for Letter {
    type Output = String;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<String> {
        let mut letter = self.0.lock().unwrap();
        match letter.0.take() {
            Some(text) => Poll::Ready(text),
            None => {
                letter.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn main() {
    sinew::run(|| {
        // A fiber waits for a future: only the fiber is parked.
        let letter = Letter::default();
        let reader = sinew::spawn({
            let letter = letter.clone();
            move || sinew::block_on(letter)
        });
        // It may be woken from any thread.
        let postman = std::thread::spawn(move || {
            sinew::sleep(Duration::from_millis(5)).expect("a plain thread is never cancelled");
            letter.deliver("from a plain thread");
        });
        let text = reader.join().expect("it does not panic");
        sinew::blocking(|| postman.join()).expect("it does not panic");
        println!("the fiber got a letter {text}");
        assert_eq!(text, "from a plain thread");

        // A task waits for fibers: a `JoinHandle` is a future.
        let total = sinew::block_on(async {
            let (left, right) = (sinew::spawn(|| 40), sinew::spawn(|| 2));
            left.await.expect("it does not panic") + right.await.expect("it does not panic")
        });
        println!("the task got {total} from two fibers");
        assert_eq!(total, 42);
    });
}
