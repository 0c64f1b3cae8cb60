//! Mode stationary: tracks which links exist now, without state shared between clients.
//!
//! Every link belongs to one client, by a hash of its key, and only this client writes it. A delete
//! hides a visible link of its client and records it in the client's pool. An add, or an update
//! that is meant to create a link, makes a link of the pool visible again. Only loaded links are
//! ever visible. Therefore `visible = loaded - sum of the pools` at any time, no row is added, and
//! the pools bound the difference.
//!
//! The fill of the pool decides between adding and deleting. The probability of an add is the share
//! that balances expected additions and removals, moved by the distance of the pool from half full.
//! So the pool stays near half full, and the sources of adds have the distribution of the sources
//! of deletes: that of link writes. The balance holds for every id, not only for the sum.

use std::collections::HashMap;

use super::store::LinkKey;
use crate::random::{Random, mix};

/// Probability that a delete or update targets an existing link.
pub const REWRITE_EXISTING: f64 = 0.9;
/// Probability that an add targets an existing link.
pub const ADD_EXISTING: f64 = 0.05;

/// Pool of the links that one client has hidden.
#[derive(Debug)]
pub struct HiddenLinks {
    client: u64,
    clients: u64,
    capacity: usize,
    balanced_adds: f64,
    keys: Vec<LinkKey>,
    places: HashMap<LinkKey, usize>,
}

impl HiddenLinks {
    /// Creates the empty pool of client number `client` of `clients`. `pair_percent` (adds and
    /// deletes) and `update_percent` are those of the mix.
    pub fn new(
        client: u32,
        clients: u32,
        capacity: usize,
        pair_percent: f64,
        update_percent: f64,
    ) -> HiddenLinks {
        HiddenLinks {
            client: u64::from(client),
            clients: u64::from(clients),
            capacity,
            balanced_adds: balanced_adds(pair_percent, update_percent),
            keys: Vec::with_capacity(capacity),
            places: HashMap::with_capacity(2 * capacity),
        }
    }

    /// Returns true if this client owns the link.
    #[inline]
    pub fn owns(&self, key: LinkKey) -> bool {
        let hash = mix(mix(key.id1, key.link_type), key.id2);
        ((u128::from(hash) * u128::from(self.clients)) >> 64) as u64 == self.client
    }

    /// Returns true if this client has hidden the link.
    pub fn contains(&self, key: LinkKey) -> bool {
        self.places.contains_key(&key)
    }

    /// Returns the number of links in the pool.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Draws add or delete for the next such operation; true for an add.
    pub fn adds_next(&self, random: &mut Random) -> bool {
        if self.keys.is_empty() || self.keys.len() >= self.capacity {
            return !self.keys.is_empty();
        }
        let fill = self.keys.len() as f64 / self.capacity as f64;
        random.unit() < self.balanced_adds + fill - 0.5
    }

    /// Returns a random hidden link; `None` if the pool is empty.
    pub fn pick(&self, random: &mut Random) -> Option<LinkKey> {
        let place = random.below(self.keys.len() as u64) as usize;
        self.keys.get(place).copied()
    }

    /// Records that a link was hidden.
    pub fn insert(&mut self, key: LinkKey) {
        if self.places.insert(key, self.keys.len()).is_none() {
            self.keys.push(key);
        }
    }

    /// Records that a link was made visible.
    pub fn remove(&mut self, key: LinkKey) {
        let Some(place) = self.places.remove(&key) else {
            return;
        };
        self.keys.swap_remove(place);
        if let Some(moved) = self.keys.get(place) {
            self.places.insert(*moved, place);
        }
    }
}

/// Returns the share of adds among adds and deletes at which as many links appear as vanish:
/// `0.95 add + 0.1 update = 0.9 delete`, with add + delete given. Returns 0 if updates alone create
/// more.
pub fn balanced_adds(pair_percent: f64, update_percent: f64) -> f64 {
    if pair_percent <= 0.0 {
        return 0.0;
    }
    let created_by_updates = (1.0 - REWRITE_EXISTING) * update_percent / pair_percent;
    let share = (REWRITE_EXISTING - created_by_updates) / (REWRITE_EXISTING + 1.0 - ADD_EXISTING);
    share.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id2: u64) -> LinkKey {
        LinkKey {
            id1: 5,
            link_type: 123_456_789,
            id2,
        }
    }

    #[test]
    fn every_link_has_exactly_one_owner_and_owners_share_alike() {
        let pools: Vec<_> = (0..7)
            .map(|client| HiddenLinks::new(client, 7, 8, 6.0, 4.0))
            .collect();
        let mut owned = [0; 7];
        for id2 in 0..70_000 {
            let owners: Vec<_> = (0..7)
                .filter(|client| pools[*client].owns(key(id2)))
                .collect();
            assert_eq!(owners.len(), 1, "{id2}");
            owned[owners[0]] += 1;
        }
        assert!(
            owned.iter().all(|count| (9_500..10_500).contains(count)),
            "{owned:?}"
        );
    }

    #[test]
    fn the_balanced_share_of_the_2017_mix_is_that_of_the_guide() {
        let share = balanced_adds(5.35038 + 0.98401, 4.75589);
        assert!((share * 6.33439 - 2.8245).abs() < 1e-3, "{share}");
        assert_eq!(balanced_adds(1.0, 91.0), 0.0);
    }

    #[test]
    fn the_pool_stays_within_its_capacity_and_near_half_full() {
        let mut random = Random::new(9);
        let mut pool = HiddenLinks::new(0, 1, 64, 6.33439, 4.75589);
        let (mut next, mut sum) = (0, 0);
        for step in 0..100_000 {
            if pool.adds_next(&mut random) {
                let revived = pool.pick(&mut random).expect("adds need a hidden link");
                pool.remove(revived);
            } else {
                next += 1;
                pool.insert(key(next));
            }
            assert!(pool.count() <= 64 && pool.count() == pool.places.len());
            sum += if step >= 50_000 { pool.count() } else { 0 };
        }
        assert!((24..44).contains(&(sum / 50_000)), "{}", sum / 50_000);
    }
}
