//! What the kernel allows, and what the program asks for.

use super::child::{driver_names, start};
use super::server::Server;
use crate::harness::watch;
use crate::world::{drivers, runtime};
use sinew::{IoDriver, Runtime};
use std::io::{ErrorKind, Read, Write};

/// Forbids io_uring to this thread and all that it starts, as containers do.
fn refuse_io_uring() {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the second takes a program, which is there; both only take rights away.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

fn serves(runtime: &Runtime) {
    let server = Server::start(runtime);
    let address = server.address();
    runtime.run(|| {
        let mut stream = sinew::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"still").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"still");
    });
    server.stop();
}

pub(super) fn refused_auto() {
    refuse_io_uring();
    for _ in 0..3 {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        assert_eq!(runtime.stats().driver, "epoll");
        serves(&runtime);
    }
}

pub(super) fn refused_uring() {
    refuse_io_uring();
    for builder in [
        Runtime::builder(), // by the variable
        Runtime::builder().io_driver(IoDriver::Uring),
    ] {
        let error = builder.build().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        let text = error.to_string();
        assert!(text.contains("uring") && text.contains("refuses"), "{text}");
    }
    // The program overrides the variable.
    let runtime = Runtime::builder().workers(1).io_driver(IoDriver::Epoll);
    serves(&runtime.build().unwrap());
}

pub(super) fn settings() {
    println!("{:?}", Runtime::new().map(|runtime| runtime.stats().driver));
}

#[test]
fn where_io_uring_is_refused_one_line_says_so_and_epoll_serves() {
    let _watch = watch();
    for variables in [&[][..], &[("SINEW_IO", "auto")][..]] {
        let ended = start("refused, auto", variables).end();
        let said = ended.succeeded().stderr.lines();
        let said: Vec<_> = said.filter(|line| line.starts_with("sinew: ")).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("io_uring") && said[0].contains("epoll"),
            "{said:?}"
        );
    }
}

#[test]
fn where_io_uring_is_refused_asking_for_it_is_an_error_that_says_why() {
    let _watch = watch();
    start("refused, uring", &[("SINEW_IO", "uring")])
        .end()
        .succeeded();
}

#[test]
fn the_variable_chooses_the_driver() {
    let _watch = watch();
    for driver in driver_names() {
        let ended = start("settings", &[("SINEW_IO", driver)]).end();
        let said = format!("Ok({driver:?})");
        assert!(ended.succeeded().stdout.contains(&said), "{}", ended.stdout);
    }
}

#[test]
fn an_unknown_driver_is_an_error_that_names_those_there_are() {
    let _watch = watch();
    for value in ["", "iocp", "io_uring", "EPOLL"] {
        let ended = start("settings", &[("SINEW_IO", value)]).end();
        let said = &ended.succeeded().stdout;
        for word in [
            "InvalidInput",
            &format!("SINEW_IO is '{value}'"),
            "'auto', 'uring' or 'epoll'",
        ] {
            assert!(said.contains(word), "no {word} in {said}");
        }
    }
}

#[test]
fn a_runtime_tells_its_driver() {
    let _watch = watch();
    for driver in drivers() {
        let name = runtime(driver, 1).stats().driver;
        assert_eq!(name, format!("{driver:?}").to_lowercase());
    }
}
