//! Sockets that outlive runtimes.

use super::{run_case, watch};
use crate::harness::wait_until;
use sinew::net::{TcpListener, UdpSocket};
use sinew::{IoDriver, Runtime};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

pub fn child(case: &str) -> bool {
    match case {
        "sockets outlive epoll" => sockets_outlive_runtimes(IoDriver::Epoll),
        "sockets outlive uring" => sockets_outlive_runtimes(IoDriver::Uring),
        "spares without descriptors" => spares_without_descriptors(),
        _ => return false,
    }
    true
}

/// Both workers are blocked by what only a third fiber ends, and no descriptor is free.
fn spares_without_descriptors() {
    let runtime = Runtime::builder().workers(2).spare_workers(2).build();
    let runtime = runtime.unwrap();
    // Each worker has opened its file in /proc.
    wait_until(|| {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let files = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        files.filter(|file| file.ends_with("stat")).count() == 2
    });
    let few = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    // SAFETY: a limit that is there while it is read.
    let refused = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) };
    assert_eq!(refused, 0);
    let taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    assert!(taken.len() < 64);
    let (wakes, waits) = std::sync::mpsc::channel();
    let waits = Arc::new(std::sync::Mutex::new(waits));
    let blocked = [(); 2].map(|()| {
        let waits = waits.clone();
        let spread = sinew::Builder::new().spread();
        let blocked = spread.spawn_on(&runtime.handle(), move || {
            waits.lock().unwrap().recv().unwrap();
        });
        blocked.unwrap()
    });
    // Each on a worker of its own.
    let begun = || {
        runtime
            .stats()
            .workers
            .iter()
            .filter(|w| w.blocked > Duration::ZERO)
            .count()
    };
    while begun() < 2 {
        std::thread::yield_now();
    }
    let third = runtime.spawn(move || blocked.iter().for_each(|_| wakes.send(()).unwrap()));
    third.join().unwrap();
    println!("{} stay taken, and it was served", taken.len());
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Each runtime waits for the same sockets, also by an alias of one, and ends.
fn sockets_outlive_runtimes(driver: IoDriver) {
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let theirs = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // Two of one descriptor: the second is watched by an alias.
    let both = Arc::new([theirs.as_fd(), theirs.as_fd()].map(|fd| {
        let fd = fd.try_clone_to_owned().unwrap();
        sinew::io::Async::new(fd).unwrap()
    }));
    let mut before = 0;
    for round in 0..100 {
        let builder = Runtime::builder().workers(1 + round % 2).io_driver(driver);
        let Ok(runtime) = builder.build() else {
            println!("skipped: no {driver:?}");
            return;
        };
        runtime.run(|| {
            sinew::scope(|s| {
                for _ in 0..2 {
                    let (socket, listener, both) = (&socket, &listener, &both);
                    s.spawn(move || {
                        let short = Duration::from_micros(100);
                        let waits = sinew::timeout(short, || socket.recv(&mut [0; 8]));
                        assert!(waits.is_err());
                        assert!(sinew::timeout(short, || listener.accept()).is_err());
                        for half in both.iter() {
                            assert!(sinew::timeout(short, || half.readable()).is_err());
                        }
                    });
                }
            });
        });
        drop(runtime);
        if round == 9 {
            before = open_descriptors();
        }
    }
    let after = open_descriptors();
    assert!(after <= before + 4, "{before}, then {after}");
    // They work on.
    let runtime = Runtime::builder()
        .workers(1)
        .io_driver(driver)
        .build()
        .unwrap();
    runtime.run(|| {
        let address = socket.local_addr().unwrap();
        theirs.send_to(b"hello", address).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(socket.recv(&mut buffer).unwrap(), 5);
    });
}

#[test]
fn a_socket_that_outlives_runtimes_keeps_nothing_of_them() {
    let _watch = watch();
    for case in ["sockets outlive epoll", "sockets outlive uring"] {
        run_case(case, &[]).succeeded();
    }
}

#[test]
fn a_spare_worker_starts_also_if_no_descriptor_is_free() {
    let _watch = watch();
    let ended = run_case("spares without descriptors", &[]);
    ended.says(&["it was served"]);
    assert!(ended.status.success());
}
