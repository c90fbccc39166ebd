//! HTTP/1 and HTTP/2 by hyper, on fibers instead of an async runtime.
//!
//! `cargo run --release --features hyper --example http_hyper` asks itself and ends; with
//! an address it serves, until it is killed, `curl` and `curl --http2-prior-knowledge`.

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version, client, server};
use sinew::interop::{AsyncIo, SinewExecutor, SinewTimer};
use sinew::net::{SocketAddr, TcpListener, TcpStream};
use std::convert::Infallible;
use std::error::Error;

type Failure = Box<dyn Error + Send + Sync>;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("{:?} {}\n", request.version(), request.uri().path());
    Ok(Response::new(text.into()))
}

fn serve_one(stream: TcpStream) -> Result<(), Failure> {
    // Who knows that we talk HTTP/2 begins with "PRI * HTTP/2.0"; no method does.
    let mut start = [0; 3];
    let is_http2 = stream.peek(&mut start)? == 3 && &start == b"PRI";
    let (io, timer, service) = (AsyncIo::new(stream)?, SinewTimer::new(), service_fn(answer));
    if is_http2 {
        let mut http = server::conn::http2::Builder::new(SinewExecutor::new());
        sinew::block_on(http.timer(timer).serve_connection(io, service))?;
    } else {
        let mut http = server::conn::http1::Builder::new();
        sinew::block_on(http.timer(timer).serve_connection(io, service))?;
    }
    Ok(())
}

fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        sinew::spawn(move || serve_one(stream).map_err(|error| eprintln!("it broke: {error}")));
    }
}

fn ask(address: SocketAddr, version: Version) -> Result<String, Failure> {
    let io = AsyncIo::new(TcpStream::connect(address)?)?;
    let request = Request::get(format!("http://{address}/hello")).body(Empty::<Bytes>::new())?;
    sinew::block_on(async {
        let response = if version == Version::HTTP_2 {
            let connecting = client::conn::http2::handshake(SinewExecutor::new(), io);
            let (mut sender, connection) = connecting.await?;
            sinew::spawn(|| sinew::block_on(connection));
            sender.send_request(request).await?
        } else {
            let (mut sender, connection) = client::conn::http1::handshake(io).await?;
            sinew::spawn(|| sinew::block_on(connection));
            sender.send_request(request).await?
        };
        let body = response.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(body.into())?)
    })
}

#[sinew::main]
fn main() -> Result<(), Failure> {
    if let Some(address) = std::env::args().nth(1) {
        serve(&TcpListener::bind(address)?);
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    sinew::scope(|s| {
        s.spawn(|| serve(&listener));
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let text = ask(listener.local_addr()?, version)?;
            print!("{text}");
            assert_eq!(text, format!("{version:?} /hello\n"));
        }
        Ok(listener.close()?)
    })
}
