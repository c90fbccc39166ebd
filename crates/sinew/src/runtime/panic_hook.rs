//! A line that names the fiber before a panic's message.
//!
//! std's message names the thread, and that is a worker. The first runtime that is to report
//! panics installs a panic hook, once for the process. It writes one line if a fiber panics, and
//! calls the hook that it found, so that what the program or std prints follows. Each runtime has
//! its own setting, which the hook asks: fibers of a runtime that is not to report are not named.

use crate::sched::{current, switch};
use crate::sys::log::log;
use crate::worker::first_frame::called;
use std::sync::{Mutex, PoisonError};

static INSTALLED: Mutex<bool> = Mutex::new(false);

/// Installs the hook, unless it is there already.
pub(super) fn install() {
    // std refuses to change the hook while a panic is under way on this thread (a runtime that is
    // made in a destructor, or in a hook). The next runtime tries again.
    if std::thread::panicking() {
        return;
    }
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return;
    }
    let found = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        name_fiber();
        found(info);
    }));
    *installed = true;
}

/// Says which fiber panics, if one does.
fn name_fiber() {
    let Some(block) = switch::running() else {
        return;
    };
    // SAFETY: a fiber runs here, so this thread has a live core (core, invariant 2).
    let reports = unsafe { &*current::core() }.shared().settings.report_panics;
    if reports {
        // SAFETY: the running fiber is alive.
        let fiber = called(unsafe { block.as_ref() });
        // Not through std's lock of standard error, which a suspended fiber may hold.
        log(&format!("{fiber}, panics:"));
    }
}
