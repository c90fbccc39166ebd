//! A least share of time for fibers that others are preferred to.
//!
//! A picker that prefers some fibers can count how often it passed the others
//! over, but a turn may last a microsecond or a quantum, so that count says
//! nothing about time. A worker reads no clock when it switches. It does so when
//! it looks around because the monitor asked for it (`worker::urgency`), about
//! once in a millisecond, and asks here each time whether those others have been
//! passed over for too long. So a share is known to a tick of the monitor.

/// How long one group of ready fibers has been passed over.
pub(crate) struct Share {
    /// The group was ready at the last look, and none of it has run since.
    waits: bool,
    /// The look that first found it so, on the runtime's clock (ns).
    since: u64,
}

impl Share {
    pub(crate) const fn new() -> Self {
        Self {
            waits: false,
            since: 0,
        }
    }

    /// One of the group runs: the time begins anew at the next look.
    #[inline]
    pub(crate) fn served(&mut self) {
        self.waits = false;
    }

    /// Whether the group is owed a turn at `now`, because it has been passed over
    /// for `after`; `waits` says whether one of it is ready.
    pub(crate) fn look(&mut self, waits: bool, now: u64, after: u64) -> bool {
        if !waits || !self.waits {
            *self = Self { waits, since: now };
            return false;
        }
        now.saturating_sub(self.since) >= after
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Share;

    #[test]
    fn a_turn_is_owed_after_the_time_and_not_before() {
        let mut share = Share::new();
        assert!(!share.look(true, 100, 10));
        assert!(!share.look(true, 109, 10));
        assert!(share.look(true, 110, 10));
        assert!(share.look(true, 111, 10), "it is owed until it is served");
    }

    #[test]
    fn time_begins_anew_when_the_group_is_served_or_not_ready() {
        let mut share = Share::new();
        assert!(!share.look(true, 100, 10));
        share.served();
        assert!(!share.look(true, 111, 10));
        assert!(!share.look(false, 121, 10));
        assert!(!share.look(true, 131, 10));
        assert!(share.look(true, 141, 10));
    }
}
