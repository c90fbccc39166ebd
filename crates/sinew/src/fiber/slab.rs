//! Where control blocks live, and the registry of all fibers.
//!
//! Blocks come in chunks of 256 (64 KiB, mapped on their own so that they can
//! be given back). A worker keeps a [`BlockCache`] and goes to the registry,
//! which is behind a lock, once per batch. One registry serves the process:
//! handles may outlive their runtime.
//!
//! A fiber's id is its slot and the slot's generation (`fiber::id`). A generation is
//! used once. When a chunk's memory is given back, the highest one used in it is
//! remembered; a slot whose generations are used up (after 3.4e10 fibers) is retired.
//! So ids are never reused.
//!
//! Invariant 1: a chunk is unmapped only under the lock and only while all its
//! blocks are free. Who holds the lock may therefore look at any block of any
//! mapped chunk, and turn the look into a reference by `State::try_acquire`.
//! Invariant 2: extras (names) are freed only under the lock.

use super::block::{BLOCK_BYTES, Block, Extras};
use super::block_ref::BlockRef;
use super::id::{FIRST_GENERATION, LAST_GENERATION, SLOT_BITS, SLOT_MASK};
use crate::sys::map::{self, Mapping};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

const CHUNK_BLOCKS: usize = 256;
/// A worker takes this many at once…
const REFILL: usize = 64;
/// …and gives half back when it has more than this.
const CACHE_LIMIT: usize = 256;
/// Chunks that stay mapped while wholly free, whatever happens.
const SPARE_CHUNKS: usize = 4;
/// While there is work, a chunk is given back when it has been wholly free for
/// this many calls of [`trim`].
const PATIENCE: u32 = 10;

struct Chunk {
    memory: Option<Mapping>,
    /// Free blocks, linked through `Block::link`.
    free: *mut Block,
    free_count: usize,
    /// Every generation used in a former life of this memory is below.
    first_generation: u64,
    /// Is its number in `Registry::available`?
    listed: bool,
    /// How many calls of `trim` have found it wholly free.
    free_for: u32,
}

struct Registry {
    chunks: Vec<Chunk>,
    /// Numbers of chunks that have, or had lately, a free block.
    available: Vec<usize>,
    /// Mapped chunks all of whose blocks are free.
    wholly_free: usize,
}

// SAFETY: the raw pointers lead to chunk memory, which belongs to the registry
// and is only touched under its lock (invariant 1).
unsafe impl Send for Registry {}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    chunks: Vec::new(),
    available: Vec::new(),
    wholly_free: 0,
});

fn registry() -> MutexGuard<'static, Registry> {
    // Nothing in here panics halfway through a change.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn slot_of(id: u64) -> usize {
    (id & SLOT_MASK) as usize
}

impl Chunk {
    fn blocks(&self) -> *mut Block {
        self.memory
            .as_ref()
            .map_or(ptr::null_mut(), |memory| memory.start() as *mut Block)
    }

    /// Maps the chunk's memory and puts all its blocks on the free list.
    fn map(&mut self, number: usize) -> std::io::Result<()> {
        let memory = Mapping::reserve(CHUNK_BLOCKS * BLOCK_BYTES, BLOCK_BYTES)?;
        // All pages at once instead of a fault for each. A refusal only means
        // that they fault after all.
        // SAFETY: our own new mapping.
        let _ = unsafe { map::advise(memory.span(), map::Advice::PopulateWrite) };
        let blocks = memory.start() as *mut Block;
        for index in (0..CHUNK_BLOCKS).rev() {
            // SAFETY: the mapping holds CHUNK_BLOCKS blocks, aligned to more
            // than a block's alignment, and is ours alone.
            let block = unsafe {
                let at = blocks.add(index);
                at.write(Block::vacant());
                &*at
            };
            let slot = (number * CHUNK_BLOCKS + index) as u64;
            block.set_id(self.first_generation << SLOT_BITS | slot);
            // Relaxed: free blocks are only touched under the lock.
            block
                .link()
                .store(self.free, std::sync::atomic::Ordering::Relaxed);
            self.free = ptr::from_ref(block).cast_mut();
        }
        self.free_count = CHUNK_BLOCKS;
        self.memory = Some(memory);
        Ok(())
    }

    /// Gives the memory back; every block is free.
    fn unmap(&mut self) {
        debug_assert_eq!(self.free_count, CHUNK_BLOCKS);
        let blocks = self.blocks();
        for index in 0..CHUNK_BLOCKS {
            // SAFETY: mapped until below, and free blocks are ours.
            let generation = unsafe { (*blocks.add(index)).id() } >> SLOT_BITS;
            self.first_generation = self.first_generation.max(generation);
        }
        if let Some(memory) = self.memory.take() {
            self.free = ptr::null_mut();
            self.free_count = 0;
            // A refused munmap leaks 64 KiB of address space; nothing else.
            if let Err((memory, _)) = memory.unmap() {
                memory.leak();
            }
        }
    }
}

impl Registry {
    /// Moves up to `count` free blocks into `into`.
    fn take(&mut self, count: usize, into: &mut Vec<NonNull<Block>>) -> std::io::Result<()> {
        while into.len() < count {
            let Some(&number) = self.available.last() else {
                self.grow()?;
                continue;
            };
            let chunk = &mut self.chunks[number];
            if chunk.free_count == CHUNK_BLOCKS {
                self.wholly_free -= 1;
                chunk.free_for = 0;
            }
            while into.len() < count {
                let Some(block) = NonNull::new(chunk.free) else {
                    chunk.listed = false;
                    self.available.pop();
                    break;
                };
                // SAFETY: on the free list, hence mapped and ours.
                chunk.free = unsafe { block.as_ref() }
                    .link()
                    .load(std::sync::atomic::Ordering::Relaxed);
                chunk.free_count -= 1;
                into.push(block);
            }
        }
        Ok(())
    }

    /// Makes a chunk with free blocks available.
    fn grow(&mut self) -> std::io::Result<()> {
        let unmapped = self.chunks.iter().position(|chunk| chunk.memory.is_none());
        let number = unmapped.unwrap_or(self.chunks.len());
        if number * CHUNK_BLOCKS + CHUNK_BLOCKS > SLOT_MASK as usize {
            return Err(std::io::Error::other(
                "more fibers than ids: 268435456 are alive",
            ));
        }
        if number == self.chunks.len() {
            self.chunks.push(Chunk {
                memory: None,
                free: ptr::null_mut(),
                free_count: 0,
                first_generation: FIRST_GENERATION,
                listed: false,
                free_for: 0,
            });
        }
        self.chunks[number].map(number)?;
        self.chunks[number].listed = true;
        self.available.push(number);
        self.wholly_free += 1;
        Ok(())
    }

    fn give(&mut self, block: NonNull<Block>) {
        // SAFETY: a free block that the caller hands over.
        let held = unsafe { block.as_ref() };
        let number = slot_of(held.id()) / CHUNK_BLOCKS;
        let chunk = &mut self.chunks[number];
        held.link()
            .store(chunk.free, std::sync::atomic::Ordering::Relaxed);
        chunk.free = block.as_ptr();
        chunk.free_count += 1;
        if !chunk.listed {
            chunk.listed = true;
            self.available.push(number);
        }
        if chunk.free_count == CHUNK_BLOCKS {
            self.wholly_free += 1;
        }
    }

    fn trim(&mut self, patience: u32) {
        let mut unmapped = false;
        for chunk in &mut self.chunks {
            if self.wholly_free <= SPARE_CHUNKS {
                break;
            }
            if chunk.memory.is_none() || chunk.free_count != CHUNK_BLOCKS {
                continue;
            }
            chunk.free_for += 1;
            if chunk.free_for > patience {
                chunk.free_for = 0;
                chunk.listed = false;
                chunk.unmap();
                self.wholly_free -= 1;
                unmapped = true;
            }
        }
        if unmapped {
            let chunks = &self.chunks;
            self.available.retain(|&number| chunks[number].listed);
        }
    }
}

/// Gives memory of wholly free chunks back: all of it if nothing runs, else
/// what was not used for a while. The monitors call it.
pub(crate) fn trim(all: bool) {
    registry().trim(if all { 0 } else { PATIENCE });
}

/// Prepares a block for its next life; false if its slot is used up.
fn renew(block: NonNull<Block>) -> bool {
    // SAFETY: the caller took it off a free list or freed it itself.
    let held = unsafe { block.as_ref() };
    let id = held.id();
    if id >> SLOT_BITS >= LAST_GENERATION {
        return false;
    }
    held.set_id(id + (1 << SLOT_BITS));
    true
}

fn free_extras(block: NonNull<Block>) {
    // SAFETY: no references are left, so the extras are ours to free.
    let held = unsafe { block.as_ref() };
    let extras = held.extras();
    if extras.is_null() {
        return;
    }
    // Invariant 2: the monitor may be reading the name.
    let _lock = registry();
    held.clear_extras();
    // SAFETY: made by `Box::into_raw` in `Block::occupy`, freed once.
    drop(unsafe { Box::from_raw(extras) });
}

/// Takes one block without a cache: for threads that are no workers.
pub(crate) fn take_one() -> std::io::Result<NonNull<Block>> {
    let mut one = Vec::with_capacity(1);
    registry().take(1, &mut one)?;
    Ok(one.pop().expect("asked for one"))
}

/// Gives one block back without a cache.
///
/// # Safety
///
/// The block has no references left.
pub(crate) unsafe fn give_one(block: NonNull<Block>) {
    free_extras(block);
    if renew(block) {
        registry().give(block);
    }
}

/// Whether a started fiber that has not left its stack for good has this worker as
/// its home; `worker` is the value of `Block::home`.
///
/// For the worker itself, outside of its fibers. It is exact where it matters: `home`
/// and `has_context` of a fiber that stays here were written by this very thread, and a
/// migratable fiber's were seen by it when it ran here last. That such a fiber has ended
/// elsewhere is seen after the fence in `worker::run`. If another worker has taken
/// that fiber meanwhile, this reads the old home or the new one, and with the new one the
/// other worker will find it.
///
/// The lock is taken for one chunk at a time. The answer "no" is final all the same. Only this
/// thread makes this worker a home, and it is here: so a fiber whose home it is at the end
/// had that home all the time, in the same block, and was found when its chunk was looked at.
/// A chunk that is mapped meanwhile has no such block.
pub(crate) fn is_home(worker: *mut ()) -> bool {
    (0..)
        .map_while(|chunk| is_home_in(chunk, worker))
        .any(|found| found)
}

/// The same for the chunk with this number; none if there are fewer chunks.
fn is_home_in(chunk: usize, worker: *mut ()) -> Option<bool> {
    let registry = registry();
    let blocks = registry.chunks.get(chunk)?.blocks();
    let found = !blocks.is_null()
        && (0..CHUNK_BLOCKS).any(|index| {
            // SAFETY: mapped, and stays so under the lock (invariant 1); only atomics are
            // read. A fiber with a context keeps its runtime (`worker::shutdown`, invariant
            // "homes"), so a home at this address is this worker.
            let block = unsafe { &*blocks.add(index) };
            block.has_context() && block.home() == worker
        });
    Some(found)
}

/// Calls `visit` with a reference to every fiber of `runtime` that has not ended,
/// which the caller keeps alive.
///
/// A fiber that has completed, but not left its stack, has not ended. Both kinds keep
/// their runtime, so an equal address is the same runtime.
///
/// The lock is taken for one chunk at a time, and `visit` runs without it. A fiber that is
/// there from the beginning to the end is visited once; one that is made or ends meanwhile
/// perhaps.
pub(crate) fn for_each_of(runtime: *mut (), mut visit: impl FnMut(BlockRef)) {
    let mut chunk = 0;
    while let Some(found) = of_chunk(runtime, chunk) {
        found.into_iter().for_each(&mut visit);
        chunk += 1;
    }
}

/// References to the fibers of `runtime` in the chunk with this number; none if there are
/// fewer chunks. Their numbers never change.
pub(crate) fn of_chunk(runtime: *mut (), chunk: usize) -> Option<Vec<BlockRef>> {
    let mut found = Vec::new();
    {
        let registry = registry();
        let blocks = registry.chunks.get(chunk)?.blocks();
        if !blocks.is_null() {
            for index in 0..CHUNK_BLOCKS {
                // SAFETY: mapped, and stays so under the lock (invariant 1).
                let block = unsafe { &*blocks.add(index) };
                if block.state().try_acquire() {
                    // SAFETY: just acquired.
                    found.push(unsafe { BlockRef::from_counted(NonNull::from(block)) });
                }
            }
        }
    }
    // With a reference in hand the fields are constant and visible. Those of others are
    // dropped here, where the lock is not held: the last reference takes it.
    found.retain(|block| {
        let ended = block.state().load().complete() && !block.has_context();
        block.runtime() == runtime && !ended
    });
    Some(found)
}

/// A reference to the block at this address, if a fiber is there that has not
/// completed.
///
/// For a caller that knows only that one was there: it may have ended, and another may
/// be in its place. A completed fiber is refused, because its runtime may be gone.
pub(crate) fn find(address: *const Block) -> Option<BlockRef> {
    let registry = registry();
    let bytes = CHUNK_BLOCKS * BLOCK_BYTES;
    registry
        .chunks
        .iter()
        .filter(|chunk| chunk.memory.is_some())
        .find(|chunk| (address as usize).wrapping_sub(chunk.blocks() as usize) < bytes)?;
    // SAFETY: in a mapped chunk, which stays so under the lock (invariant 1);
    // whoever stored the address had it of a block.
    let block = unsafe { &*address };
    if !block.state().try_acquire() {
        return None;
    }
    // SAFETY: just acquired.
    let found = unsafe { BlockRef::from_counted(NonNull::from(block)) };
    drop(registry); // the reference may be the last when it goes
    (!found.state().load().complete()).then_some(found)
}

/// Lets `look` read a block and its name although its fiber may end meanwhile.
///
/// For the monitor, which has no reference: the memory stays mapped and names
/// stay allocated under the lock (invariants 1 and 2), but the block may have
/// been reused: the caller checks afterwards that nothing changed.
///
/// # Safety
///
/// `load` reads a place that a worker clears before it gives up its reference to
/// the block it names: so under the lock what is found there is mapped.
pub(crate) unsafe fn peek<R>(
    load: impl FnOnce() -> *const Block,
    look: impl FnOnce(&Block, Option<&Extras>) -> R,
) -> Option<R> {
    let _lock = registry();
    let block = NonNull::new(load().cast_mut())?;
    // SAFETY: `load` ran under the lock, so the block's chunk was mapped then
    // and stays mapped (invariant 1); its extras stay allocated (invariant 2).
    unsafe {
        let block = block.as_ref();
        if block.state().load().references() == 0 {
            return None; // it has just ended
        }
        Some(look(block, block.extras().as_ref()))
    }
}

/// A worker's own stock of free blocks: no lock on the fast path.
pub(crate) struct BlockCache {
    free: Vec<NonNull<Block>>,
}

impl BlockCache {
    pub(crate) fn new() -> Self {
        Self {
            free: Vec::with_capacity(CACHE_LIMIT + 1),
        }
    }

    pub(crate) fn take(&mut self) -> std::io::Result<NonNull<Block>> {
        if let Some(block) = self.free.pop() {
            return Ok(block);
        }
        registry().take(REFILL, &mut self.free)?;
        Ok(self.free.pop().expect("just refilled"))
    }

    /// # Safety
    ///
    /// The block has no references left.
    pub(crate) unsafe fn give(&mut self, block: NonNull<Block>) {
        free_extras(block);
        if !renew(block) {
            return;
        }
        self.free.push(block);
        if self.free.len() > CACHE_LIMIT {
            self.shrink_to(CACHE_LIMIT / 2);
        }
    }

    /// Keeps the blocks freed last, which are warm, and gives the others back.
    pub(crate) fn shrink_to(&mut self, keep: usize) {
        let surplus = self.free.len().saturating_sub(keep);
        let mut registry = registry();
        for block in self.free.drain(..surplus) {
            registry.give(block);
        }
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{BlockCache, slot_of};
    use std::collections::HashSet;

    #[test]
    fn ids_are_never_reused_even_when_chunks_come_and_go() {
        let mut seen = HashSet::new();
        let mut cache = BlockCache::new();
        for _ in 0..3 {
            let mut taken = Vec::new();
            for _ in 0..5000 {
                let block = cache.take().unwrap();
                // SAFETY: just taken; nobody else has it.
                assert!(seen.insert(unsafe { block.as_ref() }.id()));
                taken.push(block);
            }
            for block in taken {
                // SAFETY: it never had references.
                unsafe { cache.give(block) };
            }
            cache.shrink_to(0);
        }
        assert!(seen.iter().all(|&id| id >> super::SLOT_BITS > 0));
        assert!(seen.iter().map(|&id| slot_of(id)).max().unwrap() < 1 << 20);
    }
}
