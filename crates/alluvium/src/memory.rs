//! Accounts of the memory budget: all uses other than the block cache, and their charges.
//!
//! The block cache has the bytes that all uses here leave, so a charge changes its capacity: see
//! [`Cache`]. Memtables and open tables charge themselves exactly, for as long as any reference to
//! them exists. Other uses go through a [`Charge`], which follows their bytes in steps: less than a
//! step is never counted, and no row touches an atomic shared with other threads.
//!
//! Charges cover allocated memory, unused capacity included, as far as the engine can count it. The
//! remainder is the allocator's (see `docs/guide/keyspaces.md`), stacks, and a few megabytes of
//! idle buffers of the process.

use std::sync::Arc;

use crate::cache::Cache;

/// Use of memory other than cached blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Memtables with their filters and range deletes, from their creation until the last reference
    /// is dropped.
    Memtables,
    /// Open tables: fences, filters, range deletes, properties and the cache's slots; and dead
    /// intervals of keyspaces.
    Tables,
    /// Buffers of flushes, compactions, ingests and bulk loads.
    Jobs,
    /// Writes and locks of open transactions.
    Writes,
    /// Batches and commits in progress: the operations, and the log's copy of them.
    Commits,
    /// Prepared transactions.
    Prepared,
}

impl Use {
    /// All uses, in the order of their numbers.
    pub const ALL: [Use; 6] = [
        Use::Memtables,
        Use::Tables,
        Use::Jobs,
        Use::Writes,
        Use::Commits,
        Use::Prepared,
    ];
}

/// Maximum difference in bytes between a charge and the actual use.
pub const CHARGE_STEP: usize = 64 << 10;

/// Charge of one memory user; released when dropped.
pub struct Charge {
    cache: Arc<Cache>,
    what: Use,
    bytes: usize,
}

impl Charge {
    /// Creates a charge of zero bytes.
    pub fn new(cache: &Arc<Cache>, what: Use) -> Charge {
        Charge {
            cache: Arc::clone(cache),
            what,
            bytes: 0,
        }
    }

    /// Creates a charge of constant `bytes`; returns `None` for less than a step.
    pub fn of(cache: &Arc<Cache>, what: Use, bytes: usize) -> Option<Charge> {
        (bytes >= CHARGE_STEP).then(|| {
            let mut charge = Charge::new(cache, what);
            charge.set(bytes);
            charge
        })
    }

    /// Sets the bytes in use. If they increase, evicts as many bytes from the cache. Touches memory
    /// shared with other threads only if the number has changed by at least a step.
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
        assert_eq!(charge.bytes, 10 << 20, "less than a step away");
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
