//! Standard streams: of this very program, started again as a child.

use crate::harness::child::this_program;
use crate::harness::wait_until;
use crate::world::{drivers, everywhere, runtime};
use sinew::io::{Async, stderr, stdin, stdout};
use sinew::process::{Child, Command, Stdio};
use sinew::{Cancelled, IoDriver, WaitReason};
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::FromRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Says to a test that it is the child, and what to do.
const ROLE: &str = "SINEW_TEST_STDIO";
/// Before and after what the child prints: libtest prints, too.
const BEGIN: &str = "<<<";
const END: &str = ">>>";

/// This program as a child that plays a part.
fn child(part: &str) -> Command {
    let mut command = Command::from(this_program());
    command
        .args([
            "--exact",
            "stdio::the_child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, part)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What the child has printed between the marks.
fn printed(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let from = text
        .find(BEGIN)
        .unwrap_or_else(|| panic!("no mark in {text}"));
    let to = text
        .rfind(END)
        .unwrap_or_else(|| panic!("no mark in {text}"));
    text[from + BEGIN.len()..to].to_owned()
}

fn feed(child: &mut Child, bytes: &[u8]) {
    child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
}

/// Does nothing in the parent.
#[test]
fn the_child() {
    let Ok(part) = std::env::var(ROLE) else {
        return;
    };
    let (part, place) = part.split_once('@').unwrap();
    let play = || match part {
        "lines" => lines(),
        "bytes" => bytes(),
        "cancel" => cancel(),
        "many" => many(),
        "locked" => locked(),
        "rest" => rest(),
        "busy" => busy(),
        "refused" => refused(),
        _ => panic!("no such part"),
    };
    match place {
        "epoll" => runtime(IoDriver::Epoll, 1).run(play),
        "uring" => runtime(IoDriver::Uring, 1).run(play),
        "thread" => play(),
        _ => panic!("no such place"),
    }
}

/// Where a part is played.
fn places() -> Vec<String> {
    let name = |driver: IoDriver| match driver {
        IoDriver::Epoll => "epoll".to_owned(),
        _ => "uring".to_owned(),
    };
    drivers()
        .into_iter()
        .map(name)
        .chain(["thread".to_owned()])
        .collect()
}

fn lines() {
    write!(stdout(), "{BEGIN}").unwrap();
    let mut first = String::new();
    assert_eq!(stdin().read_line(&mut first).unwrap(), 6);
    write!(stdout(), "[{}]", first.trim_end()).unwrap();
    for line in stdin().lines() {
        match line {
            Ok(line) => write!(stdout(), "[{line}]").unwrap(),
            Err(error) => write!(stdout(), "[{:?}]", error.kind()).unwrap(),
        }
    }
    writeln!(stdout(), "{END}").unwrap();
}

#[test]
fn lines_are_read_as_they_come() {
    let _watch = crate::harness::watch();
    for place in places() {
        let mut child = child(&format!("lines@{place}")).spawn().unwrap();
        feed(&mut child, b"first\nsec");
        feed(&mut child, b"ond\r\n\n\xff\xfe\nlast");
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            printed(&output.stdout),
            "[first][second][][InvalidData][last]"
        );
        assert!(output.status.success(), "{place}");
    }
}

fn locked() {
    let mut input = stdin().lock();
    let (mut first, mut part) = (String::new(), Vec::new());
    assert_eq!(input.read_line(&mut first).unwrap(), 6);
    assert_eq!(input.read_until(b';', &mut part).unwrap(), 5);
    let rest: Vec<_> = input.lines().map(Result::unwrap).collect();
    writeln!(stderr().lock(), "whatever").unwrap();
    writeln!(stdout(), "{BEGIN}{first}{part:?}").unwrap();
    // What one writes while it has the lock stands together, also while it waits.
    let fibers: Vec<_> = (0..4)
        .map(|fiber| {
            sinew::spawn(move || {
                let mut output = stdout().lock();
                for i in 0..3 {
                    writeln!(output, "{fiber} {i} {}", "-".repeat(30_000)).unwrap();
                    sinew::yield_now();
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    writeln!(stdout(), "{rest:?}{END}").unwrap();
}

#[test]
fn a_lock_keeps_others_away() {
    let _watch = crate::harness::watch();
    for place in places() {
        let mut child = child(&format!("locked@{place}")).spawn().unwrap();
        feed(&mut child, b"first\nsome;one\r\ntwo");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{place}");
        let text = printed(&output.stdout);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("first"));
        assert_eq!(lines.next(), Some("[115, 111, 109, 101, 59]"));
        let mut fibers: Vec<String> = Vec::new();
        for _ in 0..4 {
            for i in 0..3 {
                let line = lines.next().unwrap();
                let (fiber, rest) = line.split_once(' ').unwrap();
                assert!(rest.starts_with(&format!("{i} ---")), "{line:.20}");
                if i == 0 {
                    fibers.push(fiber.to_owned());
                }
                assert_eq!(fibers.last().unwrap(), fiber);
            }
        }
        fibers.sort();
        assert_eq!(fibers, ["0", "1", "2", "3"]);
        assert_eq!(lines.next(), Some(r#"["one", "two"]"#));
        assert!(String::from_utf8_lossy(&output.stderr).contains("whatever"));
    }
}

/// Both sides of a new terminal: the one that a person sits at, and the program's.
fn terminal() -> (File, File) {
    // SAFETY: room for the two descriptors, which are new and ours; no name, no settings.
    unsafe {
        let (mut person, mut program) = (0, 0);
        let (name, settings, size) = (ptr::null_mut(), ptr::null(), ptr::null());
        assert_eq!(
            libc::openpty(&mut person, &mut program, name, settings, size),
            0
        );
        (File::from_raw_fd(person), File::from_raw_fd(program))
    }
}

#[test]
fn a_terminal_is_read_and_written() {
    let _watch = crate::harness::watch();
    for place in places() {
        let (mut person, program) = terminal();
        // It echoes these at once, so before what the child prints. The last is Ctrl-D.
        person.write_all(b"first\nsecond\n\x04").unwrap();
        let mut child = child(&format!("lines@{place}"))
            .stdin(program.try_clone().unwrap())
            .stdout(program)
            .spawn()
            .unwrap();
        let mut person = Async::new(person).unwrap();
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains(END) {
            let mut bytes = [0; 100];
            let count = person.read(&mut bytes).unwrap();
            text.extend_from_slice(&bytes[..count]);
        }
        assert_eq!(printed(&text), "[first][second]", "{place}");
        drop(person);
        child.wait().unwrap();
    }
}

fn bytes() {
    let mut all = Vec::new();
    let mut small = [0; 3];
    stdin().read_exact(&mut small).unwrap();
    stdin().read_to_end(&mut all).unwrap();
    let sum: u64 = all.iter().map(|byte| u64::from(*byte)).sum();
    writeln!(stdout(), "{BEGIN}{small:?} {} {sum}{END}", all.len()).unwrap();
}

#[test]
fn pipes_and_files_are_read_to_their_end() {
    let _watch = crate::harness::watch();
    let sent: Vec<u8> = (0..200_003u32).map(|i| i as u8).collect();
    let sum: u64 = sent[3..].iter().map(|byte| u64::from(*byte)).sum();
    let path = std::env::temp_dir().join(format!("sinew-stdio-{}", std::process::id()));
    std::fs::write(&path, &sent).unwrap();
    for place in places() {
        let part = format!("bytes@{place}");
        let mut piped = child(&part).spawn().unwrap();
        feed(&mut piped, &sent);
        let file = child(&part)
            .stdin(std::fs::File::open(&path).unwrap())
            .spawn();
        for child in [piped, file.unwrap()] {
            let output = child.wait_with_output().unwrap();
            assert_eq!(
                printed(&output.stdout),
                format!("[0, 1, 2] 200000 {sum}"),
                "{place}"
            );
        }
    }
    std::fs::remove_file(&path).unwrap();
}

fn cancel() {
    writeln!(stdout(), "ready").unwrap();
    let reader = sinew::spawn(|| stdin().read_line(&mut String::new()));
    // A first half is there, and waits for the second.
    wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
    reader.cancel();
    let error = reader.join().unwrap().unwrap_err();
    assert!(Cancelled::is_in(&error));
    writeln!(stdout(), "cancelled").unwrap();
    let mut whole = String::new();
    stdin().read_line(&mut whole).unwrap();
    writeln!(stdout(), "{BEGIN}{}{END}", whole.trim_end()).unwrap();
}

#[test]
fn a_cancelled_read_loses_nothing() {
    let _watch = crate::harness::watch();
    for place in places().into_iter().filter(|place| place != "thread") {
        let mut child = child(&format!("cancel@{place}")).spawn().unwrap();
        feed(&mut child, b"first ");
        let mut stdout = child.stdout.take().unwrap();
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains("cancelled") {
            let mut bytes = [0; 100];
            let count = stdout.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{place}: {}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&bytes[..count]);
        }
        feed(&mut child, b"second\n");
        stdout.read_to_end(&mut text).unwrap();
        assert_eq!(printed(&text), "first second", "{place}");
        assert!(child.wait().unwrap().success());
    }
}

fn refused() {
    let mut input = stdin().lock();
    // There is nothing, and this may not wait for it.
    let refused = || sinew::no_suspend(|| input.read_line(&mut String::new()));
    assert!(catch_unwind(AssertUnwindSafe(refused)).is_err());
    writeln!(stdout(), "refused").unwrap();
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    writeln!(stdout(), "{BEGIN}{:?}{END}", line.trim_end()).unwrap();
}

#[test]
fn a_read_that_was_refused_leaves_nothing() {
    let _watch = crate::harness::watch();
    for place in places().into_iter().filter(|place| place != "thread") {
        let mut child = child(&format!("refused@{place}")).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains("refused\n") {
            let mut bytes = [0; 100];
            let count = stdout.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{place}: {}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&bytes[..count]);
        }
        feed(&mut child, b"a line\n");
        stdout.read_to_end(&mut text).unwrap();
        assert_eq!(printed(&text), r#""a line""#, "{place}");
        assert!(child.wait().unwrap().success());
    }
}

fn busy() {
    // A worker that waited for input could not run this.
    let reader = sinew::spawn(|| stdin().read_line(&mut String::new()).unwrap());
    let mut rounds = 0;
    wait_until(|| {
        rounds += 1;
        reader.fiber().wait_reason() == WaitReason::Read && rounds > 100
    });
    writeln!(stdout(), "{BEGIN}others ran{END}").unwrap();
    assert_eq!(reader.join().unwrap(), 0);
}

#[test]
fn a_read_keeps_no_worker() {
    let _watch = crate::harness::watch();
    for place in places() {
        let mut child = child(&format!("busy@{place}")).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains(END) {
            let mut bytes = [0; 100];
            let count = stdout.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{place}: {}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&bytes[..count]);
        }
        drop(child.stdin.take()); // only now the input ends
        let _rest = io::copy(&mut stdout, &mut io::sink()).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

fn many() {
    writeln!(stdout(), "{BEGIN}").unwrap();
    let fibers: Vec<_> = (0..8)
        .map(|fiber| {
            sinew::spawn(move || {
                for i in 0..200 {
                    writeln!(stdout(), "{fiber} {} {i}", "-".repeat(200)).unwrap();
                    writeln!(stderr(), "{fiber} {} {i}", "+".repeat(50)).unwrap();
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    write!(stdout(), "{END}").unwrap();
    stdout().flush().unwrap();
}

#[test]
fn lines_of_several_fibers_are_whole() {
    let _watch = crate::harness::watch();
    for place in places() {
        // More than a pipe holds, so that writes have to wait.
        let output = child(&format!("many@{place}")).output().unwrap();
        let text = printed(&output.stdout);
        for fiber in 0..8 {
            let begin = format!("{fiber} ");
            let mine = text.lines().filter(|line| line.starts_with(&begin));
            let expected = (0..200).map(|i| format!("{fiber} {} {i}", "-".repeat(200)));
            assert!(mine.eq(expected), "{place}");
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            errors.lines().filter(|line| line.contains("+++")).count(),
            1600
        );
        assert!(output.status.success());
    }
}

fn rest() {
    write!(stdout(), "{BEGIN}not flushed{END}").unwrap();
}

#[test]
fn the_rest_is_written_when_the_process_ends() {
    let _watch = crate::harness::watch();
    for place in places() {
        let output = child(&format!("rest@{place}")).output().unwrap();
        assert_eq!(printed(&output.stdout), "not flushed", "{place}");
    }
}

#[test]
fn writing_to_ones_own_streams_works_everywhere() {
    everywhere(|| {
        write!(stderr(), "").unwrap();
        stderr().flush().unwrap();
        stdout().flush().unwrap();
    });
}
