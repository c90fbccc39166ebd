//! Use from thread-local destructors at a thread's exit.

use crate::harness::{runtime, watch};
use std::cell::RefCell;
use std::sync::mpsc;
use std::time::Duration;

/// Something to do when the thread exits.
type Last = Box<dyn FnOnce()>;

struct AtExit(Option<Last>);

impl Drop for AtExit {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

thread_local!(static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(None)) });

/// Runs `last` in a thread-local destructor of a new thread, before or after
/// the runtime's own thread-local is gone; answers what it returned.
fn at_exit<T: Send + 'static>(
    first_registered: bool,
    last: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let hook = move || {
            AT_EXIT.with(|slot| {
                slot.borrow_mut().0 = Some(Box::new(move || {
                    let _ = send.send(last());
                }));
            });
        };
        // Destructors run in reverse order of registration.
        if first_registered {
            hook();
            let _ = sinew::current();
        } else {
            let _ = sinew::current();
            hook();
        }
    });
    // A hang of that thread is a failure of this test only.
    let answer = receive.recv_timeout(Duration::from_secs(20));
    let answer = answer.expect("the destructor hangs or panicked");
    thread.join().unwrap();
    answer
}

#[test]
fn a_thread_local_destructor_spawns_joins_and_sleeps() {
    let _watch = watch();
    for first in [false, true] {
        let value = at_exit(first, || {
            sinew::sleep(Duration::from_millis(1)).unwrap();
            sinew::yield_now();
            let fiber = sinew::spawn(|| {
                sinew::sleep(Duration::from_millis(1)).unwrap();
                3
            });
            fiber.join().unwrap() + sinew::run(|| 4) + runtime(1).run(|| 5)
        });
        assert_eq!(value, 12);
    }
}

#[test]
fn a_thread_local_destructor_parks_and_is_unparked() {
    let _watch = watch();
    for first in [false, true] {
        at_exit(first, || {
            let me = sinew::current();
            let waker = sinew::spawn(move || me.unpark());
            sinew::park();
            waker.join().unwrap();
        });
    }
}

#[test]
fn a_thread_local_destructor_waits_in_block_on() {
    let _watch = watch();
    for first in [false, true] {
        let value = at_exit(first, || {
            let fiber = sinew::spawn(|| {
                sinew::sleep(Duration::from_millis(2)).unwrap();
                6
            });
            sinew::block_on(fiber).unwrap()
        });
        assert_eq!(value, 6);
    }
}
