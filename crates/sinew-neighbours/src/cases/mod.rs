//! The cases, a file for each kind of client.

mod files;
mod http;
mod postgres;
mod redis;
mod tokio;
mod websocket;

use crate::{Call, Case, Expect, Failure};
use std::sync::Arc;

/// All of them, in the order of the guide's table.
pub fn all() -> Vec<Case> {
    let mut cases = http::cases();
    cases.extend(redis::cases());
    cases.extend(postgres::cases());
    cases.extend(websocket::cases());
    cases.extend(files::cases());
    cases.extend(tokio::cases());
    cases
}

fn case<P, C>(name: &'static str, expect: Expect, prepare: P) -> Case
where
    P: FnOnce() -> Result<C, Failure> + Send + 'static,
    C: Fn() -> Result<(), Failure> + Send + Sync + 'static,
{
    Case {
        name,
        expect,
        prepare: Box::new(|| prepare().map(|call| Arc::new(call) as Call)),
    }
}
