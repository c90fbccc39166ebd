//! Libraries and code that know only `Read` and `Write`.

use super::{Stream, client_config, name, pattern, server_config, sockets, streams};
use crate::world::everywhere;
use sinew::net::{TcpListener, TcpStream};
use sinew::tls::rustls::{self, ClientConnection, ServerConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use tungstenite::Message;

#[test]
fn rustls_streams_run_on_our_sockets() {
    everywhere(|| {
        let (client, server) = sockets();
        let server = sinew::spawn(move || {
            let connection = ServerConnection::new(server_config()).unwrap();
            let mut stream = StreamOwned::new(connection, server);
            let mut text = Vec::new();
            stream.read_to_end(&mut text).unwrap();
            stream.write_all(&text).unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        });
        let mut socket = client;
        let mut connection = ClientConnection::new(client_config(), name()).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        let sent = pattern(300_000);
        stream.write_all(&sent).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer == sent);
        server.join().unwrap();
    });
}

#[test]
fn rustls_by_itself_talks_to_ours() {
    everywhere(|| {
        let (client, server) = sockets();
        let server = sinew::spawn(move || {
            let mut stream = super::acceptor().accept(server).unwrap();
            stream.write_all(b"from ours").unwrap();
            stream.close_notify().unwrap();
        });
        let connection = ClientConnection::new(client_config(), name()).unwrap();
        let mut stream = StreamOwned::new(connection, client);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "from ours");
        server.join().unwrap();
    });
}

/// A server that sends each message back, and a client, over a WebSocket.
///
/// The server calls `end` on its stream at the end.
fn talk_by_websocket<S>(url: &str, client: S, server: S, end: fn(&mut S) -> io::Result<()>)
where
    S: Read + Write + Send + 'static,
{
    let server = sinew::spawn(move || {
        let mut socket = tungstenite::accept(server).expect("a handshake");
        loop {
            match socket.read() {
                Ok(message) if message.is_text() || message.is_binary() => {
                    socket.send(message).unwrap();
                }
                Ok(_) => {}
                Err(tungstenite::Error::ConnectionClosed) => break,
                Err(error) => panic!("{error}"),
            }
        }
        end(socket.get_mut()).unwrap();
    });
    let (mut socket, _) = tungstenite::client(url, client).expect("a handshake");
    for round in 0..10 {
        let text = Message::text(format!("message {round}"));
        let bytes = Message::binary(pattern(1 << (2 * round)));
        for message in [text, bytes] {
            socket.send(message.clone()).unwrap();
            assert!(socket.read().unwrap() == message);
        }
    }
    socket.close(None).unwrap();
    loop {
        match socket.read() {
            Ok(_) => {}
            Err(tungstenite::Error::ConnectionClosed) => break,
            Err(error) => panic!("{error}"),
        }
    }
    drop(socket);
    server.join().unwrap();
}

#[test]
fn tungstenite_runs_on_our_sockets() {
    everywhere(|| {
        let (client, server) = sockets();
        talk_by_websocket("ws://localhost/", client, server, |_| Ok(()));
    });
}

#[test]
fn tungstenite_runs_over_tls() {
    everywhere(|| {
        let (client, server) = streams();
        talk_by_websocket("wss://localhost/", client, server, Stream::close_notify);
    });
}

/// An HTTP server as it is written for threads: parse a head, answer, and so on.
fn serve_http(mut stream: impl Read + Write) -> io::Result<u32> {
    let mut buffer = Vec::new();
    let mut served = 0;
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        let status = request.parse(&buffer).map_err(io::Error::other)?;
        let httparse::Status::Complete(length) = status else {
            let mut chunk = [0; 512];
            match stream.read(&mut chunk)? {
                0 => return Ok(served),
                count => buffer.extend_from_slice(&chunk[..count]),
            }
            continue;
        };
        let body = format!("you asked for {}", request.path.unwrap());
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        stream.flush()?;
        served += 1;
        buffer.drain(..length);
    }
}

fn read_answer(stream: &mut impl BufRead) -> String {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn a_server_by_httparse_runs_on_our_sockets() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = sinew::spawn(move || {
            let connections: Vec<_> = listener
                .incoming()
                .take(5)
                .map(|stream| sinew::spawn(move || serve_http(stream.unwrap()).unwrap()))
                .collect();
            let served = connections.into_iter().map(|fiber| fiber.join().unwrap());
            assert_eq!(served.sum::<u32>(), 50);
        });
        sinew::scope(|s| {
            for client in 0..5 {
                s.spawn(move || {
                    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
                    for round in 0..10 {
                        let path = format!("/{client}/{round}");
                        write!(stream.get_mut(), "GET {path} HTTP/1.1\r\nhost: me\r\n\r\n")
                            .unwrap();
                        let expected = format!("you asked for {path}");
                        assert_eq!(read_answer(&mut stream), expected);
                    }
                });
            }
        });
        server.join().unwrap();
    });
}

#[test]
fn a_server_by_httparse_runs_over_tls() {
    everywhere(|| {
        let (client, server) = streams();
        let server = sinew::spawn(move || serve_http(server).unwrap());
        let mut stream = BufReader::new(client);
        // Two at once, then a third: what is pipelined stays in order.
        let pipelined = "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n";
        stream.get_mut().write_all(pipelined.as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream), "you asked for /1");
        assert_eq!(read_answer(&mut stream), "you asked for /2");
        stream
            .get_mut()
            .write_all(b"GET /3 HTTP/1.1\r\n\r\n")
            .unwrap();
        assert_eq!(read_answer(&mut stream), "you asked for /3");
        stream.get_mut().close_notify().unwrap();
        assert_eq!(server.join().unwrap(), 3);
    });
}
