//! Options that clients change while the database is open.
//!
//! No result depends on these options. Those of a keyspace are durable when the call returns: each
//! opening must find the last ones, or those of a change that was in progress or has failed.

use std::sync::{Arc, Mutex, PoisonError};

use alluvium::{CompactionFilter, Compression, FilterDecision, Keyspace, KeyspaceOptions};

use crate::client::Client;
use crate::filter::{Fate, fate};
use crate::plan::{FILTERED, Where};
use crate::records::{Checked, Records, Settings};
use crate::world::World;

/// Returns one of many sets of options that this keyspace can have.
fn options_of(keyspace: &Keyspace, number: u64) -> KeyspaceOptions {
    let compressions = [Compression::Adaptive, Compression::Lz4, Compression::None];
    KeyspaceOptions {
        whole_key_filter: number & 1 != 0,
        expect_hits: number & 2 != 0,
        prefix_filter_bytes: [None, Some(1), Some(2), Some(9)][(number >> 2) as usize % 4],
        value_separation_bytes: [None, Some(256), Some(600), None][(number >> 4) as usize % 4],
        block_bytes: [1 << 10, 2 << 10, 8 << 10][(number >> 6) as usize % 3],
        compression: compressions[(number >> 8) as usize % 3],
        ..keyspace.options()
    }
}

impl Client {
    pub(crate) fn set_options(&self, place: Where, number: u64) -> Checked<()> {
        let world = &*self.world;
        let Some(keyspace) = world.keyspace(place)? else {
            return Ok(());
        };
        let (before, options) = (keyspace.options(), options_of(&keyspace, number));
        let id = keyspace.id().0;
        {
            let mut outside = world.records.outside();
            let settings = outside.settings.entry(id).or_default();
            if settings.possible.is_empty() {
                settings.possible.push(before);
            }
            settings.possible.push(options.clone());
            settings.crowded = settings.running > 0;
            settings.running += 1;
        }
        let result = keyspace.set_options(options.clone());
        let alone = {
            let mut outside = world.records.outside();
            let settings = outside.settings.entry(id).or_default();
            settings.running -= 1;
            !settings.crowded
        };
        if world.known(result)?.is_none() || world.disk.is_dead() {
            return Ok(());
        }
        world.records.count("options changed", 1);
        // With a concurrent change it is unknown which came last.
        if alone {
            let mut outside = world.records.outside();
            outside.settings.entry(id).or_default().possible = vec![options];
        }
        Ok(())
    }

    pub(crate) fn set_memory(&self, bytes: usize) -> Checked<()> {
        let world = &*self.world;
        world.known(world.db.set_memory_bytes(bytes)).map(drop)
    }

    pub(crate) fn set_filter(&self, on: bool) -> Checked<()> {
        let world = &*self.world;
        let Some(keyspace) = world.keyspace(FILTERED)? else {
            return Ok(());
        };
        if !on {
            return world.known(keyspace.set_compaction_filter(None)).map(drop);
        }
        let filter = RowFilter {
            keyspace: keyspace.id().0,
            records: Arc::clone(&world.records),
            wrong: Arc::clone(&world.filter_failure),
        };
        // Permanently: rows that it has removed stay removed.
        world.records.history().filter(filter.keyspace);
        let set = keyspace.set_compaction_filter(Some(Arc::new(filter)));
        world.known(set).map(drop)
    }
}

/// Checks after an opening that each keyspace has the options that it must have.
pub(crate) fn judge_settings(world: &World) -> Checked<()> {
    for name in world.db.keyspace_names().map_err(|e| e.to_string())? {
        let found = world.db.existing_keyspace(&name);
        let Some(keyspace) = found.map_err(|e| e.to_string())? else {
            continue;
        };
        let found = keyspace.options();
        let mut outside = world.records.outside();
        let Some(settings) = outside.settings.get_mut(&keyspace.id().0) else {
            continue;
        };
        if !settings.possible.contains(&found) {
            let possible = &settings.possible;
            return Err(format!(
                "keyspace {name} has {found:?}, and not one of {possible:?}"
            ));
        }
        *settings = Settings {
            possible: vec![found],
            ..Settings::default()
        };
    }
    Ok(())
}

/// Filter for one keyspace, which checks the rows that it is shown.
struct RowFilter {
    /// Id of the keyspace.
    keyspace: u32,
    /// Oracle.
    records: Arc<Records>,
    /// Message about the first row shown that was never written.
    wrong: Arc<Mutex<Option<String>>>,
}

impl CompactionFilter for RowFilter {
    fn filter(&self, key: &[u8], value: &[u8], seqno: u64) -> FilterDecision {
        let row = (self.keyspace, key.to_vec());
        if !self.records.history().has_ever_written(&row, value) {
            let (key, value) = (
                key.escape_ascii(),
                value[..value.len().min(16)].escape_ascii(),
            );
            let text = format!(
                "a filter was shown {key}={value} of commit {seqno}, which was never written"
            );
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.get_or_insert(text);
        }
        match fate(value) {
            Fate::Kept => FilterDecision::Keep,
            Fate::Removed => {
                self.records.count("rows that a filter removed", 1);
                FilterDecision::Remove
            }
            Fate::Replaced(value) => {
                self.records.count("rows that a filter replaced", 1);
                FilterDecision::Replace(value)
            }
        }
    }
}
