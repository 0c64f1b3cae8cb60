//! Interpretation of log records for a stream: the keyspace of each operation, and the recorded
//! changes that did not take place.
//!
//! An operation names its keyspace by number, and counts only if the keyspace existed at its
//! commit. The stream starts with the keyspaces that exist when it is opened; markers report later
//! creations and drops. An operation on any other keyspace has one of two causes. Either a drop
//! later in the log removes the keyspace, and its marker has the name. Or the keyspace was dropped
//! before the operation, which then never became visible.
//!
//! A marker is written before the manifest edit, which may fail. For a creation or a drop, the
//! manifest shows later whether the change took place. If the keyspace is gone by then, only the
//! last marker of its kind took place.

use std::collections::VecDeque;

use crate::sync::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::change::{ChangeKind, ChangedKeyspace, Operation};
use crate::base::{KeyspaceId, SeqNo, ValueKind};
use crate::commit::marker::{DdlAction, DdlMarker, decode_ingest};
use crate::commit::packed::unpack;
use crate::commit::payload::{Op, Ops};
use crate::commit::prepared;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::keyspace::KeyspaceOptions;
use crate::keyspace::expiry::{EXPIRY_BYTES, NEVER, expires_at};
use crate::wal::{FollowedRecord, LogFollower, LogPlace, RecordKind};

/// Keyspaces known to a stream, see the module.
pub(super) struct Meaning {
    known: HashMap<KeyspaceId, Known>,
    /// Keyspaces that were dropped before every record still to be read.
    gone: HashSet<KeyspaceId>,
}

#[derive(Clone)]
struct Known {
    keyspace: Arc<ChangedKeyspace>,
    /// True if each value ends with an expiry time.
    stores_expiry: bool,
}

impl Known {
    fn new(id: KeyspaceId, name: &str, stores_expiry: bool) -> Known {
        let name = name.to_owned();
        Known {
            keyspace: Arc::new(ChangedKeyspace { id, name }),
            stores_expiry,
        }
    }
}

impl Meaning {
    pub fn new(shared: &Shared) -> Meaning {
        let catalog = shared.core.catalog.read();
        let known =
            |tree: &crate::keyspace::Tree| Known::new(tree.id, &tree.name, tree.stores_expiry);
        Meaning {
            known: catalog
                .values()
                .map(|tree| (tree.id, known(tree)))
                .collect(),
            gone: HashSet::default(),
        }
    }

    /// Returns the change that a record describes, limited to keyspaces with the names in `wanted`
    /// (empty: all); `None` if there is none.
    pub fn of(
        &mut self,
        shared: &Shared,
        record: &FollowedRecord,
        wanted: &[String],
    ) -> Result<Option<ChangeKind>> {
        let payload = &record.payload;
        let malformed = || malformed(shared, record);
        match record.kind {
            RecordKind::Commit => self.commit(shared, record, payload, None, wanted),
            RecordKind::PackedCommit => {
                let raw = unpack(payload).ok_or_else(malformed)?;
                self.commit(shared, record, &raw, None, wanted)
            }
            RecordKind::CommitPrepared => {
                let (xid, raw) = prepared::decode(payload).ok_or_else(malformed)?;
                self.commit(shared, record, raw, Some(xid), wanted)
            }
            RecordKind::Ingest => {
                let mut keyspaces = Vec::new();
                for part in decode_ingest(payload).ok_or_else(malformed)? {
                    let known = self.find(shared, part.keyspace, record.seqno)?;
                    let known = known.filter(|known| is_wanted(known, wanted));
                    keyspaces.extend(known.map(|known| (known.keyspace, part.rows)));
                }
                Ok((!keyspaces.is_empty()).then_some(ChangeKind::Ingest { keyspaces }))
            }
            RecordKind::Ddl => {
                let marker = DdlMarker::decode(payload).ok_or_else(malformed)?;
                if !has_happened(shared, record.seqno, &marker)? {
                    return Ok(None);
                }
                let kind = self.ddl(shared, marker, wanted);
                kind.map_err(|()| malformed())
            }
            _ => Ok(None),
        }
    }

    fn commit(
        &mut self,
        shared: &Shared,
        record: &FollowedRecord,
        raw: &[u8],
        xid: Option<&[u8]>,
        wanted: &[String],
    ) -> Result<Option<ChangeKind>> {
        let mut operations = Vec::new();
        for op in Ops::new(raw) {
            let op = op.map_err(|()| malformed(shared, record))?;
            if let Some(known) = self.find(shared, op.keyspace, record.seqno)?
                && is_wanted(&known, wanted)
            {
                let operation = operation(op, known).ok_or_else(|| malformed(shared, record))?;
                operations.push(operation);
            }
        }
        // The sort is stable: the order of the rows stays.
        operations.sort_by_key(|op| !matches!(op, Operation::DeleteRange { .. }));
        let xid = xid.map(<[u8]>::to_vec);
        Ok((!operations.is_empty()).then_some(ChangeKind::Commit { operations, xid }))
    }

    /// Returns the keyspace that a record with this number refers to; `None` if it was dropped
    /// before.
    fn find(&mut self, shared: &Shared, id: KeyspaceId, seqno: SeqNo) -> Result<Option<Known>> {
        if let Some(known) = self.known.get(&id) {
            return Ok(Some(known.clone()));
        }
        if self.gone.contains(&id) {
            return Ok(None);
        }
        let found = find_drop(shared, id, seqno + 1)?;
        match &found {
            Some(known) => drop(self.known.insert(id, known.clone())),
            None => drop(self.gone.insert(id)),
        }
        Ok(found)
    }

    fn ddl(
        &mut self,
        shared: &Shared,
        marker: DdlMarker<'_>,
        wanted: &[String],
    ) -> Result<Option<ChangeKind>, ()> {
        let id = marker.keyspace;
        // A marker of an older build has no options. If its keyspace is gone they are unknown, and
        // no rows are left either.
        let options = options_of(shared, &marker)?;
        if let (DdlAction::Create, Some(options)) = (marker.action, &options) {
            let known = Known::new(id, marker.name, options.expiry.is_stored());
            self.known.insert(id, known);
        }
        let known = self.known.get(&id).cloned();
        if marker.action == DdlAction::Drop {
            self.known.remove(&id);
            self.gone.insert(id);
        }
        // The drop of a keyspace that no earlier record has named.
        let known = known.or_else(|| {
            let options = options.as_ref()?;
            Some(Known::new(id, marker.name, options.expiry.is_stored()))
        });
        let known = known.filter(|known| is_wanted(known, wanted));
        let (Some(Known { keyspace, .. }), options) = (known, options.map(Box::new)) else {
            return Ok(None);
        };
        Ok(match (marker.action, options) {
            (DdlAction::Drop, _) => Some(ChangeKind::KeyspaceDropped { keyspace }),
            (DdlAction::Create, Some(options)) => {
                Some(ChangeKind::KeyspaceCreated { keyspace, options })
            }
            (DdlAction::SetOptions, Some(options)) => {
                Some(ChangeKind::OptionsChanged { keyspace, options })
            }
            (_, None) => None,
        })
    }
}

fn malformed(shared: &Shared, record: &FollowedRecord) -> Error {
    let path = shared.core.files.path(record.segment.to_string());
    let what = "payload of a log record";
    let found = format!("other bytes in commit {}", record.seqno);
    Error::corruption(&path, record.offset, what, "a well-formed one", found)
}

fn is_wanted(known: &Known, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.contains(&known.keyspace.name)
}

/// Returns the public form of an operation; `None` if a value lacks its expiry time.
fn operation(op: Op<'_>, known: Known) -> Option<Operation> {
    let keyspace = known.keyspace;
    let key = op.key.to_vec();
    Some(match op.kind {
        ValueKind::Delete => Operation::Delete { keyspace, key },
        ValueKind::RangeDelete => Operation::DeleteRange {
            keyspace,
            start: key,
            end: op.value.to_vec(),
        },
        _ => {
            let (mut value, mut until_ms) = (op.value, None);
            if known.stores_expiry {
                until_ms = Some(expires_at(value)?).filter(|&until| until != NEVER);
                value = &value[..value.len() - EXPIRY_BYTES];
            }
            Operation::Put {
                keyspace,
                key,
                value: value.to_vec(),
                until_ms,
            }
        }
    })
}

/// Returns true if the manifest has made the change that a marker announces.
fn has_happened(shared: &Shared, seqno: SeqNo, marker: &DdlMarker<'_>) -> Result<bool> {
    // A change of a keyspace holds the log's mutex from before the marker until after the edit. The
    // log's mutex is released before the store's is taken: background threads hold the store's
    // longer than a commit may wait.
    drop(shared.commits.log.lock());
    let store = shared.store.lock();
    let state = store.state();
    let keyspace = state.keyspaces.get(&marker.keyspace);
    let is_free = marker.keyspace >= state.next_keyspace;
    match (marker.action, keyspace) {
        (DdlAction::SetOptions, _) => return Ok(true),
        (DdlAction::Create, Some(keyspace)) => return Ok(keyspace.created_seqno == seqno),
        (DdlAction::Drop, Some(_)) => return Ok(false),
        // The keyspace was never created.
        (_, None) if is_free => return Ok(false),
        (_, None) => {}
    }
    drop(store);
    // A change that failed was tried again later.
    let again = next_marker(shared, marker.keyspace, marker.action, seqno + 1)?;
    Ok(again.is_none())
}

/// Returns the options in a marker. A marker of an older build has none; then returns the
/// keyspace's present options.
fn options_of(shared: &Shared, marker: &DdlMarker<'_>) -> Result<Option<KeyspaceOptions>, ()> {
    if let Some(stored) = marker.options {
        return KeyspaceOptions::decode(stored).map(Some).ok_or(());
    }
    let catalog = shared.core.catalog.read();
    let tree = catalog.values().find(|tree| tree.id == marker.keyspace);
    Ok(tree.map(|tree| KeyspaceOptions::clone(&tree.options())))
}

/// Finds a dropped keyspace through the marker of its drop, searching from record `from` on.
fn find_drop(shared: &Shared, id: KeyspaceId, from: SeqNo) -> Result<Option<Known>> {
    let Some(record) = next_marker(shared, id, DdlAction::Drop, from)? else {
        return Ok(None);
    };
    let malformed = || malformed(shared, &record);
    let marker = DdlMarker::decode(&record.payload).ok_or_else(malformed)?;
    let options = options_of(shared, &marker).map_err(|()| malformed())?;
    Ok(options.map(|o| Known::new(id, marker.name, o.expiry.is_stored())))
}

/// Returns the first marker of this action for a keyspace, from record `from` on.
fn next_marker(
    shared: &Shared,
    id: KeyspaceId,
    action: DdlAction,
    from: SeqNo,
) -> Result<Option<FollowedRecord>> {
    let end = shared.core.read_points.visible();
    let log = LogPlace {
        vfs: Arc::clone(&shared.core.files.vfs),
        dir: shared.core.files.dir.clone(),
        database_uid: shared.uid,
        logged_from: shared.commits.env.progress.opened_at,
    };
    let mut log = LogFollower::begin(log, from, end)?;
    let mut records = VecDeque::new();
    let is_it = |record: &FollowedRecord| {
        let marker = DdlMarker::decode(&record.payload);
        record.kind == RecordKind::Ddl
            && marker.is_some_and(|marker| marker.keyspace == id && marker.action == action)
    };
    // Ends: each round reads on, and the end is fixed.
    while log.next_seqno() <= end {
        log.read(end, &mut records)?;
        if let Some(found) = records.drain(..).find(is_it) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::changes::Change;
    use crate::commit::payload::encode_payload;
    use crate::db::{Database, Durability, Options};
    use crate::vfs::MemVfs;
    use crate::{KeyspaceOptions, WriteBatch};

    #[test]
    fn an_operation_after_the_drop_of_its_keyspace_is_left_out() {
        let vfs = Arc::new(MemVfs::new());
        let db = Database::open_on(vfs, Path::new("db"), Options::default()).unwrap();
        let keyspace = |name| db.keyspace(name, KeyspaceOptions::default()).unwrap();
        let (kept, dropped) = (keyspace("kept"), keyspace("dropped"));
        let mut batch = WriteBatch::new();
        batch.put(&kept, b"a", b"1").unwrap();
        batch.put(&dropped, b"b", b"2").unwrap();
        // The commit has meanwhile waited in the queue.
        let payload = encode_payload(batch.writes());
        let drop = db.visible_seqno() + 1;
        db.drop_keyspace(&dropped).unwrap();
        db.shared()
            .commits
            .commit(payload, Durability::Buffered)
            .unwrap();
        for from in [1, drop, drop + 1] {
            let mut changes = db.changes(from).unwrap();
            let all: Vec<Change> = std::iter::from_fn(|| changes.next().unwrap()).collect();
            let Some(ChangeKind::Commit { operations, .. }) = all.last().map(|c| &c.kind) else {
                panic!("no commit");
            };
            let names: Vec<_> = operations
                .iter()
                .map(|operation| match operation {
                    Operation::Put { keyspace, .. } => keyspace.name.as_str(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(names, ["kept"], "from {from}");
        }
    }
}
