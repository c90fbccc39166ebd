//! What a runtime has besides its workers, reached from below through `Shared`.

use super::pool::Pool;
use super::spare::Spares;
use crate::sched::shared::Shared;
use std::sync::Arc;

/// The pool and the spare workers; the monitor needs nothing from others.
pub(crate) struct Services {
    pub(crate) pool: Arc<Pool>,
    pub(crate) spares: Spares,
}

/// The services of a runtime; they are there before its first worker runs.
pub(crate) fn of(shared: &Shared) -> &Services {
    shared
        .services
        .get()
        .and_then(|services| services.downcast_ref())
        .expect("a runtime's services are set when it is built")
}
