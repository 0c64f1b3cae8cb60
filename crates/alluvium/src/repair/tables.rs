//! Tables of a damaged database: intact ones are copied, good rows of the others go into new
//! tables.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::report::{LostRange, RepairReport};
use crate::base::{KeyspaceId, TableId, ValueFileId, ValueKind};
use crate::cache::Cache;
use crate::compaction::output::record as record_of;
use crate::compaction::table_options::table_options;
use crate::error::{Error, Result};
use crate::keyspace::expiry::{NEVER, expires_at};
use crate::keyspace::options::KeyspaceOptions;
use crate::memory::CACHE_BYTES_MIN;
use crate::range_deletes::RangeDeletes;
use crate::recovery::check_record;
use crate::table::{
    Pointer, Table, TableBuilder, TableOptions, ValueFile, ValuesPart, salvage, salvage_values,
};
use crate::version::{GroupEdit, ManifestState, TableRecord, VersionEdit, random_uid};
use crate::vfs::{Vfs, VfsFile};

/// Saves all readable data of every table of `state` to `target`, and updates `state` accordingly.
pub(super) fn save_tables(
    vfs: &dyn Vfs,
    source: &Path,
    target: &Path,
    state: &mut ManifestState,
    report: &mut RepairReport,
) -> Result<()> {
    // Replaced tables with their replacements, if anything was saved.
    let mut replaced: BTreeMap<TableId, Option<TableRecord>> = BTreeMap::new();
    let mut next = state.next_table;
    let mut edit = VersionEdit::default();
    for (&keyspace, tree) in &state.keyspaces {
        let options = KeyspaceOptions::decode(&tree.options).ok_or_else(|| {
            let what = "keyspace options";
            let expected = "options of this version";
            Error::corruption(&source.join("CURRENT"), 0, what, expected, "others")
        })?;
        let mut saver = Saver {
            vfs,
            source,
            target,
            keyspace,
            name: &tree.name,
            options: table_options(&options, false),
            expires: options.expiry.is_stored(),
            report,
        };
        let mut done: BTreeMap<TableId, bool> = BTreeMap::new();
        for (low, group) in tree.groups.iter() {
            let upper = group.upper.iter().map(|(run, table)| (Some(*run), table));
            let last = group.last.iter().map(|table| (None, table));
            for (run, table) in upper.chain(last) {
                let whole = match done.get(&table.id) {
                    Some(whole) => *whole,
                    None => {
                        let whole = saver.copy_whole(table)?;
                        if !whole {
                            replaced.insert(table.id, saver.salvage(table, next)?);
                            next = TableId(next.0 + 1);
                        }
                        done.insert(table.id, whole);
                        whole
                    }
                };
                if !whole {
                    let new = replaced.get(&table.id).cloned().flatten();
                    replace(&mut edit, keyspace, low, run, table.id, new);
                }
            }
        }
    }
    edit.next_table = Some(next);
    // Left out, as prepared transactions in the log are: their coordinator decides on them.
    edit.resolved.extend(state.prepared_tables.keys().cloned());
    state.apply(&edit).map_err(|error| {
        let path = source.join("CURRENT");
        Error::corruption(&path, 0, "list of tables", error.expected, error.found)
    })
}

fn replace(
    edit: &mut VersionEdit,
    keyspace: KeyspaceId,
    low: &[u8],
    run: Option<u64>,
    old: TableId,
    new: Option<TableRecord>,
) {
    let low = || low.to_vec();
    let (remove, add) = match run {
        Some(run) => (
            GroupEdit::RemoveUpper {
                keyspace,
                low: low(),
                table: old,
            },
            new.map(|table| GroupEdit::AddUpper {
                keyspace,
                low: low(),
                table,
                run,
            }),
        ),
        None => (
            GroupEdit::RemoveLast {
                keyspace,
                low: low(),
                table: old,
            },
            new.map(|table| GroupEdit::AddLast {
                keyspace,
                low: low(),
                table,
            }),
        ),
    };
    edit.groups.push(remove);
    edit.groups.extend(add);
}

/// Value files with their uids.
type OpenValues = BTreeMap<ValueFileId, (u64, Arc<ValueFile>)>;

/// Context for saving the tables of one keyspace.
struct Saver<'a> {
    vfs: &'a dyn Vfs,
    source: &'a Path,
    target: &'a Path,
    keyspace: KeyspaceId,
    name: &'a str,
    options: TableOptions,
    /// True if every value ends with its expiry time.
    expires: bool,
    report: &'a mut RepairReport,
}

impl Saver<'_> {
    /// Copies a table that passes every check. Otherwise adds the damage to the report and returns
    /// false.
    fn copy_whole(&mut self, record: &TableRecord) -> Result<bool> {
        let name = record.id.to_string();
        let (from, to) = (self.source.join(&name), self.target.join(&name));
        let before = self.report.damages.len();
        let opened = self.open_table(self.source, record);
        let mut parts = Vec::new();
        match opened {
            Ok(table) => {
                parts.clone_from(&table.properties().values);
                let damages = &mut self.report.damages;
                table.verify_all(&mut |_| {}, &mut |error| damages.push(error));
            }
            Err(error) => self.report.damages.push(error),
        }
        if self.report.damages.len() > before {
            return Ok(false);
        }
        for part in &parts {
            self.copy_values(part)?;
        }
        let copied = self.vfs.copy(&from, &to);
        copied.map_err(|e| Error::io("copy a table to", &to, e))?;
        // Verified because the copy read the file a second time, and a wrong bit would persist.
        let copy = self.open_table(self.target, record);
        copy.and_then(|copy| copy.verify())
            .map_err(|error| self.of_source(error))?;
        self.report.tables_copied += 1;
        Ok(true)
    }

    /// Returns the error with the path of the source file if the copy is wrong: the copy is removed
    /// again.
    fn of_source(&self, error: Error) -> Error {
        error.of_file(|path| match path.strip_prefix(self.target) {
            Ok(name) => self.source.join(name),
            Err(_) => path,
        })
    }

    fn open_table(&self, dir: &Path, record: &TableRecord) -> Result<Arc<Table>> {
        let path = dir.join(record.id.to_string());
        let cache = Cache::of_bytes(CACHE_BYTES_MIN as u64);
        let open_values = |part: &ValuesPart| ValueFile::open_in(self.vfs, dir, part);
        let file = self.open(&path)?;
        let table = Table::open_with(file, record.id, record.uid, cache, open_values)?;
        check_record(&path, record, &table)?;
        Ok(table)
    }

    /// Writes the good rows of a damaged table to the new table `id`. `None` if there are none.
    fn salvage(&mut self, record: &TableRecord, id: TableId) -> Result<Option<TableRecord>> {
        let Ok(file) = self.open(&self.source.join(record.id.to_string())) else {
            self.lose(record, &record.first_key, &record.last_key);
            self.report.tables_lost += 1;
            return Ok(None);
        };
        let path = self.target.join(id.to_string());
        let new = self.vfs.create(&path);
        let new = new.map_err(|e| Error::io("create", &path, e))?;
        let (expires, floor) = (self.expires, record.global_seqno.unwrap_or(0));
        let files = self.salvage_values(&*file, record.uid)?;
        let mut builder = TableBuilder::new(new, random_uid(), self.keyspace, &self.options);
        // Last good key, and true while rows since that key are lost.
        let mut last = record.first_key.clone();
        let open_loss = Cell::new(false);
        let mut lost = Vec::new();
        let ranges = salvage(
            &*file,
            record.uid,
            &mut |key, seqno, kind, value| {
                let pointed = if kind.is_pointer() {
                    match resolve(&files, value) {
                        Some(pointed) => Some(pointed),
                        None => {
                            open_loss.set(true);
                            return Ok(());
                        }
                    }
                } else {
                    None
                };
                if open_loss.replace(false) {
                    lost.push((last.clone(), key.to_vec()));
                }
                last.clear();
                last.extend_from_slice(key);
                // Only the manifest has the sequence number of an ingested row.
                builder.add(key, seqno.max(floor), kind, value)?;
                if let Some((file, uid, stored_bytes)) = pointed {
                    builder.note_pointer(file, uid, stored_bytes);
                }
                let until = expires_at(value).filter(|&until| until != NEVER);
                if let Some(until) = until.filter(|_| expires && !kind.is_tombstone()) {
                    builder.note_expiry(until);
                }
                Ok(())
            },
            &mut |_| open_loss.set(true),
        )?;
        if open_loss.into_inner() {
            lost.push((last, record.last_key.clone()));
        }
        if ranges.is_none() {
            // Without the table's range deletes, rows that they hid may be visible again.
            lost = vec![(record.first_key.clone(), record.last_key.clone())];
        }
        let ranges = ranges.unwrap_or_default();
        for (from, to) in &lost {
            self.lose(record, from, to);
        }
        self.finish(builder, ranges, id, &path)
    }

    /// Completes a salvaged table, or removes it if it is empty.
    fn finish(
        &mut self,
        mut builder: TableBuilder,
        ranges: RangeDeletes,
        id: TableId,
        path: &Path,
    ) -> Result<Option<TableRecord>> {
        if builder.entries() == 0
            && let Some(first) = ranges.first()
        {
            // A table has at least one entry. This tombstone repeats the range delete for its first
            // key.
            builder.add(first.start, first.newest(), ValueKind::Delete, &[])?;
        }
        if builder.entries() == 0 {
            drop(builder);
            self.vfs
                .remove(path)
                .map_err(|e| Error::io("remove", path, e))?;
            self.report.tables_lost += 1;
            return Ok(None);
        }
        builder.set_range_deletes(ranges);
        self.report.tables_salvaged += 1;
        Ok(Some(record_of(id, builder.finish()?)))
    }

    /// Copies and opens the value files that a damaged table points into. If one cannot be opened,
    /// the rows that point into it are lost.
    fn salvage_values(&mut self, file: &dyn VfsFile, uid: u64) -> Result<OpenValues> {
        let mut files = OpenValues::new();
        for part in salvage_values(file, uid) {
            if let Ok(values) = ValueFile::open_in(self.vfs, self.source, &part) {
                self.copy_values(&part)?;
                files.insert(part.file, (part.uid, values));
            }
        }
        Ok(files)
    }

    /// Copies a value file, unless it was already copied for another table.
    fn copy_values(&mut self, part: &ValuesPart) -> Result<()> {
        let name = part.file.to_string();
        let (from, to) = (self.source.join(&name), self.target.join(&name));
        match self.vfs.copy(&from, &to) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Error::io("copy values to", &to, error))
            }
            _ => Ok(()),
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn VfsFile>> {
        let file = self.vfs.open_read(path);
        file.map_err(|e| Error::io("open", path, e))
    }

    fn lose(&mut self, record: &TableRecord, from: &[u8], to: &[u8]) {
        self.report.lost.push(LostRange {
            keyspace: self.name.to_owned(),
            table: record.id.to_string(),
            from: from.to_vec(),
            to: to.to_vec(),
        });
    }
}

/// Resolves a pointer to file, uid and stored bytes, for the table's count; `None` if the value
/// cannot be read.
fn resolve(files: &OpenValues, stored: &[u8]) -> Option<(ValueFileId, u64, u64)> {
    let (pointer, rest) = Pointer::decode(stored)?;
    let (uid, file) = files.get(&pointer.file)?;
    file.read(&pointer, rest).ok()?;
    Some((pointer.file, *uid, u64::from(pointer.stored_bytes)))
}
