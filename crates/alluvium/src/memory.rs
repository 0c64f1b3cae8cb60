//! Accounts of the memory budget: what takes it beside the block cache, and how that is charged.
//!
//! The block cache has what all uses here leave, so a charge is a change of its capacity: see [`Cache`]. Memtables and
//! open tables are charged exactly, by themselves, for as long as anybody holds them. The rest is charged by a [`Charge`],
//! which follows its bytes in steps: what is smaller than a step is never counted, and no row touches an atomic that
//! others touch too.
//!
//! Charged is what was allocated, unused capacity included, as far as the engine knows it. The remainder is the
//! allocator's (see `docs/guide/keyspaces.md`), stacks, and a few megabytes of idle buffers of the process.

use std::sync::Arc;

use crate::cache::Cache;

/// What takes memory beside cached blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Memtables with their filters and range deletes, from their making until nobody holds them any more.
    Memtables,
    /// Open tables: fences, filters, range deletes, properties and the cache's slots; and dead intervals of keyspaces.
    Tables,
    /// Buffers of flushes, merges, ingests and bulk loads.
    Jobs,
    /// Writes and locks of open transactions.
    Writes,
    /// Batches and commits on their way: the operations, and the log's copy of them.
    Commits,
    /// Prepared transactions.
    Prepared,
}

impl Use {
    /// Each use, in the order of their numbers.
    pub const ALL: [Use; 6] = [
        Use::Memtables,
        Use::Tables,
        Use::Jobs,
        Use::Writes,
        Use::Commits,
        Use::Prepared,
    ];
}

/// How far a charge may be from the bytes that it stands for.
pub const CHARGE_STEP: usize = 64 << 10;

/// What one user of memory is charged; given back when it is dropped.
pub struct Charge {
    cache: Arc<Cache>,
    what: Use,
    bytes: usize,
}

impl Charge {
    /// Nothing yet.
    pub fn new(cache: &Arc<Cache>, what: Use) -> Charge {
        Charge {
            cache: Arc::clone(cache),
            what,
            bytes: 0,
        }
    }

    /// Bytes that stay the same; `None` for fewer than a step.
    pub fn of(cache: &Arc<Cache>, what: Use, bytes: usize) -> Option<Charge> {
        (bytes >= CHARGE_STEP).then(|| {
            let mut charge = Charge::new(cache, what);
            charge.set(bytes);
            charge
        })
    }

    /// From now on `bytes` are taken. Where that is more, the cache gives as much up for it. Costs nothing that other
    /// threads feel unless the number has moved by a step.
    pub fn set(&mut self, bytes: usize) {
        if bytes.abs_diff(self.bytes) < CHARGE_STEP {
            return;
        }
        match bytes.checked_sub(self.bytes) {
            Some(more) => {
                self.cache.take(self.what, more);
                self.cache.trim_by(more as u64);
            }
            None => self.cache.give_back(self.what, self.bytes - bytes),
        }
        self.bytes = bytes;
    }

    /// What is charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.cache.give_back(self.what, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_follows_in_steps_and_leaves_the_cache_the_rest() {
        let cache = Arc::new(Cache::new(64 << 20));
        let mut charge = Charge::new(&cache, Use::Jobs);
        charge.set(CHARGE_STEP - 1);
        assert_eq!(cache.taken_bytes(Use::Jobs), 0, "below a step");
        charge.set(10 << 20);
        assert_eq!(cache.taken_bytes(Use::Jobs), 10 << 20);
        assert_eq!(cache.capacity_bytes(), 54 << 20);
        charge.set((10 << 20) - 100);
        assert_eq!(charge.bytes(), 10 << 20, "less than a step away");
        charge.set(1 << 20);
        cache.forget_peak();
        assert_eq!(cache.capacity_bytes(), 63 << 20);
        charge.set(100 << 20);
        let least = crate::cache::CACHE_BYTES_MIN as u64;
        assert_eq!(cache.capacity_bytes(), least);
        drop(charge);
        assert_eq!(cache.taken_bytes(Use::Jobs), 0);
    }
}
