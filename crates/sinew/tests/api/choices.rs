//! Choices by chance are others in each process: a program that meets a rare order once does
//! not meet it at each start, or never.

use crate::harness::child::this_program;
use crate::harness::watch;
use sinew::channel::{Select, bounded};
use std::process::Stdio;

const CASE: &str = "SINEW_TEST_CHOICES";
const BEGIN: &str = "choices: ";

/// So many that two processes make the same by chance once in 4 to the 128 (2 to the 256)
/// times.
const COUNT: usize = 128;

/// Which of four ready arms `select!` takes each time.
fn by_macro() -> String {
    let channels = [(); 4].map(|()| bounded(1));
    for (sender, _) in &channels {
        sender.send(()).unwrap();
    }
    let [(_, a), (_, b), (_, c), (_, d)] = &channels;
    let choices = (0..COUNT).map(|_| {
        let chosen = sinew::select! {
            recv(a) -> _ => 0,
            recv(b) -> _ => 1,
            recv(c) -> _ => 2,
            recv(d) -> _ => 3,
        };
        channels[chosen].0.send(()).unwrap();
        chosen.to_string()
    });
    choices.collect()
}

/// The same of a dynamic [`Select`].
fn by_select() -> String {
    let channels = [(); 4].map(|()| bounded::<()>(1));
    let mut select = Select::new();
    for (sender, _) in &channels {
        select.send(sender);
    }
    let choices = (0..COUNT).map(|_| {
        let operation = select.select();
        let chosen = operation.index();
        operation.send(&channels[chosen].0, ()).unwrap();
        channels[chosen].1.recv().unwrap();
        chosen.to_string()
    });
    choices.collect()
}

/// The entry of the child processes; nothing without the variable.
#[test]
fn child() {
    let Ok(place) = std::env::var(CASE) else {
        return;
    };
    let _watch = watch();
    let choose = || [by_macro(), by_select()];
    let [by_macro, by_select] = match place.as_str() {
        "thread" => choose(),
        "fiber" => crate::harness::runtime(1).run(choose),
        other => panic!("no such place: {other}"),
    };
    println!("\n{BEGIN}{by_macro} {by_select}");
}

/// What a new process chooses at this place, by the macro and by the dynamic select.
fn of_a_process(place: &str) -> [String; 2] {
    let child = this_program()
        .args(["--exact", "choices::child", "--nocapture"])
        .env(CASE, place)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let text = String::from_utf8(child.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(BEGIN));
    let (by_macro, by_select) = line.expect("it tells").split_once(' ').unwrap();
    [by_macro, by_select].map(|choices| {
        assert_eq!(choices.len(), COUNT);
        choices.to_owned()
    })
}

#[test]
fn two_processes_choose_other_arms_among_those_that_are_ready() {
    let _watch = watch();
    for place in ["thread", "fiber"] {
        let (one, two) = (of_a_process(place), of_a_process(place));
        for (one, two) in one.iter().zip(&two) {
            assert_ne!(one, two, "{place}");
        }
    }
}
