//! `redis`: its blocking connection, and its multiplexed one on a socket of Sinew's.

use super::case;
use crate::{Case, Expect, Failure, stand_ins};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisConnectionInfo, Value};
use sinew::interop::AsyncIo;
use sinew::net::TcpStream;
use std::time::Duration;
use tokio_util::compat::FuturesAsyncReadCompatExt;

pub fn cases() -> Vec<Case> {
    vec![
        case("redis (sync), as it is", Expect::Blocks, || {
            let client = Client::open(format!("redis://{}/", address()?))?;
            Ok(move || {
                let mut connection = client.get_connection()?;
                is_late(&wait_in_vain().query(&mut connection)?)
            })
        }),
        case("redis (sync), in `blocking`", Expect::Waits, || {
            let client = Client::open(format!("redis://{}/", address()?))?;
            Ok(move || {
                let value = sinew::blocking(|| {
                    let mut connection = client.get_connection()?;
                    wait_in_vain().query(&mut connection)
                });
                is_late(&value?)
            })
        }),
        case("redis (aio), on AsyncIo + compat", Expect::Waits, || {
            let address = address()?;
            Ok(move || {
                // Its own limits would be tokio's timers; `sinew::timeout` does that.
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None);
                ask(&address, config)
            })
        }),
        case(
            "redis (aio), with limits of its own",
            Expect::Panics("no reactor running"),
            || {
                let address = address()?;
                Ok(move || {
                    let limit = Some(Duration::from_secs(60));
                    let config = AsyncConnectionConfig::new().set_response_timeout(limit);
                    ask(&address, config)
                })
            },
        ),
    ]
}

/// Over a multiplexed connection on a socket of Sinew's.
fn ask(address: &str, config: AsyncConnectionConfig) -> Result<(), Failure> {
    let stream = AsyncIo::new(TcpStream::connect(address)?)?.compat();
    sinew::block_on(async {
        let info = RedisConnectionInfo::default();
        let connecting = MultiplexedConnection::new_with_config(&info, stream, config);
        let (mut connection, driver) = connecting.await?;
        sinew::spawn(|| sinew::block_on(driver));
        is_late(&wait_in_vain().query_async(&mut connection).await?)
    })
}

fn address() -> Result<String, Failure> {
    match std::env::var("SINEW_NEIGHBOURS_REDIS") {
        Ok(address) => Ok(address),
        Err(_) => Ok(stand_ins::redis()?.to_string()),
    }
}

/// Waits for 100 ms for a list that nobody fills.
fn wait_in_vain() -> redis::Cmd {
    let mut command = redis::cmd("BLPOP");
    command.arg("sinew-neighbours-no-such-list").arg(0.1);
    command
}

fn is_late(value: &Value) -> Result<(), Failure> {
    assert_eq!(*value, Value::Nil);
    Ok(())
}
