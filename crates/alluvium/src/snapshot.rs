//! A fixed read point over all keyspaces.

use crate::base::SeqNo;
use crate::db::Database;
use crate::error::Result;
use crate::iter::{Cursor, CursorOptions};
use crate::keyspace::{FoundIn, Keyspace};
use crate::read_points::ReadPoint;
use crate::table::PinnedValue;

/// Reads as of one commit. Costs nothing while it is open but the space of versions that only it still needs.
#[derive(Clone)]
pub struct Snapshot {
    db: Database,
    point: ReadPoint,
}

impl Snapshot {
    pub(crate) fn new(db: Database) -> Snapshot {
        let point = db.shared().read_points.register();
        Snapshot { db, point }
    }

    /// The commit that it shows.
    pub fn seqno(&self) -> SeqNo {
        self.point.seqno()
    }

    /// The value of `key` as of this snapshot.
    pub fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<PinnedValue>> {
        keyspace.check_within(&self.db)?;
        keyspace.read_at(key, self.point.seqno(), |value| value.map(FoundIn::pin))
    }

    /// A cursor as of this snapshot. It stays valid after the snapshot is gone.
    pub fn cursor(&self, keyspace: &Keyspace, options: CursorOptions) -> Result<Cursor> {
        keyspace.check_within(&self.db)?;
        Ok(Cursor::new(
            keyspace.clone(),
            self.point.clone(),
            options,
            None,
        ))
    }
}
