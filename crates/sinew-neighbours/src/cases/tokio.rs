//! A runtime of tokio's beside ours, used from fibers.

use super::case;
use crate::{Case, DELAY, Expect, Failure};
use std::sync::LazyLock;
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// Threads of its own; lives as long as the process.
static TOKIO: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime of tokio's"));

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "tokio, Handle::spawn + block_on(join)",
            Expect::Waits,
            || Ok(|| Ok(sinew::block_on(TOKIO.handle().spawn(nap()))?)),
        ),
        case("tokio, Handle::block_on on a fiber", Expect::Blocks, || {
            Ok(|| {
                TOKIO.handle().block_on(nap());
                Ok::<(), Failure>(())
            })
        }),
        case(
            "tokio, Handle::block_on in `blocking`",
            Expect::Waits,
            || {
                Ok(|| {
                    sinew::blocking(|| TOKIO.handle().block_on(nap()));
                    Ok::<(), Failure>(())
                })
            },
        ),
        case(
            "tokio, Handle::enter held across a wait",
            Expect::Panics("out of order"),
            || {
                Ok(|| {
                    let _entered = TOKIO.handle().enter();
                    sinew::block_on(nap());
                    Ok::<(), Failure>(())
                })
            },
        ),
    ]
}

/// Makes its timer when it is first polled, inside of tokio.
async fn nap() {
    sleep(DELAY).await;
}
