//! Tells the fault handler which fiber it caught.

use crate::fiber::FiberId;
use crate::sched::switch;
use crate::stack::overflow::{self, Fault, OverflowBy, OverflowReport, ShortName};
use std::io;
use std::sync::OnceLock;

/// Installs the fault handler, once per process.
pub(super) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| overflow::install(describe).map_err(|e| e.raw_os_error().unwrap_or(0)))
        .map_err(io::Error::from_raw_os_error)
}

/// The fiber that runs on this thread, if `fault` is that of its stack.
///
/// Runs in a signal handler: reads a thread-local that needs no initialisation,
/// and memory of the running fiber, which cannot end meanwhile.
fn describe(fault: &Fault) -> Option<OverflowReport> {
    let block = switch::running()?;
    // SAFETY: the running fiber is alive, and its context is initialised; its
    // extras are freed with its block.
    unsafe {
        let fiber = block.as_ref();
        if fiber.root().is_null() {
            return None; // not on its stack yet
        }
        let class = fiber.class();
        // The root is in the first frame of the stack; slots are aligned to their
        // size, and the guard is at the low end.
        let low = fiber.root().addr() & !(class.bytes() - 1);
        let guard = low..low + class.guard_bytes();
        let by = OverflowBy::find(fault, &guard)?;
        let name = fiber.extras().as_ref().and_then(|e| e.name.as_deref());
        Some(OverflowReport {
            id: ShortName::shown(FiberId::new(fiber.id())),
            name: ShortName::new(name.unwrap_or("")),
            spawned_at: fiber.spawned_at(),
            stack_bytes: class.bytes(),
            guard,
            by,
        })
    }
}
