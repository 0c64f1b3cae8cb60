//! Row locks for an engine that has none.
//!
//! A transaction owns the rows that it reads for update or writes until it ends. Its age is a
//! number that grows with each begin. An older transaction waits for a younger owner; a younger one
//! gets a conflict at once. So waits lead only from older to younger, and no deadlock is possible.
//! A transaction that got a conflict is retried with its old age, so it eventually becomes the
//! oldest.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rumbench_core::engine::{EngineError, Result};

/// More than the number of clients, so that few rows share a shard.
const SHARDS: usize = 64;

/// Identity of a transaction: its number in the order of begins, so the smaller number is older.
pub(super) type Age = u64;

/// Row locks of a database.
pub(super) struct LockTable {
    shards: Vec<Shard>,
    hasher: RandomState,
}

#[derive(Default)]
struct Shard {
    /// Owner of each locked key. The mutex is held for one look-up only, and no other mutex is
    /// taken meanwhile.
    owners: Mutex<HashMap<Box<[u8]>, Age>>,
    /// Notified whenever a key of this shard is unlocked.
    freed: Condvar,
}

impl LockTable {
    pub(super) fn new() -> LockTable {
        LockTable {
            shards: std::iter::repeat_with(Shard::default)
                .take(SHARDS)
                .collect(),
            hasher: RandomState::new(),
        }
    }

    /// Makes `age` the owner of a key, after younger owners have released it. Returns `false` if it
    /// already was the owner.
    ///
    /// # Errors
    /// [`EngineError::Retry`] if an older transaction owns the key.
    pub(super) fn lock(&self, key: &[u8], age: Age) -> Result<bool> {
        let shard = self.shard(key);
        let mut owners = shard.owners();
        // Each wake-up checks the owner anew. The wait ends when the key is free or has an older
        // owner.
        loop {
            match owners.get(key).copied() {
                None => {
                    owners.insert(key.into(), age);
                    return Ok(true);
                }
                Some(owner) if owner == age => return Ok(false),
                Some(owner) if owner < age => {
                    let message = "an older transaction owns the row";
                    return Err(EngineError::Retry(message.to_string()));
                }
                Some(_) => {
                    owners = shard
                        .freed
                        .wait(owners)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Releases a key.
    pub(super) fn unlock(&self, key: &[u8]) {
        let shard = self.shard(key);
        shard.owners().remove(key);
        shard.freed.notify_all();
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl Shard {
    /// Every change of the map is one call, so a panic leaves no half-done change.
    fn owners(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Age>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_younger_transaction_gets_a_conflict_until_the_row_is_unlocked() {
        let locks = LockTable::new();
        assert!(locks.lock(b"a", 1).unwrap());
        assert!(!locks.lock(b"a", 1).unwrap(), "it owned it already");
        let refused = locks.lock(b"a", 2).unwrap_err();
        assert!(matches!(refused, EngineError::Retry(_)), "{refused}");
        assert!(locks.lock(b"b", 2).unwrap(), "another row");
        locks.unlock(b"a");
        assert!(locks.lock(b"a", 2).unwrap());
    }

    #[test]
    fn the_older_one_waits() {
        let locks = LockTable::new();
        locks.lock(b"a", 2).unwrap();
        std::thread::scope(|scope| {
            let older = scope.spawn(|| locks.lock(b"a", 1));
            locks.unlock(b"a");
            assert!(older.join().unwrap().unwrap());
        });
        assert!(locks.lock(b"a", 2).is_err(), "it belongs to the older one");
    }
}
