//! `futures-io` on sockets.

use super::{sockets, under_each_executor};
use crate::world::{everywhere, on_fibers};
use futures_util::future::{join, select};
use futures_util::{AsyncReadExt, AsyncWriteExt};
use sinew::interop::{AsyncIo, AsyncListener};
use sinew::net::{TcpListener, TcpStream, UnixStream};
use std::future::{Future, poll_fn};
use std::io::{IoSlice, Read, Write};
use std::pin::{Pin, pin};
use std::task::Poll;

#[test]
fn what_is_written_is_read_under_each_executor() {
    under_each_executor(|| {
        Box::pin(async {
            let (client, server) = sockets();
            let (mut client, mut server) =
                (AsyncIo::new(client).unwrap(), AsyncIo::new(server).unwrap());
            let asks = async {
                for round in 0..100u8 {
                    client.write_all(&[round; 100]).await.unwrap();
                    let mut answer = [0; 100];
                    client.read_exact(&mut answer).await.unwrap();
                    assert_eq!(answer, [round; 100]);
                }
                client.close().await.unwrap();
                assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
            };
            let answers = async {
                let mut buffer = [0; 1000];
                loop {
                    let count = server.read(&mut buffer).await.unwrap();
                    if count == 0 {
                        break;
                    }
                    server.write_all(&buffer[..count]).await.unwrap();
                }
                server.close().await.unwrap();
            };
            join(asks, answers).await;
        })
    });
}

#[test]
fn tasks_wait_for_room_and_for_bytes() {
    under_each_executor(|| {
        Box::pin(async {
            let (client, server) = sockets();
            let (mut client, mut server) =
                (AsyncIo::new(client).unwrap(), AsyncIo::new(server).unwrap());
            let sent: Vec<u8> = (0..251).collect::<Vec<_>>().repeat(32_000);
            let writes = async {
                // In two parts each, by one call.
                let mut rest = &sent[..];
                while !rest.is_empty() {
                    let (one, other) = rest.split_at(rest.len() / 2);
                    let parts = [IoSlice::new(one), IoSlice::new(other)];
                    let count = client.write_vectored(&parts).await.unwrap();
                    rest = &rest[count..];
                }
                client.close().await.unwrap();
            };
            let mut got = Vec::new();
            let reads = async { server.read_to_end(&mut got).await.unwrap() };
            join(writes, reads).await;
            assert!(got == sent);
        })
    });
}

#[test]
fn unix_sockets_work_as_well() {
    under_each_executor(|| {
        Box::pin(async {
            let (one, other) = UnixStream::pair().unwrap();
            let (mut one, mut other) = (AsyncIo::new(one).unwrap(), AsyncIo::new(other).unwrap());
            let mut text = [0; 5];
            let reads = async { other.read_exact(&mut text).await.unwrap() };
            let writes = async { one.write_all(b"hello").await.unwrap() };
            join(reads, writes).await;
            assert_eq!(&text, b"hello");
        })
    });
}

#[test]
fn a_listener_is_awaited_under_each_executor() {
    under_each_executor(|| {
        Box::pin(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let listener = AsyncListener::new(listener).unwrap();
            let mut first = pin!(listener.accept());
            // Nobody came yet: it waits.
            let pending = poll_fn(|context| Poll::Ready(first.as_mut().poll(context).is_pending()));
            assert!(pending.await);
            let client = std::thread::spawn(move || std::net::TcpStream::connect(address).unwrap());
            let accepted = first.await.unwrap();
            let client = client.join().unwrap();
            assert_eq!(accepted.peer_addr().unwrap(), client.local_addr().unwrap());
        })
    });
}

#[test]
fn a_socket_goes_from_fibers_to_tasks_and_back() {
    everywhere(|| {
        let (mut client, server) = sockets();
        client.write_all(b"one").unwrap();
        let mut server = AsyncIo::new(server).unwrap();
        let mut text = [0; 3];
        sinew::block_on(server.read_exact(&mut text)).unwrap();
        assert_eq!(&text, b"one");
        let mut server: TcpStream = server.into_inner();
        client.write_all(b"two").unwrap();
        server.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"two");
    });
}

#[test]
fn one_socket_is_polled_here_and_there() {
    on_fibers(|| {
        let (client, server) = sockets();
        let (mut client, mut server) =
            (AsyncIo::new(client).unwrap(), AsyncIo::new(server).unwrap());
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        for round in 0..20u8 {
            // A read that waits here first, goes on there.
            let mut byte = [0];
            let mut read = pin!(server.read(&mut byte));
            let waits = poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_pending()));
            assert!(sinew::block_on(waits));
            sinew::block_on(client.write_all(&[round])).unwrap();
            assert_eq!(sinew::block_on(read).unwrap(), 1);
            assert_eq!(byte, [round]);
            server = tokio.block_on(async {
                let task = tokio.spawn(async move {
                    server.write_all(&[round]).await.unwrap();
                    server
                });
                task.await.unwrap()
            });
            let mut answer = [0];
            sinew::block_on(client.read_exact(&mut answer)).unwrap();
            assert_eq!(answer, [round]);
        }
        sinew::blocking(|| drop(tokio));
    });
}

#[test]
fn a_read_that_is_dropped_takes_nothing() {
    under_each_executor(|| {
        Box::pin(async {
            let (mut client, server) = sockets();
            let mut server = AsyncIo::new(server).unwrap();
            for round in 0..10u8 {
                let mut lost = [0; 10];
                let read = server.read(&mut lost);
                select(pin!(read), pin!(std::future::ready(()))).await;
                client.write_all(&[round]).unwrap();
                let mut byte = [0];
                server.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte, [round]);
            }
        })
    });
}

#[test]
fn a_task_that_never_has_to_wait_lets_others_run() {
    under_each_executor(|| {
        Box::pin(async {
            let (mut client, server) = sockets();
            client.write_all(&[1; 10_000]).unwrap();
            let mut server = AsyncIo::new(server).unwrap();
            let mut pauses = 0;
            let mut count = 0;
            let mut byte = [0];
            poll_fn(|context| {
                while count < 10_000 {
                    let read = pin!(server.read(&mut byte));
                    match read.poll(context) {
                        Poll::Ready(result) => count += result.unwrap(),
                        Poll::Pending => {
                            pauses += 1;
                            return Poll::Pending;
                        }
                    }
                }
                Poll::Ready(())
            })
            .await;
            assert!(pauses >= 100, "{pauses}");
        })
    });
}

#[test]
fn the_traits_are_those_of_futures_io() {
    fn takes<T>(_: &T)
    where
        T: futures_util::AsyncRead + futures_util::AsyncWrite + Send + Sync + Unpin + 'static,
    {
    }
    let (client, _server) = sockets();
    let client = AsyncIo::new(client).unwrap();
    takes(&client);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = AsyncListener::new(listener).unwrap();
    // What waits may be sent to another thread.
    let _accept: Pin<Box<dyn Future<Output = _> + Send + Sync>> = Box::pin(listener.accept());
}

/// The first poll is on a worker, which then has gone with its runtime.
#[test]
fn who_accepts_may_move_to_where_nobody_watches() {
    let _watch = crate::harness::watch();
    for driver in crate::world::drivers() {
        let first = crate::world::runtime(driver, 1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = std::sync::Arc::new(AsyncListener::new(listener).unwrap());
        let mut accepts = Box::pin({
            let listener = listener.clone();
            async move { listener.accept().await.map(drop) }
        });
        let mut accepts = first.run(move || {
            sinew::block_on(poll_fn(|context| {
                assert!(accepts.as_mut().poll(context).is_pending());
                Poll::Ready(())
            }));
            accepts
        });
        drop(first);
        let mut client = None;
        sinew::block_on(poll_fn(|context| {
            let polled = accepts.as_mut().poll(context);
            // After it waits here.
            client.get_or_insert_with(|| std::net::TcpStream::connect(address).unwrap());
            polled
        }))
        .unwrap();
    }
}

#[test]
fn what_was_accepted_ahead_comes_along_with_the_listener() {
    on_fibers(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients = [(); 5].map(|()| TcpStream::connect(address).unwrap());
        // On a ring all of them, most likely.
        drop(listener.incoming().next().unwrap().unwrap());
        let listener = AsyncListener::new(listener).unwrap();
        for _ in 0..2 {
            sinew::block_on(listener.accept()).unwrap();
        }
        let listener = listener.into_inner();
        for _ in 0..2 {
            listener.accept().unwrap();
        }
        drop(clients);
    });
}

/// A flood of connections does not keep the worker.
#[test]
fn a_task_that_accepts_lets_others_run() {
    let _watch = crate::harness::watch();
    for driver in crate::world::drivers() {
        crate::world::runtime(driver, 1).run(|| {
            const MANY: usize = 100;
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let clients: Vec<_> = (0..MANY)
                .map(|_| std::net::TcpStream::connect(address).unwrap())
                .collect();
            let listener = AsyncListener::new(listener).unwrap();
            let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let other = sinew::spawn({
                let ran = ran.clone();
                move || ran.store(true, std::sync::atomic::Ordering::Relaxed)
            });
            sinew::block_on(async {
                for _ in 0..MANY {
                    listener.accept().await.unwrap();
                }
            });
            assert!(ran.load(std::sync::atomic::Ordering::Relaxed));
            other.join().unwrap();
            drop(clients);
        });
    }
}
