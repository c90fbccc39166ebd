//! What a tree knows of its own cancellations: a frame here for each frame of the
//! library's, so that each answer of a point can be judged.
//!
//! Who cancels says so before (*asked*) and after (*came*). So a point that says
//! `Cancelled` while nothing it can see was asked for, nor any limit is over, is
//! wrong; and so is one that says nothing although a request had come before it began.

use sinew::time::Instant;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Whether something was asked to stop.
#[derive(Default)]
pub struct Request {
    asked: AtomicU32,
    /// Who owns the frame must see it.
    came: AtomicBool,
    /// All that is below must.
    came_below: AtomicBool,
}

impl Request {
    /// Somebody is about to cancel, or may from now on; true if it is the first.
    pub fn ask(&self) -> bool {
        self.asked.fetch_add(1, SeqCst) == 0
    }

    /// The call of the first who asked has returned.
    ///
    /// If two cancel the same the second may return before the first has told all.
    pub fn came(&self, alone: bool) {
        if self.asked.load(SeqCst) == 1 {
            self.came.store(true, SeqCst);
            self.came_below.store(alone, SeqCst);
        }
    }

    pub fn is_asked(&self) -> bool {
        self.asked.load(SeqCst) > 0
    }
}

enum Kind {
    /// Of a fiber.
    Root,
    Nest,
    /// With the request to the token above, if there is one.
    Token(Option<Arc<Request>>),
    Limit(Limit),
    Shield,
    /// From here inward it goes on on a thread of the blocking pool.
    Hop,
}

struct Limit {
    /// No timer is needed for this one: the first point sees it.
    is_zero: bool,
    /// Not before this.
    by: Instant,
    /// Something was told `Cancelled`, and nothing but this limit can be the cause.
    surely: AtomicBool,
    /// Something may have been cancelled because of it.
    maybe: AtomicBool,
}

/// Where a frame is, as seen from a point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// On the same stack.
    Own,
    /// On that of the fiber that waits in `blocking`.
    Caller,
    /// On that of the fiber or thread that has started this one, or beyond.
    Above,
}

/// One frame, on the stack that the library's is on.
pub struct Frame<'a> {
    outer: Option<&'a Frame<'a>>,
    kind: Kind,
    pub request: Arc<Request>,
}

impl<'a> Frame<'a> {
    fn new(outer: Option<&'a Self>, kind: Kind) -> Self {
        let request = Arc::default();
        Self {
            outer,
            kind,
            request,
        }
    }

    /// The root of a tree: a fiber's, or that of a thread, which nobody can cancel.
    pub fn first(request: Arc<Request>) -> Self {
        let frame = Self::new(None, Kind::Root);
        Self { request, ..frame }
    }

    pub fn root(nest: &'a Self, request: Arc<Request>) -> Self {
        let frame = Self::new(Some(nest), Kind::Root);
        Self { request, ..frame }
    }

    pub fn nest(&'a self) -> Self {
        Self::new(Some(self), Kind::Nest)
    }

    pub fn shield(&'a self) -> Self {
        Self::new(Some(self), Kind::Shield)
    }

    pub fn token(&'a self, request: Arc<Request>, above: Option<Arc<Request>>) -> Self {
        let frame = Self::new(Some(self), Kind::Token(above));
        Self { request, ..frame }
    }

    /// Made before the library's, so that this is over first.
    pub fn limit(&'a self, time: Duration) -> Self {
        let limit = Limit {
            is_zero: time.is_zero(),
            by: Instant::now() + time,
            surely: AtomicBool::new(false),
            maybe: AtomicBool::new(false),
        };
        Self::new(Some(self), Kind::Limit(limit))
    }

    /// Made before the call of `blocking`.
    pub fn hop(&'a self) -> Self {
        Self::new(Some(self), Kind::Hop)
    }

    /// All frames, from the innermost outward: what they are, and who has asked.
    pub fn describe(&self) -> String {
        let mut next = Some(self);
        let frames = std::iter::from_fn(|| {
            let frame: &Frame<'a> = next?;
            next = frame.outer;
            let kind = match &frame.kind {
                Kind::Root => "root",
                Kind::Nest => "nest",
                Kind::Token(_) => "token",
                Kind::Limit(_) => "limit",
                Kind::Shield => "shield",
                Kind::Hop => "hop",
            };
            let asked = frame.request.asked.load(SeqCst);
            let came = frame.request.came.load(SeqCst);
            let over = frame.is_over(Instant::now());
            Some(format!("{kind}(asked {asked}, came {came}, over {over})"))
        });
        frames.collect::<Vec<_>>().join(" < ")
    }

    /// From here to the first shield: what a point sees, and how far away it is.
    fn visible(&self) -> impl Iterator<Item = (&Frame<'a>, Distance)> {
        let mut next = Some(self);
        let mut distance = Distance::Own;
        std::iter::from_fn(move || {
            let frame: &Frame<'a> = next.filter(|frame| !matches!(frame.kind, Kind::Shield))?;
            next = frame.outer;
            let here = distance;
            match frame.kind {
                Kind::Root => distance = Distance::Above,
                Kind::Hop => distance = distance.max(Distance::Caller),
                _ => {}
            }
            Some((frame, here))
        })
    }

    fn is_over(&self, now: Instant) -> bool {
        matches!(&self.kind, Kind::Limit(limit) if limit.by <= now)
    }

    fn may_be_cause(&self, now: Instant) -> bool {
        let above = match &self.kind {
            Kind::Token(Some(above)) => above.is_asked(),
            _ => false,
        };
        above || self.request.is_asked() || self.is_over(now)
    }

    fn must_be_seen(&self, distance: Distance) -> bool {
        let above = match &self.kind {
            Kind::Token(Some(above)) => above.came_below.load(SeqCst),
            Kind::Limit(limit) => limit.is_zero,
            _ => false,
        };
        let request = match distance {
            Distance::Own | Distance::Caller => &self.request.came,
            Distance::Above => &self.request.came_below,
        };
        above || request.load(SeqCst)
    }

    /// The outermost request that whoever begins something now must see.
    pub fn seen(&self) -> Seen {
        let mut seen = ptr::null();
        for (frame, distance) in self.visible() {
            if frame.must_be_seen(distance) {
                seen = ptr::from_ref(frame).cast();
            }
        }
        Seen(seen)
    }

    /// Whether a child that is started now, in the nest that this is, must not run.
    ///
    /// Through `blocking` a request goes on when its caller has heard of it.
    pub fn bears_cancelled(&self) -> bool {
        self.visible()
            .filter(|(_, distance)| *distance != Distance::Caller)
            .any(|(frame, distance)| frame.must_be_seen(distance))
    }

    /// Judges the answer of a point that began when `before` was seen.
    pub fn judge(&self, before: &Seen, cancelled: bool) -> Result<(), &'static str> {
        if !cancelled {
            return if before.any() {
                Err("a point did not say that it was cancelled")
            } else {
                Ok(())
            };
        }
        let now = Instant::now();
        let mut causes = self.visible().filter(|(frame, _)| frame.may_be_cause(now));
        let Some((first, _)) = causes.next() else {
            return Err("a point said Cancelled, and nobody has cancelled");
        };
        if let (Kind::Limit(limit), None) = (&first.kind, causes.next()) {
            limit.surely.store(true, SeqCst);
        }
        self.note_limits(before, now);
        Ok(())
    }

    /// The outermost cause is the one: limits inside of what was seen before are none.
    fn note_limits(&self, before: &Seen, now: Instant) {
        let mut outward = !before.any();
        for (frame, distance) in self.visible() {
            let outward_here = outward && distance != Distance::Above;
            if let (Kind::Limit(limit), true) = (&frame.kind, outward_here) {
                if frame.is_over(now) {
                    limit.maybe.store(true, SeqCst);
                }
            }
            if ptr::from_ref(frame).cast() == before.0 {
                outward = true;
                if let Kind::Limit(limit) = &frame.kind {
                    limit.maybe.store(true, SeqCst);
                }
            }
        }
    }

    /// Whether anything that is seen from here may be cancelled.
    pub fn may_be_cancelled(&self) -> bool {
        let now = Instant::now();
        self.visible().any(|(frame, _)| frame.may_be_cause(now))
    }

    /// Fibers are started, or joined, here: limits can have an effect on them.
    pub fn has_others(&self) {
        for (frame, _) in self.visible() {
            if let Kind::Limit(limit) = &frame.kind {
                limit.maybe.store(true, SeqCst);
            }
        }
    }

    /// Judges the answer of `timeout`, whose frame this is.
    pub fn judge_limit(&self, elapsed: bool) -> Result<(), &'static str> {
        let Kind::Limit(limit) = &self.kind else {
            unreachable!("not a limit");
        };
        if !elapsed && limit.surely.load(SeqCst) {
            return Err("a limit has cancelled something, and does not say so");
        }
        if elapsed && !limit.maybe.load(SeqCst) {
            return Err("Elapsed, but nothing was cancelled because of this limit");
        }
        if elapsed && !self.is_over(Instant::now()) {
            return Err("Elapsed too early");
        }
        Ok(())
    }
}

/// What [`Frame::seen`] found.
pub struct Seen(*const ());

impl Seen {
    pub fn any(&self) -> bool {
        !self.0.is_null()
    }
}
