//! `ureq`, `reqwest::blocking` and `reqwest`.

use super::case;
use crate::{Case, Expect, Failure, stand_ins};
use async_compat::Compat;
use sinew::net::TcpStream;
use std::io::{ErrorKind, Read, Write};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("ureq, as it is", Expect::Blocks, || {
            let url = format!("http://{}/", stand_ins::http()?);
            Ok(move || {
                let text = ureq::get(&url).call()?.body_mut().read_to_string();
                is_slow(&text?)
            })
        }),
        case("ureq, in `blocking`", Expect::Waits, || {
            let url = format!("http://{}/", stand_ins::http()?);
            Ok(move || {
                let text = sinew::blocking(|| ureq::get(&url).call()?.body_mut().read_to_string());
                is_slow(&text?)
            })
        }),
        case("ureq, a transport on sinew::net", Expect::Waits, || {
            let url = format!("http://{}/", stand_ins::http()?);
            let config = ureq::Agent::config_builder().build();
            let agent = ureq::Agent::with_parts(config, OnFibers, DefaultResolver::default());
            Ok(move || {
                let text = agent.get(&url).call()?.body_mut().read_to_string();
                is_slow(&text?)
            })
        }),
        case("reqwest::blocking, as it is", Expect::Blocks, || {
            let url = format!("http://{}/", stand_ins::http()?);
            let client = sinew::blocking(reqwest::blocking::Client::new);
            Ok(move || is_slow(&client.get(&url).send()?.text()?))
        }),
        case("reqwest::blocking, in `blocking`", Expect::Waits, || {
            let url = format!("http://{}/", stand_ins::http()?);
            let client = sinew::blocking(reqwest::blocking::Client::new);
            Ok(move || {
                let text = sinew::blocking(|| client.get(&url).send()?.text());
                is_slow(&text?)
            })
        }),
        case(
            "reqwest::blocking, a Client made on a fiber",
            Expect::Waits,
            || {
                let url = format!("http://{}/", stand_ins::http()?);
                Ok(move || {
                    let client = reqwest::blocking::Client::new();
                    let text = sinew::blocking(|| client.get(&url).send()?.text());
                    is_slow(&text?)
                })
            },
        ),
        case(
            "reqwest, by block_on alone",
            Expect::Panics("no reactor running"),
            || {
                let url = format!("http://{}/", stand_ins::http()?);
                let client = reqwest::Client::new();
                Ok(move || {
                    let text = async { client.get(&url).send().await?.text().await };
                    is_slow(&sinew::block_on(text)?)
                })
            },
        ),
        case(
            "reqwest, by block_on(Compat::new(..))",
            Expect::Waits,
            || {
                let url = format!("http://{}/", stand_ins::http()?);
                let client = reqwest::Client::new();
                Ok(move || {
                    let text = async { client.get(&url).send().await?.text().await };
                    is_slow(&sinew::block_on(Compat::new(text))?)
                })
            },
        ),
    ]
}

fn is_slow(text: &str) -> Result<(), Failure> {
    assert_eq!(text, "slow");
    Ok(())
}

/// Connects ureq by Sinew's sockets, without TLS.
#[derive(Debug)]
struct OnFibers;

struct FiberTransport {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for FiberTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FiberTransport").finish_non_exhaustive()
    }
}

impl Connector for OnFibers {
    type Out = FiberTransport;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _chained: Option<()>,
    ) -> Result<Option<FiberTransport>, ureq::Error> {
        let limit = details.timeout.not_zero().map(|limit| *limit);
        let connect = |address| match limit {
            Some(limit) => TcpStream::connect_timeout(address, limit),
            None => TcpStream::connect(address),
        };
        let mut outcome = Err(ErrorKind::AddrNotAvailable.into());
        for address in &details.addrs {
            outcome = connect(address);
            if outcome.is_ok() {
                break;
            }
        }
        let (config, stream) = (&details.config, or_timeout(outcome, details.timeout)?);
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(FiberTransport { stream, buffers }))
    }
}

impl Transport for FiberTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, limit: NextTimeout) -> Result<(), ureq::Error> {
        let limit = limit.for_write();
        self.stream
            .set_write_timeout(limit.not_zero().map(|limit| *limit))?;
        let sent = self.stream.write_all(&self.buffers.output()[..amount]);
        or_timeout(sent, limit)
    }

    fn await_input(&mut self, limit: NextTimeout) -> Result<bool, ureq::Error> {
        let limit = limit.for_read();
        self.stream
            .set_read_timeout(limit.not_zero().map(|limit| *limit))?;
        let read = self.stream.read(self.buffers.input_append_buf());
        let read = or_timeout(read, limit)?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        // Nothing to read, and not closed.
        self.stream.set_nonblocking(true).is_ok()
            && self
                .stream
                .peek(&mut [0])
                .is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
            && self.stream.set_nonblocking(false).is_ok()
    }
}

fn or_timeout<T>(outcome: std::io::Result<T>, limit: NextTimeout) -> Result<T, ureq::Error> {
    outcome.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ureq::Error::Timeout(limit.reason),
        _ => error.into(),
    })
}
