//! `postgres`, `tokio-postgres` and `sqlx`; they need a server.

use super::case;
use crate::{Case, Expect, Failure};
use async_compat::Compat;
use postgres::NoTls;
use sinew::interop::AsyncIo;
use sinew::net::TcpStream;
use sqlx::postgres::PgPoolOptions;
use tokio_util::compat::FuturesAsyncReadCompatExt;

const SLEEP: &str = "select pg_sleep(0.1)";

pub fn cases() -> Vec<Case> {
    vec![
        case("postgres, as it is", Expect::Blocks, || {
            let url = url()?;
            Ok(move || {
                let mut client = postgres::Client::connect(&url, NoTls)?;
                client.batch_execute(SLEEP)?;
                Ok(())
            })
        }),
        case("postgres, in `blocking`", Expect::Waits, || {
            let url = url()?;
            Ok(move || {
                sinew::blocking(|| {
                    let mut client = postgres::Client::connect(&url, NoTls)?;
                    client.batch_execute(SLEEP)
                })?;
                Ok(())
            })
        }),
        case(
            "tokio-postgres, by block_on alone",
            Expect::Panics("no reactor running"),
            || {
                let url = url()?;
                Ok(move || {
                    let (_client, _connection) =
                        sinew::block_on(tokio_postgres::connect(&url, tokio_postgres::NoTls))?;
                    Ok(())
                })
            },
        ),
        case(
            "tokio-postgres, connect_raw on AsyncIo + compat",
            Expect::Waits,
            || {
                let config: tokio_postgres::Config = url()?.parse()?;
                Ok(move || {
                    let stream = TcpStream::connect(host_of(&config)?)?;
                    let stream = AsyncIo::new(stream)?.compat();
                    sinew::block_on(async {
                        let tls = tokio_postgres::NoTls;
                        let (client, connection) = config.connect_raw(stream, tls).await?;
                        sinew::spawn(|| sinew::block_on(connection));
                        Ok(client.batch_execute(SLEEP).await?)
                    })
                })
            },
        ),
        case(
            "sqlx, by block_on alone",
            Expect::Panics("Tokio context"),
            || {
                let url = url()?;
                let options = PgPoolOptions::new().max_connections(20);
                let pool = sinew::block_on(Compat::new(async { options.connect_lazy(&url) }))?;
                Ok(move || {
                    sinew::block_on(sqlx::query(SLEEP).execute(&pool))?;
                    Ok(())
                })
            },
        ),
        case(
            "sqlx, a pool made outside of Compat",
            Expect::Panics("Tokio context"),
            || {
                // Nothing connects, so this needs no server.
                let url = "postgres://postgres@127.0.0.1:1/postgres";
                Ok(move || {
                    let _pool = PgPoolOptions::new().connect_lazy(url)?;
                    Ok(())
                })
            },
        ),
        case("sqlx, by block_on(Compat::new(..))", Expect::Waits, || {
            let url = url()?;
            let options = PgPoolOptions::new().max_connections(20);
            let pool = sinew::block_on(Compat::new(async { options.connect_lazy(&url) }))?;
            Ok(move || {
                sinew::block_on(Compat::new(sqlx::query(SLEEP).execute(&pool)))?;
                Ok(())
            })
        }),
    ]
}

fn url() -> Result<String, Failure> {
    std::env::var("SINEW_NEIGHBOURS_POSTGRES")
        .map_err(|_| "SINEW_NEIGHBOURS_POSTGRES names no server".into())
}

fn host_of(config: &tokio_postgres::Config) -> Result<(&str, u16), Failure> {
    match (config.get_hosts(), config.get_ports()) {
        ([tokio_postgres::config::Host::Tcp(host)], &[port]) => Ok((host, port)),
        _ => Err("the URL has to name one host and a port".into()),
    }
}
