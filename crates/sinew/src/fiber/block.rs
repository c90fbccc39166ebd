//! The control block: everything the runtime keeps of one fiber.
//!
//! 256 bytes, in a slab of their own ([`super::slab`]), which is also the
//! registry of all fibers. A handle or waker keeps the block alive, never the
//! stack. Who may touch which field, and when:
//!
//! | field                               | written by                           | read by                        |
//! |-------------------------------------|--------------------------------------|--------------------------------|
//! | `state`                             | anybody, by its transitions          | anybody                        |
//! | `id`, `runtime`, `table`, `spawned_at`, flags | who spawns, before `occupy` | anybody with a reference       |
//! | `slot`                              | see `fiber::slot`                    |                                |
//! | `context`, `suspender`, `rests_at`, `panics` | the owner (`fiber::state`, inv. 1)   | the owner                      |
//! | `root`                              | who spawns; the owner; at the end the fiber, under the lock of `joiners` | the owner; others under that lock |
//! | `home`, `has_context`               | the owner                            | the owner, and hints           |
//! | `link`                              | the owner, while in an inbox or free | the same                       |
//! | `reason`, `waits_at`, `priority`    | the fiber, a joiner (`priority`)     | anybody, as a hint             |
//! | `joiners`, the nests at the root    | under its lock                       | under its lock                 |
//! | `owner_waiter`                      | who has the handle, before `announce_owner` | the fiber, after `complete` |
//! | `claimed`                           | who starts it, once                  | who wants to start it          |
//!
//! References: one for the handle, one for the run, one for the queue entry of
//! an unstarted fiber. A joiner may claim an unstarted fiber out of the middle
//! of a queue; the entry it leaves behind is stale, and its reference keeps the
//! block until the entry is popped.

use super::cancel::{Hook, Nest};
use super::patience::Patience;
use super::place;
use super::polls::Polls;
use super::priority::Priority;
use super::reason::WaitReason;
use super::slot::{Slot, SlotTable};
use super::state::{Heard, State, Wake};
use crate::primitive::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, MODELLED, Ordering};
use crate::stack::{Stack, StackClass};
use crate::sys::Lock;
use crate::util::list::List;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A bit of [`Block::no_suspend`]: a hook runs. Apart from the count, which a coroutine that
/// is suspended inside of `no_suspend` may change whenever it is resumed, also in a hook.
pub(crate) const IN_HOOK: u16 = 1 << 15;

/// Why a fiber left its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// To the end of the queue.
    Yield,
    /// To let those run who wait, if there are any: the monitor asked for it.
    Safepoint,
    /// Until somebody wakes it.
    Park,
}

/// A saved execution: the switch is corosensei's.
pub(crate) type Context = corosensei::Coroutine<(), Intent, (), Stack>;
/// What a running fiber calls to leave its stack, saying why.
pub(crate) type Suspender = corosensei::Yielder<(), Intent>;

/// The size of a block.
pub(crate) const BLOCK_BYTES: usize = 256;
/// Closures and outcomes up to this size need no allocation.
pub(crate) const INLINE_BYTES: usize = BLOCK_BYTES - size_of::<Head>();
/// And up to this alignment.
pub(crate) const INLINE_ALIGN: usize = 16;

const _: () = {
    // With sanitizers a context is larger, and the room for closures smaller.
    let least = if cfg!(feature = "sanitizer") { 32 } else { 64 };
    assert!(
        MODELLED || (size_of::<Block>() == BLOCK_BYTES && INLINE_BYTES >= least),
        "a block has outgrown its size"
    );
};

/// How the layers above put a woken fiber back and reuse its block.
#[derive(Clone, Copy)]
pub(crate) struct Ops {
    /// Puts a fiber that the caller owns into a queue.
    pub(crate) enqueue: unsafe fn(NonNull<Block>),
    /// Takes a block without references back.
    pub(crate) recycle: unsafe fn(NonNull<Block>),
}

/// Who has such a table; a type of its own, so that tables are made at compile time.
pub(crate) trait OpsOf {
    const OPS: Ops;
}

/// What few fibers have, apart.
pub(crate) struct Extras {
    pub(crate) name: Option<Arc<str>>,
    /// The token that stands for the fiber, from when it was asked for until the
    /// fiber ends.
    pub(crate) hook: Lock<Option<Arc<dyn Hook>>>,
}

impl Extras {
    pub(super) fn new(name: Option<Arc<str>>) -> Self {
        Self {
            name,
            hook: Lock::new(None),
        }
    }
}

/// How a fiber was asked to be; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Does not keep its runtime alive.
    pub(crate) daemon: bool,
    /// Never leaves the worker it was spawned on.
    pub(crate) local: bool,
    /// May change workers also after it started.
    pub(crate) migratable: bool,
    /// Runs on a pool thread, without a stack of ours.
    pub(crate) on_pool: bool,
    /// Runs its closure even if it was cancelled before it began.
    pub(crate) always_runs: bool,
}

/// Set in `root` while that holds the nest of a fiber that has not begun.
pub(super) const TO_BE_CHILD: usize = 1;

/// In order: a wake-up and a switch to a fiber that nobody has touched for long load
/// two cache lines; the third has what begins, ends and describes it.
#[repr(C, align(16))]
struct Head {
    state: State,
    link: AtomicPtr<Block>,
    home: AtomicPtr<()>,
    table: Cell<Option<&'static SlotTable>>,
    waits_at: AtomicPtr<Location<'static>>,
    priority: AtomicU8,
    base_priority: Cell<Priority>,
    reason: AtomicU8,
    class: Cell<StackClass>,
    kind: Cell<Kind>,
    claimed: AtomicBool,
    has_context: AtomicBool,
    entry_merged: Cell<bool>,
    heard: Heard,
    /// Whether it pays to look again before a wait; for the owner.
    patience: Patience,
    /// Tries in vain since it was last resumed; for the owner.
    polls: Polls,
    loans: AtomicU8,
    pinned: Cell<bool>,
    no_suspend: Cell<u16>,
    panics: Cell<u16>,
    context: UnsafeCell<MaybeUninit<Context>>,
    suspender: Cell<*const Suspender>,
    /// Where on its stack it left it, about: to be loaded ahead.
    rests_at: Cell<*const ()>,
    /// The root of its stack, while it has one; before that the nest it is to be a
    /// child of, with the lowest bit set.
    root: AtomicPtr<()>,
    id: AtomicU64,
    runtime: AtomicPtr<()>,
    joiners: Lock<List>,
    owner_waiter: Cell<*const ()>,
    spawned_at: AtomicPtr<Location<'static>>,
    extras: AtomicPtr<Extras>,
}

/// One fiber; see the module header.
#[repr(C, align(64))]
pub(crate) struct Block {
    head: Head,
    slot: UnsafeCell<MaybeUninit<[u8; INLINE_BYTES]>>,
}

// SAFETY: every field is atomic, locked, or touched by one owner at a time as
// the table of the module header says; ownership moves by Release/Acquire pairs
// of the state word.
unsafe impl Sync for Block {}
// SAFETY: as above; a block is not tied to the thread that made it.
unsafe impl Send for Block {}

// A panic never leaves a block half changed: no user code runs while one is
// being changed.
impl std::panic::RefUnwindSafe for Block {}

/// What a new fiber is made of.
pub(crate) struct Birth<O> {
    pub(crate) runtime: NonNull<()>,
    pub(crate) ops: O,
    pub(crate) class: StackClass,
    pub(crate) priority: Priority,
    pub(crate) kind: Kind,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) spawned_at: &'static Location<'static>,
    /// The nest that it is a child of, which outlives it.
    pub(crate) parent: Option<NonNull<Nest>>,
}

impl Block {
    /// Fills a vacant block; two or three references as the header says.
    ///
    /// # Safety
    ///
    /// The caller got the block from the slab and nobody else knows it.
    pub(crate) unsafe fn occupy<F, T, O>(&self, birth: Birth<O>, closure: F)
    where
        F: FnOnce() -> T,
        O: OpsOf,
    {
        let head = &self.head;
        // Relaxed throughout: `State::occupy` publishes them with Release.
        head.link.store(ptr::null_mut(), Ordering::Relaxed);
        head.home.store(ptr::null_mut(), Ordering::Relaxed);
        head.runtime
            .store(birth.runtime.as_ptr(), Ordering::Relaxed);
        let _: O = birth.ops;
        head.table.set(Some(Slot::<F, T>::table::<O>()));
        let parent = birth.parent.map_or(ptr::null_mut(), |nest| {
            let nest = nest.as_ptr().cast::<()>();
            nest.map_addr(|addr| addr | TO_BE_CHILD)
        });
        head.root.store(parent, Ordering::Relaxed);
        head.spawned_at.store(
            ptr::from_ref(birth.spawned_at).cast_mut(),
            Ordering::Relaxed,
        );
        head.waits_at.store(ptr::null_mut(), Ordering::Relaxed);
        let extras = match birth.name {
            None => ptr::null_mut(),
            name => Box::into_raw(Box::new(Extras::new(name))),
        };
        // Release: pairs with `extras`.
        head.extras.store(extras, Ordering::Release);
        head.priority.store(birth.priority as u8, Ordering::Relaxed);
        head.base_priority.set(birth.priority);
        head.reason.store(WaitReason::None as u8, Ordering::Relaxed);
        head.class.set(birth.class);
        head.kind.set(birth.kind);
        // A pool's task is nobody's to start but a pool thread's.
        head.claimed.store(birth.kind.on_pool, Ordering::Relaxed);
        head.has_context.store(false, Ordering::Relaxed);
        head.rests_at.set(ptr::null());
        head.entry_merged.set(false);
        head.heard.reset();
        head.patience.reset();
        head.polls.reset();
        head.loans.store(0, Ordering::Relaxed);
        head.pinned.set(false);
        head.no_suspend.set(0);
        head.panics.set(0);
        // SAFETY: a vacant block's slot holds nothing, and we own the block.
        unsafe { Slot::<F, T>::put(self.slot(), closure) };
        head.state.occupy(if birth.kind.on_pool { 2 } else { 3 });
    }

    pub(crate) fn state(&self) -> &State {
        &self.head.state
    }

    pub(crate) fn id(&self) -> u64 {
        // Relaxed: constant while there are references.
        self.head.id.load(Ordering::Relaxed)
    }

    pub(crate) fn set_id(&self, id: u64) {
        // Relaxed: published by `State::occupy`.
        self.head.id.store(id, Ordering::Relaxed);
    }

    /// The link of whichever list the owner put the block into.
    pub(crate) fn link(&self) -> &AtomicPtr<Block> {
        &self.head.link
    }

    /// The runtime it belongs to, as the layer that knows its type stored it.
    pub(crate) fn runtime(&self) -> *mut () {
        // Relaxed: constant while there are references.
        self.head.runtime.load(Ordering::Relaxed)
    }

    /// The worker it is on, if it has one yet.
    ///
    /// Relaxed: exact for the owner, which got the block through an Acquire; a
    /// hint for everybody else.
    pub(crate) fn home(&self) -> *mut () {
        self.head.home.load(Ordering::Relaxed)
    }

    pub(crate) fn set_home(&self, worker: *mut ()) {
        self.head.home.store(worker, Ordering::Relaxed);
    }

    pub(crate) fn table(&self) -> &'static SlotTable {
        self.head
            .table
            .get()
            .expect("an occupied block has a table")
    }

    pub(crate) fn slot(&self) -> *mut u8 {
        self.slot.get().cast()
    }

    /// The saved execution; for the owner.
    pub(crate) fn context(&self) -> *mut MaybeUninit<Context> {
        self.head.context.get()
    }

    /// Whether it was started, and has not left its stack for good: also a fiber that
    /// has completed may still run wakers and destructors there.
    ///
    /// Relaxed: exact for the owner, which got the block through an Acquire, and for
    /// the worker that is its home (`slab::is_home`); a hint for others.
    pub(crate) fn has_context(&self) -> bool {
        self.head.has_context.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_context(&self, has: bool) {
        self.head.has_context.store(has, Ordering::Relaxed);
    }

    /// For `fiber::hanging`.
    #[inline]
    pub(super) fn root_cell(&self) -> &AtomicPtr<()> {
        &self.head.root
    }

    /// For `fiber::hanging`.
    pub(super) fn extras_cell(&self) -> &AtomicPtr<Extras> {
        &self.head.extras
    }

    #[inline]
    pub(crate) fn suspender(&self) -> *const Suspender {
        self.head.suspender.get()
    }

    pub(crate) fn set_suspender(&self, suspender: *const Suspender) {
        self.head.suspender.set(suspender);
    }

    /// Where on its stack it left it last, about; for its owner.
    #[inline]
    pub(crate) fn rests_at(&self) -> *const () {
        self.head.rests_at.get()
    }

    #[inline]
    pub(crate) fn set_rests_at(&self, frame: *const ()) {
        self.head.rests_at.set(frame);
    }

    /// Those who wait for its end. The same lock guards the nests at its root.
    pub(crate) fn joiners(&self) -> &Lock<List> {
        &self.head.joiners
    }

    /// Where the owner of the handle waits; see `wait::end`.
    pub(crate) fn owner_waiter(&self) -> &Cell<*const ()> {
        &self.head.owner_waiter
    }

    pub(crate) fn kind(&self) -> Kind {
        self.head.kind.get()
    }

    pub(crate) fn class(&self) -> StackClass {
        self.head.class.get()
    }

    /// It runs on a stack of another class than it was made for; by its owner.
    pub(crate) fn set_class(&self, class: StackClass) {
        self.head.class.set(class);
    }

    pub(crate) fn priority(&self) -> Priority {
        // Relaxed: a hint for the choice of a queue.
        Priority::from_byte(self.head.priority.load(Ordering::Relaxed))
    }

    /// The priority as the number of a queue's level.
    #[inline]
    pub(crate) fn level(&self) -> usize {
        // Only ever 0 to 3: the mask lets the compiler know.
        usize::from(self.head.priority.load(Ordering::Relaxed)) & (Priority::LEVELS - 1)
    }

    pub(crate) fn base_priority(&self) -> Priority {
        self.head.base_priority.get()
    }

    /// Raises the priority; false if it was as high already.
    pub(crate) fn raise_priority(&self, to: Priority) -> bool {
        // Relaxed: as above.
        self.head.priority.fetch_max(to as u8, Ordering::Relaxed) < to as u8
    }

    /// Lowers the priority, unless it was raised since it was `from`.
    pub(crate) fn lower_priority(&self, from: Priority, to: Priority) {
        // Relaxed: as above. Losing to a raise is what we want.
        let _ = self.head.priority.compare_exchange(
            from as u8,
            to as u8,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Through how many locks that it holds its priority is raised; see
    /// `wait::lend`.
    pub(crate) fn loans(&self) -> &AtomicU8 {
        &self.head.loans
    }

    /// Says why and where the fiber is about to wait.
    pub(crate) fn set_wait(&self, reason: WaitReason, at: &'static Location<'static>) {
        // Relaxed: read by dumps as a hint.
        self.head.reason.store(reason as u8, Ordering::Relaxed);
        self.head
            .waits_at
            .store(ptr::from_ref(at).cast_mut(), Ordering::Relaxed);
    }

    /// Says that the wait is over; where it was stays known.
    pub(crate) fn clear_wait(&self) {
        self.head
            .reason
            .store(WaitReason::None as u8, Ordering::Relaxed);
    }

    pub(crate) fn wait_reason(&self) -> WaitReason {
        WaitReason::from_byte(self.head.reason.load(Ordering::Relaxed))
    }

    /// Where it waits, or waited last; none if that is not a line of the program's.
    pub(crate) fn waits_at(&self) -> Option<&'static Location<'static>> {
        // SAFETY: only ever null or a `&'static Location`.
        let at = unsafe { self.head.waits_at.load(Ordering::Relaxed).as_ref() };
        at.filter(|at| !place::is_ours(at))
    }

    pub(crate) fn spawned_at(&self) -> Option<&'static Location<'static>> {
        // SAFETY: only ever null or a `&'static Location`.
        unsafe { self.head.spawned_at.load(Ordering::Relaxed).as_ref() }
    }

    /// Claims the right to start the fiber; true for exactly one caller.
    pub(crate) fn claim_start(&self) -> bool {
        // Relaxed: who pops the entry sees the closure through the queue, a
        // joiner through whoever gave it the handle; losers touch nothing. With
        // one worker a load and a store would nearly do: but whoever ends a
        // runtime claims too.
        !self.is_claimed() && !self.head.claimed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.head.claimed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn polls(&self) -> &Polls {
        &self.head.polls
    }

    #[inline]
    pub(crate) fn patience(&self) -> &Patience {
        &self.head.patience
    }

    /// The last notification it has heard of; for the owner.
    pub(crate) fn heard(&self) -> &Heard {
        &self.head.heard
    }

    /// Whether the reference of the queue entry was taken over by the run.
    pub(crate) fn entry_merged(&self) -> bool {
        self.head.entry_merged.get()
    }

    pub(crate) fn merge_entry(&self) {
        self.head.entry_merged.set(true);
    }

    /// Whether something of its stack holds the fiber to this worker: a timer in
    /// the wheel, or an operation in the ring.
    pub(crate) fn pinned(&self) -> bool {
        self.head.pinned.get()
    }

    pub(crate) fn set_pinned(&self, pinned: bool) {
        self.head.pinned.set(pinned);
    }

    /// How many `no_suspend` closures the fiber is in, and [`IN_HOOK`]. It may be suspended
    /// only while this is zero.
    pub(crate) fn no_suspend(&self) -> &Cell<u16> {
        &self.head.no_suspend
    }

    /// How many of its panics are not counted by the thread at the moment.
    pub(crate) fn panics(&self) -> &Cell<u16> {
        &self.head.panics
    }

    /// The extras, valid while the block is occupied; see `slab::peek`.
    pub(crate) fn extras(&self) -> *mut Extras {
        // Acquire: the monitor reads them without a reference; pairs with the
        // Release in `occupy`.
        self.head.extras.load(Ordering::Acquire)
    }

    pub(crate) fn clear_extras(&self) {
        self.head.extras.store(ptr::null_mut(), Ordering::Relaxed);
    }

    pub(super) fn ops(&self) -> &'static Ops {
        &self.table().ops
    }

    /// Follows a wake up: enqueues the fiber if that fell to the caller.
    ///
    /// # Safety
    ///
    /// `wake` is the answer of this block's state word to the caller.
    pub(crate) unsafe fn follow(&self, wake: Wake) {
        if wake == Wake::Enqueue {
            // SAFETY: `Enqueue` made the caller the owner (state, invariant 3).
            unsafe { (self.ops().enqueue)(NonNull::from(self)) };
        }
    }
}

impl Block {
    /// A vacant block, as the slab makes them.
    pub(crate) fn vacant() -> Self {
        Self {
            head: Head {
                state: State::vacant(),
                id: AtomicU64::new(0),
                link: AtomicPtr::new(ptr::null_mut()),
                home: AtomicPtr::new(ptr::null_mut()),
                runtime: AtomicPtr::new(ptr::null_mut()),
                table: Cell::new(None),
                context: UnsafeCell::new(MaybeUninit::uninit()),
                suspender: Cell::new(ptr::null()),
                rests_at: Cell::new(ptr::null()),
                root: AtomicPtr::new(ptr::null_mut()),
                joiners: Lock::new(List::new()),
                owner_waiter: Cell::new(ptr::null()),
                spawned_at: AtomicPtr::new(ptr::null_mut()),
                waits_at: AtomicPtr::new(ptr::null_mut()),
                extras: AtomicPtr::new(ptr::null_mut()),
                priority: AtomicU8::new(0),
                base_priority: Cell::new(Priority::Normal),
                reason: AtomicU8::new(0),
                class: Cell::new(StackClass::SMALLEST),
                kind: Cell::new(Kind {
                    daemon: false,
                    local: false,
                    migratable: false,
                    on_pool: false,
                    always_runs: false,
                }),
                claimed: AtomicBool::new(false),
                has_context: AtomicBool::new(false),
                entry_merged: Cell::new(false),
                heard: Heard::new(),
                patience: Patience::new(),
                polls: Polls::new(),
                loans: AtomicU8::new(0),
                pinned: Cell::new(false),
                no_suspend: Cell::new(0),
                panics: Cell::new(0),
            },
            slot: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}
