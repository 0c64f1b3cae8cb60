//! Locks of one shard, by their hashes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::LockHash;
use super::slot::Slot;

/// Map by numbers that are hashes or small counters.
pub(super) type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<Identity>>;

/// Locks of one shard that have a holder.
///
/// One of them is in place, the others in a map. Few locks of a shard are held at one time, so most
/// need no memory besides the shard's. A client that locks a row takes one cache line from another
/// core; with slots in a map it took four.
#[derive(Default)]
pub(super) struct Locks {
    first: Option<(u64, Slot)>,
    /// In a box, so that the shard with its mutex fits one cache line. The box stays.
    others: Option<Box<ByNumber<Slot>>>,
}

impl Locks {
    pub(super) fn get(&self, hash: LockHash) -> Option<&Slot> {
        match &self.first {
            Some((first, slot)) if *first == hash.0 => Some(slot),
            _ => self.others.as_ref()?.get(&hash.0),
        }
    }

    pub(super) fn get_mut(&mut self, hash: LockHash) -> Option<&mut Slot> {
        match &mut self.first {
            Some((first, slot)) if *first == hash.0 => Some(slot),
            _ => self.others.as_mut()?.get_mut(&hash.0),
        }
    }

    /// Adds a lock that is not there.
    pub(super) fn insert(&mut self, hash: LockHash, slot: Slot) {
        debug_assert!(self.get(hash).is_none(), "{hash:?} is there");
        if self.first.is_none() {
            self.first = Some((hash.0, slot));
        } else {
            self.others.get_or_insert_default().insert(hash.0, slot);
        }
    }

    /// Removes a lock.
    pub(super) fn remove(&mut self, hash: LockHash) {
        if self
            .first
            .as_ref()
            .is_some_and(|(first, _)| *first == hash.0)
        {
            self.first = None;
        } else if let Some(others) = &mut self.others {
            others.remove(&hash.0);
        }
    }

    /// Returns the number of locks.
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, |others| others.len())
    }

    /// Returns each lock.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let first = self.first.iter().map(|(_, slot)| slot);
        first.chain(self.others.iter().flat_map(|others| others.values()))
    }
}

/// Hasher that returns its input unchanged. The input is already a good hash, or a small counter.
#[derive(Debug, Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only u64 keys are hashed this way");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Mutex;
    use crate::txn::lock_table::{LockMode, TxnId};

    #[test]
    fn a_shard_fits_a_cache_line() {
        assert!(size_of::<Mutex<Locks>>() <= 64);
    }

    #[test]
    fn locks_in_place_and_in_the_map_are_found_and_removed() {
        let mut locks = Locks::default();
        let slot = |owner| Slot::new(TxnId(owner), LockMode::Exclusive);
        let holder = |locks: &Locks, n| locks.get(LockHash(n)).map(Slot::holders);
        for n in 1..=3 {
            locks.insert(LockHash(n), slot(n));
        }
        // The place becomes free and is taken by another one while two are in the map.
        locks.remove(LockHash(1));
        locks.insert(LockHash(4), slot(4));
        let holders = [1, 2, 3, 4].map(|n| holder(&locks, n));
        let expected = [None, Some(2), Some(3), Some(4)];
        assert_eq!(holders, expected.map(|n| n.map(|n| vec![TxnId(n)])));
        assert_eq!((locks.len(), locks.slots().count()), (3, 3));
        for n in [3, 4, 2, 2] {
            assert_eq!(
                locks.get_mut(LockHash(n)).is_some(),
                locks.get(LockHash(n)).is_some()
            );
            locks.remove(LockHash(n));
            assert!(locks.get(LockHash(n)).is_none());
        }
        assert_eq!(locks.len(), 0);
    }
}
