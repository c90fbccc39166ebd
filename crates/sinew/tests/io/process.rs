//! Child processes.

use crate::harness::wait_until;
use crate::world::{everywhere, on_fibers};
use sinew::process::{Command, Stdio};
use sinew::{Cancelled, WaitReason};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

/// Whether there is such a process that has not been waited for.
fn exists(id: u32) -> bool {
    // SAFETY: no pointers; 0 sends nothing.
    unsafe { libc::kill(id as i32, 0) == 0 }
}

#[test]
fn the_status_says_how_the_child_ended() {
    everywhere(|| {
        assert!(Command::new("true").status().unwrap().success());
        assert_eq!(Command::new("false").status().unwrap().code(), Some(1));
        assert_eq!(shell("exit 7").status().unwrap().code(), Some(7));
        let killed = shell("kill -TERM $$").status().unwrap();
        assert_eq!(killed.signal(), Some(libc::SIGTERM));
    });
}

#[test]
fn the_output_has_both_streams() {
    everywhere(|| {
        let output = shell("echo out; echo err >&2; exit 3").output().unwrap();
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(output.stderr, b"err\n");
        assert_eq!(output.status.code(), Some(3));
    });
}

#[test]
fn a_child_cannot_get_stuck_on_either_output() {
    everywhere(|| {
        // Much more than a pipe holds, to the second stream first and by turns.
        let script = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; \
                      head -c 200000 /dev/zero >&2";
        let output = shell(script).output().unwrap();
        assert_eq!(
            (output.stdout.len(), output.stderr.len()),
            (300_000, 500_000)
        );
    });
}

#[test]
fn output_reads_nothing_and_leaves_the_defaults_alone() {
    everywhere(|| {
        let mut cat = Command::new("cat");
        assert_eq!(cat.output().unwrap().stdout, b""); // its input is empty
        let mut quiet = shell("echo out; echo err >&2");
        quiet.stdout(Stdio::null());
        let output = quiet.output().unwrap();
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b""[..], &b"err\n"[..])
        );
        let child = Command::new("true").spawn().unwrap();
        assert!(child.stdin.is_none() && child.stdout.is_none() && child.stderr.is_none());
        child.wait_with_output().unwrap();
    });
}

#[test]
fn bytes_go_through_a_child() {
    everywhere(|| {
        let mut cat = Command::new("/bin/cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = cat.stdin.take().unwrap();
        let sent: Vec<u8> = (0..500_000u32).map(|i| (i / 7) as u8).collect();
        let expected = sent.clone();
        let writer = sinew::spawn(move || stdin.write_all(&sent).unwrap());
        let mut received = Vec::new();
        let mut stdout = cat.stdout.take().unwrap();
        stdout.read_to_end(&mut received).unwrap();
        assert!(received == expected);
        writer.join().unwrap();
        assert!(cat.wait().unwrap().success());
        assert!(cat.wait().unwrap().success()); // the same again
        assert!(cat.try_wait().unwrap().unwrap().success());
    });
}

#[test]
fn waiting_closes_the_input_first() {
    everywhere(|| {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(cat.wait().unwrap().success());
        assert!(cat.stdin.is_none());
        let mut cat = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        cat.stdin.as_mut().unwrap().write_all(b"kept").unwrap();
        assert_eq!(cat.wait_with_output().unwrap().stdout, b"kept");
    });
}

#[test]
fn children_are_connected_by_pipes() {
    everywhere(|| {
        let mut first = shell("echo one; echo two")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It has been read from, so our end has `O_NONBLOCK`; the next child's has not.
        let mut stdout = first.stdout.take().unwrap();
        let mut four = [0; 4];
        stdout.read_exact(&mut four).unwrap();
        assert_eq!(&four, b"one\n");
        let second = Command::new("cat").stdin(stdout).output().unwrap();
        assert_eq!(second.stdout, b"two\n");
        assert!(second.status.success());
        assert!(first.wait().unwrap().success());
    });
}

#[test]
fn many_children_are_waited_for_at_once() {
    on_fibers(|| {
        let children: Vec<_> = (0..20)
            .map(|i| {
                sinew::spawn(move || {
                    shell(&format!("read x; exit {i}"))
                        .stdin(Stdio::piped())
                        .spawn()
                })
            })
            .map(|starting| starting.join().unwrap().unwrap())
            .collect();
        let waits: Vec<_> = children
            .into_iter()
            .map(|mut child| sinew::spawn(move || child.wait().unwrap().code()))
            .collect();
        for (i, wait) in waits.into_iter().enumerate() {
            assert_eq!(wait.join().unwrap(), Some(i as i32));
        }
    });
}

#[test]
fn a_killed_child_says_so() {
    everywhere(|| {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(!exists(child.id())); // no zombie
        child.kill().unwrap(); // too late, which is no error
    });
}

#[test]
fn a_wait_with_a_limit_leaves_the_child_alone() {
    everywhere(|| {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        let error = child.wait_timeout(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let error = child
            .wait_deadline(sinew::time::Instant::now())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(exists(child.id()));
        child.kill().unwrap();
        let status = child.wait_timeout(Duration::from_secs(100)).unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn a_cancelled_wait_leaves_the_child_running() {
    on_fibers(|| {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        let waits = sinew::spawn(move || (child.wait(), child));
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Process);
        waits.cancel();
        let (outcome, mut child) = waits.join().unwrap();
        assert!(Cancelled::is_in(&outcome.unwrap_err()));
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn a_cancelled_read_of_the_output_ends() {
    on_fibers(|| {
        let child = shell("exec sleep 3600")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let id = child.id();
        let waits = sinew::spawn(move || child.wait_with_output());
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Read);
        waits.cancel();
        assert!(Cancelled::is_in(&waits.join().unwrap().unwrap_err()));
        // Killed, and reaped when others are started.
        wait_until(|| {
            Command::new("true").status().unwrap();
            !exists(id)
        });
    });
}

#[test]
fn dropping_kills_only_if_that_was_said() {
    everywhere(|| {
        let child = Command::new("sleep").arg("3600").spawn().unwrap();
        let id = child.id();
        drop(child);
        assert!(exists(id));
        // SAFETY: our own child, not waited for, so the number is still its own.
        unsafe {
            libc::kill(id as i32, libc::SIGKILL);
            let mut status = 0;
            assert_eq!(libc::waitpid(id as i32, &mut status, 0), id as i32);
            assert_eq!(libc::WTERMSIG(status), libc::SIGKILL); // it was alive
        }
        let child = Command::new("sleep")
            .arg("3600")
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let id = child.id();
        drop(child);
        wait_until(|| {
            Command::new("true").status().unwrap();
            !exists(id)
        });
    });
}

#[test]
fn what_cannot_be_started_says_why() {
    everywhere(|| {
        let error = Command::new("/nowhere/at/all").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = Command::new("true")
            .current_dir("/nowhere")
            .status()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn arguments_environment_and_directory_reach_the_child() {
    everywhere(|| {
        let output = shell("echo $0 $1 $A $B; pwd")
            .args(["zero", "one"])
            .env_clear()
            .env("A", "a")
            .envs([("B", "b"), ("C", "c")])
            .env_remove("C")
            .current_dir("/")
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"zero one a b\n/\n");
        let output = Command::new("/bin/sh")
            .arg0("other")
            .args(["-c", "echo $0"])
            .output();
        assert_eq!(output.unwrap().stdout, b"other\n");
        let mut command = Command::new("true");
        command.arg("x").env("K", "v").current_dir("/");
        assert_eq!(command.get_program(), "true");
        assert!(command.get_args().eq(["x"]));
        assert_eq!(command.get_envs().count(), 1);
        assert_eq!(command.get_current_dir().unwrap().to_str(), Some("/"));
    });
}

#[test]
fn a_process_group_and_a_closure_before_exec_are_the_childs() {
    everywhere(|| {
        let mut leader = Command::new("sleep")
            .arg("3600")
            .process_group(0)
            .spawn()
            .unwrap();
        let id = leader.id() as i32;
        // SAFETY: no pointers; a group of our own child.
        unsafe {
            assert_eq!(libc::getpgid(id), id);
            libc::kill(-id, libc::SIGTERM);
        }
        assert_eq!(leader.wait().unwrap().signal(), Some(libc::SIGTERM));
        if cfg!(feature = "sanitizer") {
            return; // a fork may be refused: of so much shadow memory there is no second
        }
        let mut refused = Command::new("true");
        // SAFETY: it only makes an error of a number.
        unsafe { refused.pre_exec(|| Err(io::Error::from_raw_os_error(libc::EXDEV))) };
        let error = refused.spawn().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EXDEV));
    });
}

#[test]
fn exec_that_fails_comes_back() {
    everywhere(|| {
        let error = Command::new("/nowhere/at/all").exec();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_cancelled_fiber_starts_nothing() {
    on_fibers(|| {
        let started = sinew::spawn(|| {
            wait_until(sinew::is_cancelled);
            Command::new("true").spawn()
        });
        started.cancel();
        if let Ok(outcome) = started.join() {
            assert!(Cancelled::is_in(&outcome.unwrap_err()));
        }
    });
}

/// As with std's, whose fields can be moved out one by one.
#[test]
fn the_pipes_of_a_child_can_be_moved_out() {
    everywhere(|| {
        let child = Command::new("echo")
            .arg("hello")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut text = String::new();
        child.stdout.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello\n");
    });
}
