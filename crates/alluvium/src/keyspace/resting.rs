//! Open cursors of one tree: a resting cursor can be made to release a replaced state of the tree.
//!
//! A cursor cannot release anything while its caller sleeps. After publishing a new state, the
//! thread that replaced it therefore asks every open cursor once. It skips a cursor in a call at
//! that moment; such a cursor finds the new state at its next call, or is asked again at the next
//! publication, so it retains at most the state of one call.

use std::sync::{Arc, OnceLock, Weak};

use crate::sync::plain::Mutex;
use crossbeam_utils::CachePadded;

use crate::sync::{THREAD_SHARDS, thread_shard};

/// Object that keeps a state of the tree between two calls.
pub(crate) trait Resting: Send + Sync {
    /// Releases a replaced state, unless a call is in progress. Returns true if it held one. Never
    /// waits.
    fn let_go(&self) -> bool;
}

/// Open cursors of one tree.
#[derive(Default)]
pub(crate) struct OpenCursors {
    /// Sharded by the opening thread: two threads that open cursors all the time share no cache
    /// line. Each mutex guards its list, for a push, a removal or a copy of the list; nothing is
    /// locked under it. The array is allocated with the first cursor, and each shard with its first
    /// one, so that thousands of keyspaces without cursors take little memory.
    shards: OnceLock<Box<[OnceLock<Box<Shard>>; THREAD_SHARDS]>>,
}

type Shard = CachePadded<Mutex<Slots>>;

#[derive(Default)]
struct Slots {
    cursors: Vec<Option<Weak<dyn Resting>>>,
    /// Free slots in `cursors`.
    free: Vec<u32>,
}

/// Slot of a cursor in the list; passed to [`OpenCursors::close`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenCursor {
    shard: u32,
    slot: u32,
}

impl OpenCursors {
    /// Adds a cursor, before it loads a state.
    pub fn open(&self, cursor: Weak<dyn Resting>) -> OpenCursor {
        let shard = thread_shard();
        let mut slots = self.shard(shard).lock();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                slots.cursors.push(None);
                slots.cursors.len() as u32 - 1
            }
        };
        slots.cursors[slot as usize] = Some(cursor);
        let shard = shard as u32;
        OpenCursor { shard, slot }
    }

    /// Removes a cursor.
    pub fn close(&self, cursor: OpenCursor) {
        let mut slots = self.shard(cursor.shard as usize).lock();
        slots.cursors[cursor.slot as usize] = None;
        slots.free.push(cursor.slot);
    }

    fn shard(&self, shard: usize) -> &Shard {
        let shards = self.shards.get_or_init(Box::default);
        shards[shard].get_or_init(Box::default)
    }

    /// Makes every resting cursor release a replaced state. Returns the number of cursors that held
    /// one. Visits every open cursor; memory and files are freed here, so call it without a lock
    /// that other threads wait for.
    pub fn release(&self) -> u64 {
        let mut released = 0;
        let shards = self
            .shards
            .get()
            .into_iter()
            .flat_map(|shards| shards.iter());
        for shard in shards.filter_map(OnceLock::get) {
            let open: Vec<Arc<dyn Resting>> = {
                let slots = shard.lock();
                let cursors = slots.cursors.iter().flatten();
                cursors.filter_map(Weak::upgrade).collect()
            };
            released += open.iter().filter(|cursor| cursor.let_go()).count() as u64;
        }
        released
    }
}
