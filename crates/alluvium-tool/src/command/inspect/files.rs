//! Files of a database: their sizes and versions, and the tables of each group.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use alluvium::base::TableId;
use alluvium::internal::{
    Cache, GroupState, ManifestState, Table, TableRecord, ValueFile, ValuesPart, parse_segment_name,
};
use alluvium::vfs::{RealVfs, Vfs, VfsFile};
use alluvium::{Error, Result};
use serde_json::{Value, json};

use crate::text::Coding;

/// Files of the directory, by kind.
pub struct Files {
    pub values: Vec<Value>,
    pub segments: Vec<Value>,
    pub others: Vec<Value>,
    /// Bytes of all files, without those in subdirectories.
    pub bytes: u64,
    /// Newest version among the files of each kind.
    pub manifest_version: Option<u32>,
    pub log_version: Option<u32>,
    pub table_version: Option<u32>,
}

/// Examines every file of the directory, and the properties of every table.
pub fn survey(dir: &Path, state: &ManifestState) -> Result<Files> {
    let mut files = Files {
        values: Vec::new(),
        segments: Vec::new(),
        others: Vec::new(),
        bytes: 0,
        manifest_version: None,
        log_version: None,
        table_version: None,
    };
    let values = value_files(dir, state)?;
    let mut names = RealVfs::new()
        .list(dir)
        .map_err(|e| Error::io("list", dir, e))?;
    names.sort();
    for name in names {
        let path = dir.join(&name);
        // A bulk load's file may have disappeared meanwhile, and subdirectories are skipped.
        let Ok(bytes) = std::fs::metadata(&path).map(|m| if m.is_file() { m.len() } else { 0 })
        else {
            continue;
        };
        files.bytes += bytes;
        let mut entry = json!({ "file": name, "bytes": bytes });
        if name.ends_with(".sst") {
            // The version is stored 16 bytes before the end, in every future version too.
            let version = u32_at(&path, bytes.saturating_sub(16));
            files.table_version = files.table_version.max(version);
            let named = state.table_ids().any(|id| id.to_string() == name);
            if !named {
                files.others.push(entry);
            }
        } else if let Some(part) = values.get(&name) {
            entry["entries"] = part.entries.into();
            entry["used_bytes"] = part.stored_bytes.into();
            files.values.push(entry);
        } else if parse_segment_name(&name).is_some() {
            files.log_version = files.log_version.max(u32_at(&path, 8));
            files.segments.push(entry);
        } else {
            if name.ends_with(".manifest") {
                files.manifest_version = files.manifest_version.max(u32_at(&path, 8));
            }
            files.others.push(entry);
        }
    }
    Ok(files)
}

/// Reads the number at an offset of a file; `None` if the file cannot be read there.
fn u32_at(path: &Path, offset: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    let file = RealVfs::new().open_read(path).ok()?;
    file.read_at(&mut bytes, offset).ok()?;
    Some(u32::from_le_bytes(bytes))
}

/// Sums the properties of tables about the value files they point into, by file name.
fn value_files(dir: &Path, state: &ManifestState) -> Result<BTreeMap<String, ValuesPart>> {
    let mut parts: BTreeMap<String, ValuesPart> = BTreeMap::new();
    let mut done = BTreeSet::new();
    // No blocks are read, so a minimal cache suffices.
    let cache = Cache::of_bytes(1 << 20);
    let groups = state.keyspaces.values().flat_map(|k| k.groups.values());
    for record in groups.flat_map(records) {
        if !done.insert(record.id) {
            continue;
        }
        let table = open_table(dir, record.id, record.uid, &cache)?;
        for part in &table.properties().values {
            let sum = parts.entry(part.file.to_string()).or_insert(ValuesPart {
                entries: 0,
                stored_bytes: 0,
                ..*part
            });
            sum.entries += part.entries;
            sum.stored_bytes += part.stored_bytes;
        }
    }
    Ok(parts)
}

fn open_file(path: &Path) -> Result<Arc<dyn VfsFile>> {
    let file = RealVfs::new().open_read(path);
    file.map_err(|e| Error::io("open", path, e))
}

fn open_table(dir: &Path, id: TableId, uid: u64, cache: &Arc<Cache>) -> Result<Arc<Table>> {
    let file = open_file(&dir.join(id.to_string()))?;
    Table::open_with(file, id, uid, Arc::clone(cache), |part| {
        let file = open_file(&dir.join(part.file.to_string()))?;
        ValueFile::open(file, part.file, part.uid)
    })
}

fn records(group: &GroupState) -> impl Iterator<Item = &TableRecord> {
    group.upper.iter().map(|(_, r)| r).chain(&group.last)
}

/// Returns a group with its runs, newest first, and its last level.
pub fn group_json(coding: Coding, low: &[u8], group: &GroupState) -> Value {
    let mut runs: Vec<(u64, Vec<Value>)> = Vec::new();
    for (run, record) in &group.upper {
        let table = table_json(coding, record);
        match runs.last_mut() {
            Some((last, tables)) if last == run => tables.push(table),
            _ => runs.push((*run, vec![table])),
        }
    }
    let runs = runs.into_iter();
    let runs = runs.map(|(run, tables)| json!({ "run": run, "tables": tables }));
    json!({
        "low": coding.show(low),
        "upper": runs.collect::<Vec<_>>(),
        "last": group.last.iter().map(|r| table_json(coding, r)).collect::<Vec<_>>(),
    })
}

/// Returns the manifest's record of a table as JSON.
pub fn table_json(coding: Coding, record: &TableRecord) -> Value {
    json!({
        "file": record.id.to_string(),
        "bytes": record.file_bytes,
        "entries": record.entries,
        "tombstones": record.tombstones,
        "raw_bytes": record.raw_bytes,
        "first_key": coding.show(&record.first_key),
        "last_key": coding.show(&record.last_key),
        "min_seqno": record.min_seqno,
        "max_seqno": record.max_seqno,
        "global_seqno": record.global_seqno,
    })
}
