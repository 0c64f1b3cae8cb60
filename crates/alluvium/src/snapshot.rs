//! Snapshot: a fixed read point over all keyspaces.

use std::sync::Arc;

use alluvium_mem::process::Owned;

use crate::base::SeqNo;
use crate::clock::HeldTime;
use crate::db::Database;
use crate::db::core::Core;
use crate::error::{Error, Result};
use crate::iter::{Cursor, CursorOptions};
use crate::keyspace::Keyspace;
use crate::read_points::ReadPoint;
use crate::table::PinnedValue;

/// Snapshot at one commit. While open it costs only the space of versions that no other reader
/// needs.
#[derive(Clone)]
pub struct Snapshot {
    db: Database,
    held: Owned<Arc<ReadsAt>>,
}

/// Read point and time of several reads.
#[derive(Clone)]
pub(crate) struct ReadsAt {
    pub point: ReadPoint,
    pub time: HeldTime,
}

impl ReadsAt {
    /// Registers the newest commit and the present.
    pub fn newest(core: &Core) -> ReadsAt {
        let point = core.read_points.register();
        // After the registration: rows that a compaction removes before it sees this hold have
        // expired by then.
        let time = core.clock.hold();
        ReadsAt { point, time }
    }

    /// Returns the newest seqno that is read.
    pub fn seqno(&self) -> SeqNo {
        self.point.seqno()
    }
}

impl Snapshot {
    pub(crate) fn new(db: Database) -> Snapshot {
        let held = Owned::new(Arc::new(ReadsAt::newest(&db.shared().core)));
        Snapshot { db, held }
    }

    /// Returns what the snapshot holds, for a transaction of the database opened as `db`.
    pub(crate) fn reads_within(&self, db: &Database) -> Result<Arc<ReadsAt>> {
        if !Arc::ptr_eq(self.db.shared(), db.shared()) {
            let message = "the snapshot is of another database, or of another opening of it";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(Arc::clone(&self.held))
    }

    /// Returns the seqno of the commit that the snapshot shows.
    pub fn seqno(&self) -> SeqNo {
        self.held.seqno()
    }

    /// Returns the value of `key` in this snapshot. Errors and cost as [`Keyspace::get`];
    /// `InvalidArgument` for a keyspace of another database.
    ///
    /// A keyspace created after the snapshot is empty in it.
    pub fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<PinnedValue>> {
        keyspace.check_within(&self.db)?;
        let now_ms = self.held.time.now_ms();
        keyspace.get_at(key, self.held.seqno(), now_ms)
    }

    /// Returns the values of several keys in this snapshot, in the order of `keys`: see
    /// [`Keyspace::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<PinnedValue>>> {
        keyspace.check_within(&self.db)?;
        keyspace.multi_get_at(keys, self.held.seqno(), self.held.time.now_ms())
    }

    /// Opens a cursor over this snapshot. It stays valid after the snapshot is dropped.
    pub fn cursor(&self, keyspace: &Keyspace, options: CursorOptions) -> Result<Cursor> {
        keyspace.check_within(&self.db)?;
        Ok(Cursor::new(
            keyspace.clone(),
            self.held.point.clone(),
            self.held.time.clone(),
            options,
            None,
        ))
    }
}
