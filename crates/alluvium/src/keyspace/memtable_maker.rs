//! Creation of a keyspace's memtables, with filters for the bytes that each is expected to hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_mem::MemtableOptions;

use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::options::KeyspaceOptions;
use crate::memory::MemoryBudget;

/// Creates the memtables of one keyspace. The numbers are hints, so their loads and stores are
/// Relaxed.
pub(super) struct MemtableMaker {
    /// Maximum expected bytes of a memtable.
    max_bytes: AtomicUsize,
    /// Bytes of the last sealed memtable; 0 before the first.
    last_bytes: AtomicUsize,
    /// Memory budget that memtables are charged to.
    budget: Arc<MemoryBudget>,
}

impl MemtableMaker {
    pub fn new(max_bytes: usize, budget: &Arc<MemoryBudget>) -> MemtableMaker {
        MemtableMaker {
            max_bytes: AtomicUsize::new(max_bytes),
            last_bytes: AtomicUsize::new(0),
            budget: Arc::clone(budget),
        }
    }

    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Sets the maximum expected bytes of the next memtables.
    pub fn set_max_bytes(&self, bytes: usize) {
        self.max_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Records that a memtable with `bytes` of rows was sealed.
    pub fn note_sealed(&self, bytes: usize) {
        self.last_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Creates a memtable. `keyspaces` is the number of keyspaces in the database.
    pub fn make(&self, options: &KeyspaceOptions, keyspaces: usize) -> Arc<TreeMemtable> {
        let last = self.last_bytes.load(Ordering::Relaxed);
        let max = self.max_bytes.load(Ordering::Relaxed);
        let options = MemtableOptions {
            expected_bytes: expected_bytes(last, max, keyspaces),
            prefix_bytes: options.prefix_filter_bytes,
            ..MemtableOptions::default()
        };
        Arc::new(TreeMemtable::new(&options, &self.budget))
    }
}

/// Number of keyspaces without history that may each expect to fill a whole generation of
/// memtables.
const FULL_GENERATIONS: usize = 16;

/// Returns the bytes that a keyspace is expected to write in the next generation: twice the bytes
/// of the last one. Too small a filter rules nothing out, and too large a filter wastes memory in
/// each of many keyspaces. Before the first generation it is a share of `max`, which bounds the
/// filters of all keyspaces together.
fn expected_bytes(last: usize, max: usize, keyspaces: usize) -> usize {
    let expected = match last {
        0 => (max / keyspaces.max(1)).saturating_mul(FULL_GENERATIONS),
        _ => last.saturating_mul(2),
    };
    expected.min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memtable_expects_twice_what_the_last_one_held() {
        assert_eq!(expected_bytes(64 << 10, 8 << 20, 1), 128 << 10);
        assert_eq!(expected_bytes(5 << 20, 8 << 20, 10_000), 8 << 20);
        assert_eq!(expected_bytes(usize::MAX, 4_000, 1), 4_000);
    }

    #[test]
    fn the_first_memtables_of_many_keyspaces_expect_a_share_each() {
        let expected = |keyspaces| expected_bytes(0, 8 << 20, keyspaces);
        assert_eq!(
            (expected(0), expected(1), expected(16)),
            (8 << 20, 8 << 20, 8 << 20)
        );
        assert_eq!(expected(1 << 10), 128 << 10);
        assert!(10_000 * expected(10_000) <= 16 * (8 << 20));
    }
}
