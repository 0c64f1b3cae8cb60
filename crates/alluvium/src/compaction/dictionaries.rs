//! Dictionaries of recent tables, offered to the next tables of their keyspaces: training one takes
//! as long as writing several MiB.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::KeyspaceId;
use crate::sync::plain::Mutex;
use crate::table::Trained;

/// Number of keyspaces with a dictionary in memory, about 4 KiB each. Others train one anew.
const KEYSPACES_MAX: usize = 32;

/// Number of tables after which a new dictionary is trained, so that it follows slow changes of the
/// rows.
const TABLES_MAX: u32 = 64;

/// Dictionaries of recent tables, the longest unused first. The mutex is a leaf in the lock order.
#[derive(Default)]
pub(crate) struct Dictionaries(Mutex<VecDeque<Recent>>);

struct Recent {
    keyspace: KeyspaceId,
    trained: Arc<Trained>,
    /// Number of tables written with it.
    tables: u32,
}

impl Dictionaries {
    /// Returns the dictionary for the next table of a keyspace, if one is in memory.
    pub fn offer(&self, keyspace: KeyspaceId) -> Option<Arc<Trained>> {
        let recent = self.0.lock();
        let own = recent.iter().find(|recent| recent.keyspace == keyspace);
        let fresh = own.filter(|own| own.tables < TABLES_MAX);
        fresh.map(|own| Arc::clone(&own.trained))
    }

    /// Keeps the dictionary that a table of the keyspace was written with.
    pub fn keep(&self, keyspace: KeyspaceId, trained: Arc<Trained>) {
        let mut recent = self.0.lock();
        let place = recent.iter().position(|own| own.keyspace == keyspace);
        let tables = match place.and_then(|place| recent.remove(place)) {
            Some(old) if Arc::ptr_eq(&old.trained, &trained) => old.tables + 1,
            _ => 1,
        };
        recent.push_back(Recent {
            keyspace,
            trained,
            tables,
        });
        if recent.len() > KEYSPACES_MAX {
            recent.pop_front();
        }
    }
}
