//! Dictionaries of recent tables, offered to the next tables of their keyspaces: training one takes
//! as long as writing several MiB.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::KeyspaceId;
use crate::sync::plain::Mutex;
use crate::table::Trained;

/// Number of keyspaces with a dictionary in memory, about 4 KiB each. Others train one anew.
const KEYSPACES_MAX: usize = 32;

/// Dictionaries of recent tables, the longest unused first. The mutex is a leaf in the lock order.
#[derive(Default)]
pub(crate) struct Dictionaries(Mutex<VecDeque<Recent>>);

struct Recent {
    keyspace: KeyspaceId,
    trained: Arc<Trained>,
}

impl Dictionaries {
    /// Returns the dictionary for the next table of a keyspace, if one is in memory.
    pub fn offer(&self, keyspace: KeyspaceId) -> Option<Arc<Trained>> {
        let recent = self.0.lock();
        let own = recent.iter().find(|recent| recent.keyspace == keyspace);
        own.map(|own| Arc::clone(&own.trained))
    }

    /// Keeps the dictionary that a table of the keyspace was written with, unless another thread
    /// has kept one that this one does not replace: tables written at the same time then have one
    /// in common.
    pub fn keep(&self, keyspace: KeyspaceId, trained: Arc<Trained>) {
        let mut recent = self.0.lock();
        let place = recent.iter().position(|own| own.keyspace == keyspace);
        let trained = match place.and_then(|place| recent.remove(place)) {
            Some(own) if !trained.replaces(&own.trained) => own.trained,
            _ => trained,
        };
        recent.push_back(Recent { keyspace, trained });
        if recent.len() > KEYSPACES_MAX {
            recent.pop_front();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tables_written_at_the_same_time_get_one_dictionary_in_common() {
        let (all, keyspace) = (Dictionaries::default(), KeyspaceId(1));
        let kept = |generation| {
            let trained = Arc::new(Trained::of_generation(generation));
            all.keep(keyspace, Arc::clone(&trained));
            let offered = all.offer(keyspace).expect("one was kept");
            Arc::ptr_eq(&offered, &trained)
        };
        assert!(all.offer(keyspace).is_none());
        assert!(kept(0));
        assert!(!kept(0), "another thread was first");
        assert!(kept(1), "it replaces the first");
        assert!(!kept(0), "a table that was begun before");
        assert!(all.offer(KeyspaceId(2)).is_none());
    }

    #[test]
    fn the_keyspaces_that_wrote_last_are_kept() {
        let all = Dictionaries::default();
        let keep = |n| all.keep(KeyspaceId(n), Arc::new(Trained::of_generation(0)));
        let most = KEYSPACES_MAX as u32;
        (0..most).for_each(keep);
        keep(0);
        keep(most);
        assert!(all.offer(KeyspaceId(0)).is_some());
        assert!(all.offer(KeyspaceId(1)).is_none());
        assert_eq!(all.0.lock().len(), KEYSPACES_MAX);
    }
}
