//! Spawning fibers, waiting for their results, and what a panic does.
//!
//! `cargo run -p sinew --example hello`

use sinew::{Builder, Priority};

fn main() {
    // `run` starts a runtime, runs the closure in its first fiber, and returns
    // once every fiber that is no daemon has ended. It may borrow.
    let names = ["Ada", "Barbara", "Grace"];
    let greetings = sinew::run(|| {
        let fibers: Vec<_> = names
            .iter()
            .map(|&name| sinew::spawn(move || format!("hello, {name}")))
            .collect();
        let greetings: Vec<String> = fibers
            .into_iter()
            .map(|fiber| fiber.join().expect("a greeting does not panic"))
            .collect();

        // A panic ends its own fiber; whoever joins it gets the payload.
        let clumsy = Builder::new()
            .name("clumsy")
            .priority(Priority::Low)
            .spawn(|| -> String { panic!("I stumbled") })
            .expect("settings in range");
        let error = clumsy.join().expect_err("it panicked");
        assert!(error.is_panic());
        println!("join said: {error}");

        greetings
    });
    for greeting in &greetings {
        println!("{greeting}");
    }
    assert_eq!(greetings, ["hello, Ada", "hello, Barbara", "hello, Grace"]);
}
