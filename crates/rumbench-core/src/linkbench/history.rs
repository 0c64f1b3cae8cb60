//! Cache of long lists, from which a client's history queries continue.

use std::collections::HashMap;

use crate::random::Random;

/// Most lists that one client caches.
const CAPACITY: usize = 2048;

/// Source and type of a list.
pub type ListKey = (u64, u64);

/// Lists for which the last query returned as many rows as its limit, each with the time of the
/// last row.
#[derive(Debug)]
pub struct HistoryCache {
    entries: Vec<(ListKey, u64)>,
    index: HashMap<ListKey, usize>,
    leaves_keys: bool,
}

impl HistoryCache {
    /// Creates an empty cache. `leaves_keys` is the reference's defect D7: the key of a removed
    /// entry stays in the index unless the entry was the last. The list of such a key is never
    /// cached again.
    pub fn new(leaves_keys: bool) -> HistoryCache {
        HistoryCache {
            entries: Vec::new(),
            index: HashMap::new(),
            leaves_keys,
        }
    }

    /// Records that a list continues after `time`, unless the list is in the index. A full cache
    /// replaces a random entry.
    pub fn add(&mut self, key: ListKey, time: u64, random: &mut Random) {
        if self.index.contains_key(&key) {
            return;
        }
        if self.entries.len() < CAPACITY {
            self.index.insert(key, self.entries.len());
            self.entries.push((key, time));
            return;
        }
        let place = random.below(CAPACITY as u64) as usize;
        self.index.remove(&self.entries[place].0);
        self.index.insert(key, place);
        self.entries[place] = (key, time);
    }

    /// Returns the place, list and time of a random entry; `None` if the cache is empty.
    pub fn pick(&self, random: &mut Random) -> Option<(usize, ListKey, u64)> {
        let place = random.below(self.entries.len() as u64) as usize;
        self.entries
            .get(place)
            .map(|(key, time)| (place, *key, *time))
    }

    /// Records that the list at `place` continues after `time`.
    pub fn advance(&mut self, place: usize, time: u64) {
        self.entries[place].1 = time;
    }

    /// Removes the list at `place`, which has ended.
    pub fn remove(&mut self, place: usize) {
        let was_last = place + 1 == self.entries.len();
        let (key, _) = self.entries.swap_remove(place);
        if was_last || !self.leaves_keys {
            self.index.remove(&key);
        }
        if let Some((moved, _)) = self.entries.get(place) {
            self.index.insert(*moved, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(leaves_keys: bool) -> (HistoryCache, Random) {
        let mut random = Random::new(1);
        let mut cache = HistoryCache::new(leaves_keys);
        for id in 0..3 {
            cache.add((id, 1), 10 + id, &mut random);
        }
        (cache, random)
    }

    #[test]
    fn a_removed_list_is_cached_again_only_where_the_defect_is_repaired() {
        for (leaves_keys, entries) in [(true, 2), (false, 3)] {
            let (mut cache, mut random) = filled(leaves_keys);
            cache.remove(0);
            cache.add((0, 1), 99, &mut random);
            assert_eq!(cache.entries.len(), entries, "leaves_keys {leaves_keys}");
        }
    }

    #[test]
    fn removing_the_last_entry_forgets_its_key_even_with_the_defect() {
        let (mut cache, mut random) = filled(true);
        cache.remove(2);
        cache.add((2, 1), 99, &mut random);
        assert_eq!(cache.entries.len(), 3);
    }

    #[test]
    fn the_entry_that_moved_keeps_its_place_in_the_index() {
        let (mut cache, mut random) = filled(false);
        cache.remove(0);
        cache.add((2, 1), 99, &mut random);
        assert_eq!(cache.entries, [((2, 1), 12), ((1, 1), 11)]);
        assert_eq!(cache.index[&(2, 1)], 0);
    }

    #[test]
    fn a_full_cache_replaces_and_stays_consistent() {
        let mut random = Random::new(4);
        let mut cache = HistoryCache::new(false);
        for id in 0..5_000 {
            cache.add((id, 7), id, &mut random);
        }
        assert_eq!(
            (cache.entries.len(), cache.index.len()),
            (CAPACITY, CAPACITY)
        );
        for (key, place) in &cache.index {
            assert_eq!(cache.entries[*place].0, *key);
        }
    }
}
