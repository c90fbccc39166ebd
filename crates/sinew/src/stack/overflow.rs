//! Saying which fiber overflowed its stack.
//!
//! An overflow touches the guard, which is a `SIGSEGV`. Our handler
//! ([`crate::sys::segv`]) asks `describe`, a function of the layer that knows
//! which fiber runs here, whether the address lies in the guard of a fiber. If
//! so it says so, tries a backtrace and aborts; else the fault is passed on to
//! whoever had the signal before.
//!
//! There is a second way to overflow: a signal whose handler has no `SA_ONSTACK` comes
//! while a fiber has less left than the kernel's frame needs. The kernel then sends a
//! `SIGSEGV` without an address. If the stack pointer is that near to the guard, the report
//! says what it may have been ([`OverflowBy::Signal`]).
//!
//! The message is made with nothing but `write(2)`. The backtrace is not safe
//! in a signal handler: the fiber may hold the allocator's lock, or the one
//! that backtraces take. So before the attempt [`segv::last_words`] sets an
//! alarm and lets every further fault end in an abort: it ends, with or
//! without frames.

use std::backtrace::Backtrace;
use std::fmt::{self, Write};
use std::io;
use std::ops::Range;
use std::panic::Location;
use std::sync::OnceLock;

use crate::sys::segv;
pub(crate) use crate::sys::segv::AltStack;
pub(crate) use crate::sys::segv::Fault;

/// Frames printed at most; an overflow has thousands, mostly the same.
const FRAMES: usize = 24;
/// How long the backtrace may take.
const SECONDS: u32 = 3;

/// A fiber that touched its guard.
#[derive(Clone, Debug)]
pub(crate) struct OverflowReport {
    /// As messages show it.
    pub(crate) id: ShortName,
    /// Empty if it has none.
    pub(crate) name: ShortName,
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    /// The reserve, guard included.
    pub(crate) stack_bytes: usize,
    pub(crate) guard: Range<usize>,
    pub(crate) by: OverflowBy,
}

/// How a stack has overflowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowBy {
    /// The guard was touched.
    Touch,
    /// Perhaps by the frame of a signal, for which so many bytes were left.
    Signal { left: usize },
}

impl OverflowBy {
    /// What `fault` says of a stack with this guard; none if it has another cause.
    pub(crate) fn find(fault: &Fault, guard: &Range<usize>) -> Option<Self> {
        match (fault.address, fault.stack_pointer) {
            (Some(address), _) => guard.contains(&address).then_some(Self::Touch),
            (None, Some(pointer)) if pointer >= guard.start => {
                let left = pointer.saturating_sub(guard.end);
                // Beside the frame: what a function may use below its stack pointer, and
                // the alignment.
                let needed = segv::signal_frame_bytes() + 256;
                (left < needed).then_some(Self::Signal { left })
            }
            (None, _) => None,
        }
    }
}

/// Tells whether a fault is that of a fiber's stack, and of which. Runs
/// in a signal handler on any thread: it must not lock, allocate or fault.
pub(crate) type Describe = fn(fault: &Fault) -> Option<OverflowReport>;

static DESCRIBE: OnceLock<Describe> = OnceLock::new();

/// Has overflows reported from now on. The first `describe` stays.
pub(crate) fn install(describe: Describe) -> io::Result<()> {
    DESCRIBE.get_or_init(|| describe);
    segv::install(on_fault)
}

fn on_fault(fault: &Fault) {
    // `get` is one load: it never waits.
    if let Some(report) = DESCRIBE.get().and_then(|describe| describe(fault)) {
        die(&report);
    }
}

fn die(report: &OverflowReport) -> ! {
    segv::last_words(SECONDS);
    let mut text = Text::<1024>::new();
    let _ = write!(text, "{report}");
    segv::write_stderr(text.as_bytes());
    // Stops with an error when it has enough.
    let _ = write!(Frames::new(), "{}", Backtrace::force_capture());
    segv::abort();
}

impl fmt::Display for OverflowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverflowReport {
            id,
            name,
            spawned_at,
            stack_bytes,
            guard,
            by,
        } = self;
        let id = id.as_str();
        f.write_str("\nsinew: fiber ")?;
        match name.as_str() {
            "" => write!(f, "{id}")?,
            name => write!(f, "'{name}' (id {id})")?,
        }
        if let Some(at) = spawned_at {
            write!(f, ", spawned at {at},")?;
        }
        if let OverflowBy::Signal { left } = by {
            return writeln!(
                f,
                " has {left} bytes left of its stack of {} KiB, and a fault has no address: \
                 perhaps a signal on a full stack\n  \
                 remedy: install signal handlers with SA_ONSTACK (sinew::signal does), or give \
                 the fiber more with Builder::stack_size",
                stack_bytes >> 10,
            );
        }
        writeln!(
            f,
            " overflowed its stack of {} KiB (guard at {:#x}..{:#x})\n  \
             remedy: give it more with Builder::stack_size, the whole runtime with \
             Runtime::builder().stack_size(..) or SINEW_STACK_KB, or use less stack",
            stack_bytes >> 10,
            guard.start,
            guard.end
        )
    }
}

/// A name cut to what fits, so that a signal handler can carry it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShortName(Text<63>);

impl ShortName {
    /// The first 63 bytes of `name`, or a few less if a character is cut.
    pub(crate) fn new(name: &str) -> ShortName {
        let mut short = ShortName::default();
        let _ = short.0.write_str(name);
        short
    }

    /// As much of `value` as fits.
    pub(crate) fn shown(value: impl fmt::Display) -> ShortName {
        let mut short = ShortName::default();
        // What does not fit is left out.
        let _ = write!(short.0, "{value}");
        short
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(self.0.as_bytes()).unwrap_or("")
    }
}

/// Text without allocation; what does not fit is cut at a character.
#[derive(Clone, Debug)]
struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    const fn new() -> Self {
        Text {
            bytes: [0; N],
            len: 0,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Text::new()
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut fits = text.len().min(N - self.len);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.bytes[self.len..self.len + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        if fits == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// Passes the first lines of a backtrace on to stderr.
struct Frames {
    line: Text<512>,
    frames: usize,
}

impl Frames {
    fn new() -> Frames {
        Frames {
            line: Text::new(),
            frames: 0,
        }
    }

    /// Writes a finished line, unless it begins a frame too many.
    fn end_line(&mut self) -> fmt::Result {
        // "  12: name" begins a frame, "    at file:1:2" goes with it.
        let line = self.line.as_bytes().trim_ascii_start();
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 && line.get(digits) == Some(&b':') {
            self.frames += 1;
            if self.frames > FRAMES {
                segv::write_stderr(b"  ... and so on\n");
                return Err(fmt::Error);
            }
        }
        segv::write_stderr(self.line.as_bytes());
        segv::write_stderr(b"\n");
        self.line = Text::new();
        Ok(())
    }
}

impl Write for Frames {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut lines = text.split('\n');
        if let Some(first) = lines.next() {
            let _ = self.line.write_str(first); // a long line is cut
        }
        for line in lines {
            self.end_line()?;
            let _ = self.line.write_str(line);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_fiber_size_guard_and_remedy() {
        let mut report = OverflowReport {
            id: ShortName::shown(12),
            name: ShortName::new("parser"),
            spawned_at: None,
            stack_bytes: 256 << 10,
            guard: 0x1000..0x11000,
            by: OverflowBy::Touch,
        };
        let text = report.to_string();
        assert!(
            text.contains("fiber 'parser' (id 12) overflowed its stack of 256 KiB"),
            "{text}"
        );
        assert!(text.contains("guard at 0x1000..0x11000"), "{text}");
        assert!(
            text.contains("Builder::stack_size") && text.contains("SINEW_STACK_KB"),
            "{text}"
        );
        report.name = ShortName::default();
        assert!(report.to_string().contains("fiber 12 overflowed"));
        let here = Location::caller();
        report.spawned_at = Some(here);
        let spawned = format!("fiber 12, spawned at {here}, overflowed");
        assert!(report.to_string().contains(&spawned));
    }

    #[test]
    fn a_fault_without_an_address_is_perhaps_a_signal_if_little_is_left() {
        let guard = 0x10000..0x11000;
        let fault = |address, pointer| Fault {
            address,
            stack_pointer: Some(pointer),
        };
        let find = |fault| OverflowBy::find(&fault, &guard);
        assert_eq!(find(fault(Some(0x10800), 0)), Some(OverflowBy::Touch));
        assert_eq!(find(fault(Some(0x11000), 0x11010)), None);
        let near = find(fault(None, 0x11010));
        assert_eq!(near, Some(OverflowBy::Signal { left: 0x10 }));
        let below = find(fault(None, 0x10ff0));
        assert_eq!(below, Some(OverflowBy::Signal { left: 0 }));
        assert_eq!(find(fault(None, 0x11000 + (64 << 10))), None);
        assert_eq!(find(fault(None, 0x8000)), None, "another stack");
    }

    #[test]
    fn a_long_name_is_cut_at_a_character() {
        let name = ShortName::new(&"ä".repeat(40));
        assert_eq!(name.as_str(), "ä".repeat(31));
    }
}
