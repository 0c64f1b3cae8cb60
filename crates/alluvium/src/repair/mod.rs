//! Repair: saves the last good state of a damaged database as a new database. The damaged one is
//! only read.
//!
//! - The manifest is read up to its last readable edit. If it cannot be read at all, an older one
//!   is used.
//! - Tables that pass every check are copied. From the others, rows of good blocks are written to
//!   new tables.
//! - The log is committed again on top, up to its first damage.
//!
//! The report lists all losses, and the caller must judge their effect. If rows of a newer table
//! are lost, older versions of their keys may be visible again, and deleted keys may reappear.

mod report;
mod tables;

pub use report::{LostRange, RepairReport};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::tables::save_tables;
use crate::base::{KeyspaceId, SegmentId, SeqNo, TableId};
use crate::clock::Clock;
use crate::commit::packed::unpack;
use crate::commit::payload::{Ops, encode_op};
use crate::commit::prepared;
use crate::db::checkpoint::{
    check_target, put_in_place, remove_directory, temporary_name, write_database,
};
use crate::db::{Database, Durability, Options};
use crate::error::{Error, Result};
use crate::recovery::{absolute, lock_to_read};
use crate::version::{Manifest, ManifestState};
use crate::vfs::{RealVfs, Vfs};
use crate::wal::RecordKind;

/// Saves all readable data of the database in `source` as a new database at `target`.
///
/// The target must not exist, and its parent must. `source` must not be open for writing, and is
/// not changed. Durable when the call returns.
///
/// # Errors
///
/// `Locked`; `InvalidArgument` for an unsuitable target; `Corruption` if no manifest can be read;
/// `NewerFormat` of the manifest; `NoSpace` and `Io`. Nothing is left at the target.
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    repair_on(Arc::new(RealVfs::new()), source, target)
}

/// Saves a damaged database as [`repair`] does, on another file system.
pub fn repair_on(
    vfs: Arc<dyn Vfs>,
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
) -> Result<RepairReport> {
    let source = &absolute(&*vfs, source.as_ref())?;
    let target = &absolute(&*vfs, target.as_ref())?;
    check_target(&*vfs, source, target)?;
    // Keeps writers out if there is a lock file.
    let _lock = lock_to_read(&*vfs, source)?;
    let temporary = temporary_name(target)?;
    let job = Repair {
        vfs: Arc::clone(&vfs),
        source: source.to_path_buf(),
        target: temporary.clone(),
    };
    let done = job.run().and_then(|report| {
        put_in_place(&*vfs, &temporary, target)?;
        Ok(report)
    });
    if done.is_err() {
        remove_directory(&*vfs, &temporary);
    }
    done
}

struct Repair {
    vfs: Arc<dyn Vfs>,
    source: PathBuf,
    target: PathBuf,
}

impl Repair {
    fn run(&self) -> Result<RepairReport> {
        let mut report = RepairReport::default();
        let mut damages = Vec::new();
        let salvaged = Manifest::salvage(&*self.vfs, &self.source, &mut |e| damages.push(e));
        report.damages = damages;
        let (uid, original) = salvaged?;
        report.unnamed_tables = self.unnamed_tables(&original)?;
        let vfs = &*self.vfs;
        vfs.create_dir_all(&self.target)
            .map_err(|e| Error::io("create directory", &self.target, e))?;
        let mut state = original.clone();
        save_tables(vfs, &self.source, &self.target, &mut state, &mut report)?;
        state.oldest_segment = SegmentId(0);
        write_database(&self.vfs, &self.target, state)?;
        self.replay(uid, &original, &mut report)?;
        Ok(report)
    }

    /// Returns the tables of no keyspace, those of prepared transactions among them.
    fn unnamed_tables(&self, state: &ManifestState) -> Result<Vec<String>> {
        let names = self.vfs.list(&self.source);
        let mut names = names.map_err(|e| Error::io("list", &self.source, e))?;
        let prepared = state.prepared_tables.values().flatten();
        let prepared: Vec<TableId> = prepared.map(|(_, table)| table.id).collect();
        let of_keyspaces = state.table_ids().filter(|id| !prepared.contains(id));
        let named: Vec<String> = of_keyspaces.map(|id| id.to_string()).collect();
        names.retain(|name| name.ends_with(".sst") && !named.contains(name));
        names.sort();
        Ok(names)
    }

    /// Commits the log records that are newer than the tables again, up to the first damage. They
    /// are newer than every table of their keyspace, so they may get new sequence numbers.
    fn replay(&self, uid: u64, original: &ManifestState, report: &mut RepairReport) -> Result<()> {
        let options = Options {
            create: false,
            // Stopped at the time stored in the manifest, so that repair expires no row.
            clock: Clock::custom(|| 0),
            ..Options::default()
        };
        let db = Database::open_on(Arc::clone(&self.vfs), &self.target, options)?;
        let (mut commits, mut unknown, mut malformed) = (0, 0, None);
        let mut visit = |segment: SegmentId, seqno, kind, payload: &[u8]| {
            let raw = match kind {
                RecordKind::Commit => Some(payload.to_vec()),
                RecordKind::PackedCommit => unpack(payload),
                // A transaction that was only prepared is left out: its coordinator decides whether
                // it commits.
                RecordKind::CommitPrepared => {
                    prepared::decode(payload).map(|(_, ops)| ops.to_vec())
                }
                _ => return Ok(()),
            };
            let kept = raw.and_then(|raw| keep(&raw, seqno, original, &mut unknown));
            // The log ends at the first commit that cannot be read.
            match kept {
                _ if malformed.is_some() => {}
                None => {
                    let path = self.source.join(segment.to_string());
                    let what = "payload of a commit record";
                    let found = format!("others in commit {seqno}");
                    malformed = Some(Error::corruption(&path, 0, what, "operations", found));
                }
                Some(kept) if kept.is_empty() => {}
                Some(kept) => {
                    db.shared().commits.commit(kept, Durability::Buffered)?;
                    commits += 1;
                }
            }
            Ok(())
        };
        let (vfs, oldest) = (&*self.vfs, original.oldest_segment);
        let stopped = crate::wal::salvage(vfs, &self.source, uid, oldest, &mut visit)?;
        report.damages.extend(malformed.or(stopped));
        report.commits_replayed = commits;
        report.unknown_operations = unknown;
        db.flush()?;
        db.close()
    }
}

/// Returns the operations of a commit that are newer than the tables of their keyspace; `None` if
/// the commit is malformed.
fn keep(raw: &[u8], seqno: SeqNo, state: &ManifestState, unknown: &mut u64) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    let known = |id: KeyspaceId| state.keyspaces.get(&id);
    for op in Ops::new(raw) {
        let op = op.ok()?;
        match known(op.keyspace) {
            Some(keyspace) if seqno > keyspace.flushed_seqno => encode_op(&mut kept, &op),
            Some(_) => {}
            // The keyspace was dropped, unless its number was never assigned.
            None => *unknown += u64::from(op.keyspace >= state.next_keyspace),
        }
    }
    Some(kept)
}
