//! A fixed read point over all keyspaces.

use std::sync::Arc;

use alluvium_mem::process::Owned;

use crate::base::SeqNo;
use crate::clock::HeldTime;
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
    held: Owned<Arc<Held>>,
}

/// The read point and the time of the snapshot.
struct Held {
    point: ReadPoint,
    time: HeldTime,
}

impl Snapshot {
    pub(crate) fn new(db: Database) -> Snapshot {
        let point = db.shared().read_points.register();
        // After the registration: whatever is merged without knowing of it has expired by then.
        let time = db.shared().clock.hold();
        let held = Owned::new(Arc::new(Held { point, time }));
        Snapshot { db, held }
    }

    /// The commit that it shows.
    pub fn seqno(&self) -> SeqNo {
        self.held.point.seqno()
    }

    /// The value of `key` as of this snapshot. Errors and cost as [`Keyspace::get`]; `InvalidArgument` for a keyspace of
    /// another database.
    ///
    /// A keyspace that was created after the snapshot is empty in it.
    pub fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<PinnedValue>> {
        keyspace.check_within(&self.db)?;
        let now_ms = self.held.time.now_ms();
        keyspace.read_at(key, self.held.point.seqno(), now_ms, |value| {
            value.map(FoundIn::pin)
        })
    }

    /// The values of several keys as of this snapshot, in the order of `keys`: see [`Keyspace::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<PinnedValue>>> {
        keyspace.check_within(&self.db)?;
        keyspace.multi_get_at(keys, self.held.point.seqno(), self.held.time.now_ms())
    }

    /// A cursor as of this snapshot. It stays valid after the snapshot is gone.
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
