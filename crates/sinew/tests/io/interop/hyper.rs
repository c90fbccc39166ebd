//! hyper, both ends, on fibers.

use super::sockets;
use crate::world::{everywhere, on_fibers};
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use sinew::interop::{AsyncIo, SinewExecutor, SinewTimer};
use sinew::net::{TcpListener, TcpStream};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// Answers with path and body.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut text = request.uri().path().as_bytes().to_vec();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    text.extend(body);
    Ok(Response::new(Full::from(text)))
}

fn ask(path: &str, body: Vec<u8>) -> Request<Full<Bytes>> {
    let request = Request::post(format!("http://localhost{path}")).header("host", "localhost");
    request.body(Full::from(body)).unwrap()
}

async fn text_of(response: Response<Incoming>) -> Vec<u8> {
    assert_eq!(response.status(), 200);
    response
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes()
        .into()
}

/// Serves one connection of HTTP/1, on a fiber.
fn serve_http1(stream: TcpStream) -> sinew::JoinHandle<hyper::Result<()>> {
    sinew::spawn(move || {
        let io = AsyncIo::new(stream).unwrap();
        let mut http = server::conn::http1::Builder::new();
        http.timer(SinewTimer::new());
        sinew::block_on(http.serve_connection(io, service_fn(echo)))
    })
}

#[test]
fn http1_serves_many_requests_on_one_connection() {
    everywhere(|| {
        let (client, server) = sockets();
        let server = serve_http1(server);
        sinew::block_on(async {
            let io = AsyncIo::new(client).unwrap();
            let (mut sender, connection) = client::conn::http1::handshake(io).await.unwrap();
            let driver = sinew::spawn(|| sinew::block_on(connection));
            for round in 0..20u8 {
                // Bodies of up to a megabyte: both ends wait for room.
                let body = vec![round; 1 << round];
                sender.ready().await.unwrap();
                let response = sender.send_request(ask("/echo", body.clone())).await;
                let text = text_of(response.unwrap()).await;
                assert_eq!(&text[..5], b"/echo");
                assert!(text[5..] == body);
            }
            drop(sender);
            driver.await.unwrap().unwrap();
        });
        server.join().unwrap().unwrap();
    });
}

#[test]
fn http1_serves_connections_side_by_side() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = sinew::spawn(move || {
            let serving: Vec<_> = listener
                .incoming()
                .take(10)
                .map(|stream| serve_http1(stream.unwrap()))
                .collect();
            for connection in serving {
                connection.join().unwrap().unwrap();
            }
        });
        sinew::scope(|s| {
            for number in 0..10 {
                s.spawn(move || {
                    let io = AsyncIo::new(TcpStream::connect(address).unwrap()).unwrap();
                    sinew::block_on(async {
                        let (mut sender, connection) =
                            client::conn::http1::handshake(io).await.unwrap();
                        let driver = sinew::spawn(|| sinew::block_on(connection));
                        let path = format!("/{number}");
                        let response = sender.send_request(ask(&path, vec![])).await.unwrap();
                        assert_eq!(text_of(response).await, path.as_bytes());
                        drop(sender);
                        driver.await.unwrap().unwrap();
                    });
                });
            }
        });
        server.join().unwrap();
    });
}

#[test]
fn http2_serves_many_streams_at_once() {
    everywhere(|| {
        let (client, server) = sockets();
        let server = sinew::spawn(move || {
            let mut http = server::conn::http2::Builder::new(SinewExecutor::new());
            http.timer(SinewTimer::new());
            let io = AsyncIo::new(server).unwrap();
            sinew::block_on(http.serve_connection(io, service_fn(echo)))
        });
        sinew::block_on(async {
            let io = AsyncIo::new(client).unwrap();
            let handshake = client::conn::http2::handshake(SinewExecutor::new(), io);
            let (sender, connection) = handshake.await.unwrap();
            let driver = sinew::spawn(|| sinew::block_on(connection));
            let asked = (0..50u8).map(|number| {
                let mut sender = sender.clone();
                async move {
                    let (path, body) = (format!("/{number}"), vec![number; 20_000]);
                    let response = sender.send_request(ask(&path, body.clone())).await.unwrap();
                    let text = text_of(response).await;
                    assert!(text == [path.as_bytes(), &body].concat());
                }
            });
            join_all(asked).await;
            drop(sender);
            driver.await.unwrap().unwrap();
        });
        server.join().unwrap().unwrap();
    });
}

#[test]
fn a_head_that_does_not_come_is_given_up() {
    everywhere(|| {
        let (mut client, server) = sockets();
        let server = sinew::spawn(move || {
            let mut http = server::conn::http1::Builder::new();
            http.timer(SinewTimer::new())
                .header_read_timeout(Duration::from_millis(5));
            let io = AsyncIo::new(server).unwrap();
            sinew::block_on(http.serve_connection(io, service_fn(echo)))
        });
        client.write_all(b"GET / HTTP/1.1\r\nhost: lo").unwrap();
        let error = server.join().unwrap().unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        client.read_to_end(&mut Vec::new()).unwrap(); // it was closed
    });
}

#[test]
fn a_graceful_shutdown_finishes_what_was_begun() {
    everywhere(|| {
        let (client, server) = sockets();
        let (begun, has_begun) = sinew::channel::bounded(1);
        let (go_on, may_go_on) = sinew::channel::bounded::<()>(1);
        let slow = service_fn(move |request: Request<Incoming>| {
            let (begun, may_go_on) = (begun.clone(), may_go_on.clone());
            async move {
                begun.send_async(()).await.unwrap();
                may_go_on.recv_async().await.unwrap();
                echo(request).await
            }
        });
        let server = sinew::spawn(move || {
            let io = AsyncIo::new(server).unwrap();
            let connection = server::conn::http1::Builder::new().serve_connection(io, slow);
            sinew::block_on(async {
                let mut connection = pin!(connection);
                // Served until a request is in the middle …
                let mut began = pin!(has_begun.recv_async());
                poll_fn(|context| {
                    assert!(connection.as_mut().poll(context).is_pending());
                    began.as_mut().poll(context).map(Result::unwrap)
                })
                .await;
                // … then told to end.
                connection.as_mut().graceful_shutdown();
                go_on.send_async(()).await.unwrap();
                connection.await
            })
        });
        sinew::block_on(async {
            let io = AsyncIo::new(client).unwrap();
            let (mut sender, connection) = client::conn::http1::handshake(io).await.unwrap();
            let driver = sinew::spawn(|| sinew::block_on(connection));
            let response = sender.send_request(ask("/last", vec![])).await.unwrap();
            assert_eq!(response.headers()["connection"], "close");
            assert_eq!(text_of(response).await, b"/last");
            driver.await.unwrap().unwrap();
            assert!(sender.is_closed());
        });
        server.join().unwrap().unwrap();
    });
}

#[test]
fn a_cancelled_fiber_drops_its_task() {
    on_fibers(|| {
        struct Alive(sinew::channel::Sender<()>);
        impl Drop for Alive {
            fn drop(&mut self) {
                let _told = self.0.try_send(()); // no point: it is cancelled
            }
        }
        let (dropped, is_dropped) = sinew::channel::unbounded();
        let (tell, fiber) = sinew::channel::bounded(1);
        let alive = Alive(dropped);
        hyper::rt::Executor::execute(&SinewExecutor::new(), async move {
            let _alive = alive;
            tell.send_async(sinew::current()).await.unwrap();
            std::future::pending::<()>().await;
        });
        fiber.recv().unwrap().cancel();
        is_dropped.recv().unwrap();
    });
}

#[test]
fn hyper_runs_under_a_foreign_executor_too() {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let (client, server) = sockets();
    let server = serve_http1(server);
    tokio.block_on(async {
        let io = AsyncIo::new(client).unwrap();
        let (mut sender, connection) = client::conn::http1::handshake(io).await.unwrap();
        let driver = tokio.spawn(connection);
        for _ in 0..10 {
            sender.ready().await.unwrap();
            let response = sender.send_request(ask("/there", vec![1; 100_000])).await;
            assert_eq!(text_of(response.unwrap()).await.len(), 100_006);
        }
        drop(sender);
        driver.await.unwrap().unwrap();
    });
    server.join().unwrap().unwrap();
}

/// Types that hyper's users write down.
#[test]
fn what_hyper_takes_may_be_sent_and_boxed() {
    fn takes<T: hyper::rt::Timer + Send + Sync + Clone + 'static>(timer: &T) {
        let mut sleeping: Pin<Box<dyn hyper::rt::Sleep>> = timer.sleep(Duration::from_secs(3600));
        timer.reset(&mut sleeping, timer.now());
        sinew::block_on(poll_fn(|context| match sleeping.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => panic!("it is due"),
        }));
    }
    takes(&SinewTimer::new());
}
