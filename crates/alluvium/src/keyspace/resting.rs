//! The open cursors of one tree, so that what they hold of a replaced state can be taken from them while they rest.
//!
//! A cursor whose caller sleeps cannot let go by itself. Whoever replaces the tree's state therefore asks every open
//! cursor once, after the publication. One that is in a call at that moment is passed over: it finds the new state at
//! its next call, or is asked again at the next publication, so that it holds at most what one call has seen.

use std::sync::{Arc, OnceLock, Weak};

use crate::sync::plain::Mutex;
use crossbeam_utils::CachePadded;

use crate::cache::{COUNTER_SHARDS, thread_shard};

/// Something that keeps a state of the tree between two calls.
pub(crate) trait Resting: Send + Sync {
    /// Lets go of a state that was replaced, unless a call is in progress. Answers whether it had one. Never waits.
    fn let_go(&self) -> bool;
}

/// The open cursors of one tree.
#[derive(Default)]
pub(crate) struct OpenCursors {
    /// By the threads that opened them: two threads that open cursors all the time share no cache line. Each guards
    /// its list, for a push or a removal, and for a copy of the list; nothing is locked under it.
    /// Allocated with the first cursor, each shard with its first one, so that thousands of keyspaces without any take
    /// little.
    shards: OnceLock<Box<[OnceLock<Box<Shard>>; COUNTER_SHARDS]>>,
}

type Shard = CachePadded<Mutex<Slots>>;

#[derive(Default)]
struct Slots {
    cursors: Vec<Option<Weak<dyn Resting>>>,
    /// Places in `cursors` that hold none.
    free: Vec<u32>,
}

/// Where a cursor stands in the list; given back to [`OpenCursors::close`].
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

    /// Has every cursor that rests let go of a replaced state. Returns how many had one. Costs a look at every open
    /// cursor; memory and files are freed here, so call it without a lock that anybody waits for.
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
