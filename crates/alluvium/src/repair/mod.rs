//! The last good state of a damaged database, as a new database; the damaged one is only read.
//!
//! - The manifest is taken up to its last edit that can be read, or an older one where it cannot be read at all.
//! - Tables that pass every check are copied. Of the others the rows of good blocks are written to new tables.
//! - The log is committed again on top, up to its first damage.
//!
//! What is lost is reported, and what that means is for the caller to judge: where rows of a newer table are lost, older
//! versions of their keys may be seen again, and deleted keys may be back.

mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::tables::save_tables;
use crate::base::{KeyspaceId, SegmentId, SeqNo};
use crate::clock::Clock;
use crate::commit::batch::{Ops, encode_op};
use crate::commit::packed::unpack;
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

/// What [`repair`] saved and what it did not.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Everything that could not be read, by file and offset.
    pub damages: Vec<Error>,
    /// Ranges of keys in which entries of a table are lost.
    pub lost: Vec<LostRange>,
    /// Tables copied as they were.
    pub tables_copied: u64,
    /// Tables of which the good blocks were saved.
    pub tables_salvaged: u64,
    /// Tables of which nothing was saved.
    pub tables_lost: u64,
    /// Commits of the log that were made again.
    pub commits_replayed: u64,
    /// Operations of the log on keyspaces that the readable part of the manifest does not know.
    pub unknown_operations: u64,
    /// Table files that the readable part of the manifest does not name. Usually left of an interrupted merge; where
    /// edits of the manifest are lost they may hold rows, which were not saved.
    pub unnamed_tables: Vec<String>,
}

/// Keys around entries that are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// The keyspace.
    pub keyspace: String,
    /// The table's file.
    pub table: String,
    /// No key below this one is concerned.
    pub from: Vec<u8>,
    /// No key above this one is concerned.
    pub to: Vec<u8>,
}

impl RepairReport {
    /// Whether everything was saved that the database is known to have held.
    pub fn is_complete(&self) -> bool {
        self.damages.is_empty() && self.unknown_operations == 0
    }
}

/// Saves what can be read of the database in `source` as a new database at `target`, which must not exist and whose
/// parent must. `source` must not be open for writing, and is not changed. Durable when the call returns.
///
/// # Errors
///
/// `Locked`; `InvalidArgument` for a target that cannot be; `Corruption` if no manifest can be read; `NewerFormat` of
/// the manifest; `NoSpace` and `Io`. Nothing is left at the target.
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    repair_on(Arc::new(RealVfs::new()), source, target)
}

/// As [`repair`], on a file system of the caller's.
pub fn repair_on(
    vfs: Arc<dyn Vfs>,
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
) -> Result<RepairReport> {
    let source = &absolute(&*vfs, source.as_ref())?;
    let target = &absolute(&*vfs, target.as_ref())?;
    check_target(&*vfs, source, target)?;
    // Keeps writers away where there is a lock file.
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

    fn unnamed_tables(&self, state: &ManifestState) -> Result<Vec<String>> {
        let names = self.vfs.list(&self.source);
        let mut names = names.map_err(|e| Error::io("list", &self.source, e))?;
        let named: Vec<String> = state.table_ids().map(|id| id.to_string()).collect();
        names.retain(|name| name.ends_with(".sst") && !named.contains(name));
        names.sort();
        Ok(names)
    }

    /// Commits again what the log has above the tables, up to its first damage. Newer than every table of its keyspace,
    /// it may get new sequence numbers.
    fn replay(&self, uid: u64, original: &ManifestState, report: &mut RepairReport) -> Result<()> {
        let options = Options {
            create: false,
            // Stands still at the time that the manifest remembers: no row expires by the repair.
            clock: Clock::custom(|| 0),
            ..Options::default()
        };
        let db = Database::open_on(Arc::clone(&self.vfs), &self.target, options)?;
        let (mut commits, mut unknown, mut malformed) = (0, 0, None);
        let mut visit = |segment: SegmentId, seqno, kind, payload: &[u8]| {
            let raw = match kind {
                RecordKind::Commit => Some(payload.to_vec()),
                RecordKind::PackedCommit => unpack(payload),
                // One that was only prepared is left out: whether it is committed is for others to say.
                RecordKind::CommitPrepared => {
                    prepared::decode(payload).map(|(_, ops)| ops.to_vec())
                }
                _ => return Ok(()),
            };
            let kept = raw.and_then(|raw| keep(&raw, seqno, original, &mut unknown));
            // The first commit that cannot be read is where the log ends.
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
                    db.shared().commit(kept, Durability::Buffered)?;
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

/// The operations of a commit that are above what their keyspace has in tables; `None`: malformed.
fn keep(raw: &[u8], seqno: SeqNo, state: &ManifestState, unknown: &mut u64) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    let known = |id: KeyspaceId| state.keyspaces.get(&id);
    for op in Ops::new(raw) {
        let op = op.ok()?;
        match known(op.keyspace) {
            Some(keyspace) if seqno > keyspace.flushed_seqno => encode_op(&mut kept, &op),
            Some(_) => {}
            // Of a keyspace that was dropped, unless it is one that was never heard of.
            None => *unknown += u64::from(op.keyspace >= state.next_keyspace),
        }
    }
    Some(kept)
}
