//! `rusqlite`: a database in files, which has nothing to poll.

use super::case;
use crate::{Case, DELAY, Expect, Failure};
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

pub fn cases() -> Vec<Case> {
    vec![
        case("rusqlite, as it is", Expect::Blocks, || {
            Ok(|| query().map_err(Failure::from))
        }),
        case("rusqlite, in `blocking`", Expect::Waits, || {
            Ok(|| sinew::blocking(query).map_err(Failure::from))
        }),
    ]
}

/// A query that takes as long as a slow disk or a long join would.
fn query() -> rusqlite::Result<()> {
    let database = Connection::open_in_memory()?;
    database.create_scalar_function("nap", 0, FunctionFlags::SQLITE_UTF8, |_| {
        std::thread::sleep(DELAY);
        Ok(1)
    })?;
    let woken: i64 = database.query_row("select nap()", [], |row| row.get(0))?;
    assert_eq!(woken, 1);
    Ok(())
}
