//! `tungstenite`: it works on any stream that reads and writes.

use super::case;
use crate::{Case, Expect, stand_ins};
use std::io::{Read, Write};
use tungstenite::Message;

pub fn cases() -> Vec<Case> {
    vec![
        case("tungstenite, on std's TcpStream", Expect::Blocks, || {
            let address = stand_ins::websocket()?;
            Ok(move || Ok(ask(std::net::TcpStream::connect(address)?)?))
        }),
        case(
            "tungstenite, on sinew::net::TcpStream",
            Expect::Waits,
            || {
                let address = stand_ins::websocket()?;
                Ok(move || Ok(ask(sinew::net::TcpStream::connect(address)?)?))
            },
        ),
    ]
}

fn ask(stream: impl Read + Write) -> std::io::Result<()> {
    let client = tungstenite::client("ws://localhost/", stream);
    let (mut socket, _) = client.map_err(|error| std::io::Error::other(error.to_string()))?;
    socket
        .send(Message::text("hello"))
        .map_err(std::io::Error::other)?;
    let back = socket.read().map_err(std::io::Error::other)?;
    assert_eq!(back, Message::text("hello"));
    Ok(())
}
