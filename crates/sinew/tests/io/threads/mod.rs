//! Plain threads: all of it works there too, by itself and together with fibers.

use crate::harness::{wait_until, watch};
use crate::tcp::{has_flag_nonblocking, listen, pair};
use crate::world::{drivers, runtime};
use sinew::WaitReason;
use sinew::net::{TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 512];
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return,
            count => stream.write_all(&buffer[..count]).unwrap(),
        }
    }
}

fn talk(mut stream: &TcpStream, rounds: u32) {
    for n in 0..rounds {
        stream.write_all(&n.to_le_bytes()).unwrap();
        let mut number = [0; 4];
        stream.read_exact(&mut number).unwrap();
        assert_eq!(u32::from_le_bytes(number), n);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

/// Reads to the end; how much that was.
fn count(mut stream: &TcpStream) -> usize {
    let mut all = 0;
    loop {
        match stream.read(&mut [0; 1]).unwrap() {
            0 => return all,
            more => all += more,
        }
    }
}

#[test]
fn threads_serve_and_ask_without_any_fiber() {
    let _watch = watch();
    let listener = listen();
    let address = listener.local_addr().unwrap();
    thread::scope(|s| {
        for _ in 0..4 {
            let listener = &listener;
            s.spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    echo(stream);
                }
            });
        }
        let clients: Vec<_> = (0..12)
            .map(|_| s.spawn(move || talk(&TcpStream::connect(address).unwrap(), 100)))
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        listener.close().unwrap();
    });
}

#[test]
fn threads_ask_and_fibers_serve_and_the_other_way_round() {
    for driver in drivers() {
        for workers in [1, 2] {
            let _watch = watch();
            let runtime = runtime(driver, workers);
            let listener = listen();
            let address = listener.local_addr().unwrap();
            let server = runtime.spawn(move || {
                for stream in listener.incoming().take(8) {
                    let stream = stream.unwrap();
                    drop(sinew::spawn(move || echo(stream)));
                }
            });
            thread::scope(|s| {
                for _ in 0..8 {
                    s.spawn(|| talk(&TcpStream::connect(address).unwrap(), 200));
                }
            });
            server.join().unwrap();

            let listener = listen();
            let address = listener.local_addr().unwrap();
            let clients: Vec<_> = (0..8)
                .map(|_| runtime.spawn(move || talk(&TcpStream::connect(address).unwrap(), 200)))
                .collect();
            thread::scope(|s| {
                for _ in 0..8 {
                    let (stream, _) = listener.accept().unwrap();
                    s.spawn(|| echo(stream));
                }
            });
            for client in clients {
                client.join().unwrap();
            }
        }
    }
}

#[test]
fn a_thread_and_a_fiber_share_one_socket() {
    for driver in drivers() {
        let _watch = watch();
        let runtime = runtime(driver, 1);
        let (client, server) = pair();
        let (client, server) = (std::sync::Arc::new(client), std::sync::Arc::new(server));
        // Both read; each byte goes to one of them.
        let theirs = server.clone();
        let fiber = runtime.spawn(move || count(&theirs));
        let theirs = server.clone();
        let thread = thread::spawn(move || count(&theirs));
        let theirs = client.clone();
        let writer =
            runtime.spawn(move || (0..1000).for_each(|_| (&*theirs).write_all(b"f").unwrap()));
        (0..1000).for_each(|_| (&*client).write_all(b"t").unwrap());
        writer.join().unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let read = fiber.join().unwrap() + thread.join().unwrap();
        assert_eq!(read, 2000);
    }
}

#[test]
fn a_thread_that_waits_leaves_the_descriptor_blocking() {
    let _watch = watch();
    let (client, server) = pair();
    let reader = thread::spawn(move || {
        assert_eq!((&server).read(&mut [0; 8]).unwrap(), 1);
        assert!(!has_flag_nonblocking(&server));
    });
    (&client).write_all(b"x").unwrap();
    reader.join().unwrap();
    assert!(!has_flag_nonblocking(&client));
}

#[test]
fn a_socket_is_dropped_elsewhere_than_it_was_watched() {
    for driver in drivers() {
        let _watch = watch();
        let runtime = runtime(driver, 2);
        for round in 0..200 {
            let (client, server) = pair();
            let server = runtime.spawn(move || {
                let reader = sinew::spawn(move || {
                    assert_eq!((&server).read(&mut [0; 8]).unwrap(), 1);
                    server
                });
                wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
                (&client).write_all(b"x").unwrap();
                (client, reader.join().unwrap())
            });
            let (client, server) = server.join().unwrap();
            match round % 3 {
                // This thread is none of the runtime's.
                0 => drop(server),
                1 => runtime.spawn(move || drop(server)).join().unwrap(),
                _ => sinew::run(move || drop(server)),
            }
            assert_eq!((&client).read(&mut [0; 8]).unwrap(), 0);
        }
    }
}

#[test]
fn a_descriptor_number_that_comes_back_is_a_new_socket() {
    // What is known of the old one must not be told to the new one.
    for driver in drivers() {
        let _watch = watch();
        runtime(driver, 2).run(|| {
            for n in 0..500u32 {
                let (client, server) = pair();
                let reader = sinew::spawn(move || {
                    let mut number = [0; 4];
                    (&server).read_exact(&mut number).unwrap();
                    u32::from_le_bytes(number)
                });
                if n % 2 == 0 {
                    wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
                }
                (&client).write_all(&n.to_le_bytes()).unwrap();
                assert_eq!(reader.join().unwrap(), n);
            }
        });
    }
}

#[test]
fn two_runtimes_and_a_thread_pass_one_connection_on() {
    let all = drivers();
    let _watch = watch();
    let one = runtime(all[0], 1);
    let two = runtime(all[all.len() - 1], 1);
    let (client, server) = pair();
    let mut server = Some(server);
    for n in 0..60u8 {
        let stream = server.take().unwrap();
        let read = move || {
            let mut byte = [0];
            (&stream).read_exact(&mut byte).unwrap();
            (stream, byte[0])
        };
        let reader = match n % 3 {
            0 => Some(one.spawn(read)),
            1 => Some(two.spawn(read)),
            _ => {
                (&client).write_all(&[n]).unwrap();
                let (stream, byte) = read();
                assert_eq!(byte, n);
                server = Some(stream);
                None
            }
        };
        if let Some(reader) = reader {
            wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
            (&client).write_all(&[n]).unwrap();
            let (stream, byte) = reader.join().unwrap();
            assert_eq!(byte, n);
            server = Some(stream);
        }
    }
}

#[test]
fn fibers_of_both_drivers_and_a_thread_read_one_socket_at_once() {
    let all = drivers();
    let _watch = watch();
    let one = runtime(all[0], 1);
    let two = runtime(all[all.len() - 1], 1);
    let (client, server) = pair();
    let server = std::sync::Arc::new(server);
    for round in 0..300 {
        let read = || {
            let server = server.clone();
            move || (&*server).read(&mut [0; 1])
        };
        let readers = [one.spawn(read()), two.spawn(read()), two.spawn(read())];
        let thread = thread::spawn(read());
        wait_until(|| {
            readers
                .iter()
                .all(|reader| reader.fiber().wait_reason() == WaitReason::Read)
        });
        // One at a time, so that what wakes all of them is for one alone.
        for _ in 0..4 {
            (&client).write_all(b"x").unwrap();
        }
        for reader in readers {
            let count = reader.join().unwrap();
            assert_eq!(count.unwrap(), 1, "round {round}");
        }
        assert_eq!(thread.join().unwrap().unwrap(), 1);
    }
}

#[test]
fn a_listener_moves_between_fibers_and_threads() {
    for driver in drivers() {
        let _watch = watch();
        let runtime = runtime(driver, 2);
        let mut listener: TcpListener = listen();
        let address = listener.local_addr().unwrap();
        for n in 0..30 {
            let client = TcpStream::connect(address).unwrap();
            let accept = move || {
                let (_, from) = listener.accept().unwrap();
                (listener, from)
            };
            let from;
            (listener, from) = match n % 3 {
                0 => runtime.spawn(accept).join().unwrap(),
                1 => thread::spawn(accept).join().unwrap(),
                _ => accept(),
            };
            assert_eq!(from, client.local_addr().unwrap());
        }
    }
}
