//! Edits of the manifest: one atomic change of keyspaces and tables, and its encoding.
//!
//! An encoded edit is a list of fields, each a tag byte, a varint length and that many bytes. A
//! reader skips an unknown field if the tag's top bit is set, and refuses the edit otherwise. The
//! codec is pure, accepts any bytes without a panic, and allocates no more than its input accounts
//! for. `docs/format/manifest.md` lists the fields.

use crate::base::coding::{Decoder, put_bytes, put_varint};
use crate::base::{KEY_BYTES_MAX, KeyspaceId, SEQNO_MAX, SegmentId, SeqNo, TableId, XID_BYTES_MAX};

/// One atomic change. Empty and `None` parts change nothing.
///
/// The parts apply in this order: numbers, dropped, renamed, created, options, flushed, prepared
/// tables, groups, resolved. A
/// number lower than the present one is ignored, so edits may reach the manifest in a different
/// order than ids were handed out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// No table has this id or a higher one.
    pub next_table: Option<TableId>,
    /// No segment needed so far has this id or a higher one.
    pub next_segment: Option<SegmentId>,
    /// No keyspace, dropped ones included, has this id or a higher one.
    pub next_keyspace: Option<KeyspaceId>,
    /// No entry of a table has a higher seqno.
    pub last_seqno: Option<SeqNo>,
    /// Oldest log segment that replay needs.
    pub oldest_segment: Option<SegmentId>,
    /// Last confirmed time in milliseconds since 1970; the time of reads never falls below it.
    pub read_clock_ms: Option<u64>,
    /// True if the prepared transactions listed so far are in the log by now.
    pub prepared_logged: bool,
    /// Unresolved prepared transactions of a copy that has no log yet, encoded as their records in
    /// a log.
    pub prepared: Vec<Vec<u8>>,
    /// Transactions prepared in tables.
    pub prepared_tables: Vec<PreparedTables>,
    /// Ids of the transactions among them that are decided. Those that are committed have their
    /// tables in `groups` of the same edit.
    pub resolved: Vec<Vec<u8>>,
    /// Per keyspace, the seqno up to which everything is in tables. Never falls.
    pub flushed_seqno: Vec<(KeyspaceId, SeqNo)>,
    /// New keyspaces, empty, with one group.
    pub created: Vec<KeyspaceRecord>,
    /// Dropped keyspaces, with the seqno of their end.
    pub dropped: Vec<(KeyspaceId, SeqNo)>,
    /// Keyspaces with a new name. Names need to be distinct only after the whole edit.
    pub renamed: Vec<(KeyspaceId, String)>,
    /// Keyspaces with new options, encoded by the keyspace module.
    pub options_changed: Vec<(KeyspaceId, Vec<u8>)>,
    /// Changes to trees, applied one after another. Each group must be in order only after the
    /// whole edit.
    pub groups: Vec<GroupEdit>,
}

/// Record of a keyspace in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceRecord {
    /// Id, never used before.
    pub id: KeyspaceId,
    /// Name, distinct from those of all other keyspaces.
    pub name: String,
    /// Options, encoded by the keyspace module.
    pub options: Vec<u8>,
    /// Place of its creation in the commit order.
    pub created_seqno: SeqNo,
}

/// Record of a table file in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRecord {
    /// Id of the table, which names the file.
    pub id: TableId,
    /// Random, also stored in the file: ties the record to this file and no other of the same name.
    pub uid: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of all entries, tombstones included.
    pub entries: u64,
    /// Number of tombstones and range deletes.
    pub tombstones: u64,
    /// Bytes of keys and values before encoding.
    pub raw_bytes: u64,
    /// Smallest key.
    pub first_key: Vec<u8>,
    /// Largest key, inclusive.
    pub last_key: Vec<u8>,
    /// Smallest seqno of an entry.
    pub min_seqno: SeqNo,
    /// Largest seqno of an entry.
    pub max_seqno: SeqNo,
    /// For an ingested table: entries with a lower seqno count as having this one.
    pub global_seqno: Option<SeqNo>,
}

/// Record of a transaction that is prepared in tables. They are part of no keyspace before its
/// commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedTables {
    /// Id of the transaction.
    pub xid: Vec<u8>,
    /// Its tables and their keyspaces: in key order and without overlaps for each keyspace.
    pub tables: Vec<(KeyspaceId, TableRecord)>,
}

/// Change to one group of a keyspace's tree. `low` is the group's low key, inclusive; empty for the
/// first group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupEdit {
    /// Lists a table in the group's upper part.
    AddUpper {
        /// Keyspace of the group.
        keyspace: KeyspaceId,
        /// Low key of the group.
        low: Vec<u8>,
        /// Record of the table.
        table: TableRecord,
        /// Run that the table belongs to; newer runs have larger numbers.
        run: u64,
    },
    /// Takes a table out of the group's upper part.
    RemoveUpper {
        /// Keyspace of the group.
        keyspace: KeyspaceId,
        /// Low key of the group.
        low: Vec<u8>,
        /// Id of the table.
        table: TableId,
    },
    /// Lists a table in the group's last level, at its place in key order.
    AddLast {
        /// Keyspace of the group.
        keyspace: KeyspaceId,
        /// Low key of the group.
        low: Vec<u8>,
        /// Record of the table.
        table: TableRecord,
    },
    /// Takes a table out of the group's last level.
    RemoveLast {
        /// Keyspace of the group.
        keyspace: KeyspaceId,
        /// Low key of the group.
        low: Vec<u8>,
        /// Id of the table.
        table: TableId,
    },
    /// Starts a new, empty group at `at`, inside the group at `low`. Following edits move tables to
    /// it.
    Split {
        /// Keyspace of the group.
        keyspace: KeyspaceId,
        /// Low key of the group that is split.
        low: Vec<u8>,
        /// Low key of the new group.
        at: Vec<u8>,
    },
    /// Joins the group to its left neighbor, which takes over its tables.
    Join {
        /// Keyspace of the group.
        keyspace: KeyspaceId,
        /// Low key of the group that disappears; not the first group.
        low: Vec<u8>,
    },
}

/// Reason why bytes are not an edit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The bytes follow no version of the format.
    #[error("{0}")]
    Malformed(&'static str),
    /// A newer version wrote a field that must be understood.
    #[error("unknown field {0}")]
    UnknownField(u8),
}

/// Field tags. On disk; they never change, and a retired tag is not used again.
mod tag {
    pub(super) const NEXT_TABLE: u8 = 1;
    pub(super) const NEXT_SEGMENT: u8 = 2;
    pub(super) const NEXT_KEYSPACE: u8 = 3;
    pub(super) const LAST_SEQNO: u8 = 4;
    pub(super) const OLDEST_SEGMENT: u8 = 5;
    pub(super) const FLUSHED_SEQNO: u8 = 6;
    pub(super) const CREATED: u8 = 7;
    pub(super) const DROPPED: u8 = 8;
    pub(super) const RENAMED: u8 = 9;
    pub(super) const OPTIONS_CHANGED: u8 = 10;
    pub(super) const ADD_UPPER: u8 = 11;
    pub(super) const REMOVE_UPPER: u8 = 12;
    pub(super) const ADD_LAST: u8 = 13;
    pub(super) const REMOVE_LAST: u8 = 14;
    pub(super) const SPLIT: u8 = 15;
    pub(super) const JOIN: u8 = 16;
    pub(super) const GLOBAL_SEQNOS: u8 = 17;
    pub(super) const PREPARED: u8 = 18;
    pub(super) const PREPARED_LOGGED: u8 = 19;
    pub(super) const PREPARED_TABLES: u8 = 20;
    pub(super) const RESOLVED: u8 = 21;

    pub(super) const READ_CLOCK: u8 = MAY_IGNORE | 1;

    /// Set in the tags of fields that an older reader may skip.
    pub(super) const MAY_IGNORE: u8 = 0x80;
}

/// Appends fields to an encoded edit.
#[derive(Default)]
struct FieldWriter {
    out: Vec<u8>,
    body: Vec<u8>,
}

impl FieldWriter {
    fn field(&mut self, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        self.body.clear();
        fill(&mut self.body);
        self.out.push(tag);
        put_bytes(&mut self.out, &self.body);
    }

    fn number(&mut self, tag: u8, value: Option<u64>) {
        if let Some(value) = value {
            self.field(tag, |out| put_varint(out, value));
        }
    }
}

impl VersionEdit {
    /// Returns the encoded edit.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldWriter::default();
        w.number(tag::NEXT_TABLE, self.next_table.map(|id| id.0));
        w.number(tag::NEXT_SEGMENT, self.next_segment.map(|id| id.0));
        w.number(tag::NEXT_KEYSPACE, self.next_keyspace.map(|id| id.0.into()));
        w.number(tag::LAST_SEQNO, self.last_seqno);
        w.number(tag::OLDEST_SEGMENT, self.oldest_segment.map(|id| id.0));
        w.number(tag::READ_CLOCK, self.read_clock_ms);
        if self.prepared_logged {
            w.field(tag::PREPARED_LOGGED, |_| {});
        }
        for prepared in &self.prepared {
            w.field(tag::PREPARED, |out| put_bytes(out, prepared));
        }
        for prepared in &self.prepared_tables {
            w.field(tag::PREPARED_TABLES, |out| prepared.encode(out));
        }
        for xid in &self.resolved {
            w.field(tag::RESOLVED, |out| put_bytes(out, xid));
        }
        for (tag, list) in [
            (tag::FLUSHED_SEQNO, &self.flushed_seqno),
            (tag::DROPPED, &self.dropped),
        ] {
            for (keyspace, seqno) in list {
                w.field(tag, |out| {
                    put_varint(out, keyspace.0.into());
                    put_varint(out, *seqno);
                });
            }
        }
        for record in &self.created {
            w.field(tag::CREATED, |out| {
                put_varint(out, record.id.0.into());
                put_bytes(out, record.name.as_bytes());
                put_bytes(out, &record.options);
                put_varint(out, record.created_seqno);
            });
        }
        let renamed = self.renamed.iter().map(|(id, name)| (id, name.as_bytes()));
        let changed = self
            .options_changed
            .iter()
            .map(|(id, bytes)| (id, &bytes[..]));
        for (tag, keyspace, bytes) in renamed
            .map(|(id, bytes)| (tag::RENAMED, id, bytes))
            .chain(changed.map(|(id, bytes)| (tag::OPTIONS_CHANGED, id, bytes)))
        {
            w.field(tag, |out| {
                put_varint(out, keyspace.0.into());
                put_bytes(out, bytes);
            });
        }
        if self.groups.iter().any(GroupEdit::has_global_seqno) {
            // Empty: it keeps out readers that would take the seqnos in the files for those of the
            // rows.
            w.field(tag::GLOBAL_SEQNOS, |_| {});
        }
        for edit in &self.groups {
            w.field(edit.tag(), |out| edit.encode(out));
        }
        w.out
    }

    /// Decodes an edit.
    ///
    /// # Errors
    ///
    /// [`EditError`] for anything that [`VersionEdit::encode`] of this or a compatible later
    /// version does not produce.
    pub fn decode(bytes: &[u8]) -> Result<VersionEdit, EditError> {
        let mut edit = VersionEdit::default();
        let mut d = Decoder::new(bytes);
        while !d.is_empty() {
            let field = d.u8().zip(d.bytes());
            let (tag, body) = field.ok_or(EditError::Malformed("a field is cut off"))?;
            let mut body = Decoder::new(body);
            match edit.decode_field(tag, &mut body) {
                Some(true) if body.is_empty() => {}
                Some(false) if tag & tag::MAY_IGNORE != 0 => {}
                Some(false) => return Err(EditError::UnknownField(tag)),
                Some(true) => return Err(EditError::Malformed("a field is too long")),
                None => return Err(EditError::Malformed("a field holds no valid value")),
            }
        }
        Ok(edit)
    }

    /// Adds one field. Returns `Some(false)` if the tag is unknown, `None` if the body is not
    /// valid.
    fn decode_field(&mut self, tag: u8, d: &mut Decoder<'_>) -> Option<bool> {
        match tag {
            tag::NEXT_TABLE => set_once(&mut self.next_table, TableId(d.varint()?))?,
            tag::NEXT_SEGMENT => set_once(&mut self.next_segment, SegmentId(d.varint()?))?,
            tag::NEXT_KEYSPACE => set_once(&mut self.next_keyspace, keyspace(d)?)?,
            tag::LAST_SEQNO => set_once(&mut self.last_seqno, seqno(d)?)?,
            tag::OLDEST_SEGMENT => set_once(&mut self.oldest_segment, SegmentId(d.varint()?))?,
            tag::READ_CLOCK => set_once(&mut self.read_clock_ms, d.varint()?)?,
            tag::FLUSHED_SEQNO => self.flushed_seqno.push((keyspace(d)?, seqno(d)?)),
            tag::DROPPED => self.dropped.push((keyspace(d)?, seqno(d)?)),
            tag::CREATED => self.created.push(KeyspaceRecord {
                id: keyspace(d)?,
                name: text(d)?,
                options: d.bytes()?.to_vec(),
                created_seqno: seqno(d)?,
            }),
            tag::RENAMED => self.renamed.push((keyspace(d)?, text(d)?)),
            tag::OPTIONS_CHANGED => self
                .options_changed
                .push((keyspace(d)?, d.bytes()?.to_vec())),
            tag::GLOBAL_SEQNOS => {}
            tag::PREPARED => self.prepared.push(d.bytes()?.to_vec()),
            tag::PREPARED_LOGGED => self.prepared_logged = true,
            tag::PREPARED_TABLES => self.prepared_tables.push(PreparedTables::decode(d)?),
            tag::RESOLVED => self.resolved.push(xid(d)?),
            tag::ADD_UPPER..=tag::JOIN => self.groups.push(GroupEdit::decode(tag, d)?),
            _ => return Some(false),
        }
        Some(true)
    }
}

/// Sets a number. A number that occurs twice in one edit is an error, as no writer produces it.
fn set_once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

fn keyspace(d: &mut Decoder<'_>) -> Option<KeyspaceId> {
    d.varint32().map(KeyspaceId)
}

fn seqno(d: &mut Decoder<'_>) -> Option<SeqNo> {
    d.varint().filter(|&seqno| seqno <= SEQNO_MAX)
}

fn text(d: &mut Decoder<'_>) -> Option<String> {
    String::from_utf8(d.bytes()?.to_vec()).ok()
}

fn key(d: &mut Decoder<'_>) -> Option<Vec<u8>> {
    let key = d.bytes()?;
    (key.len() <= KEY_BYTES_MAX).then(|| key.to_vec())
}

fn xid(d: &mut Decoder<'_>) -> Option<Vec<u8>> {
    let xid = d.bytes()?;
    (xid.len() <= XID_BYTES_MAX).then(|| xid.to_vec())
}

impl PreparedTables {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.xid);
        for (keyspace, table) in &self.tables {
            put_varint(out, keyspace.0.into());
            table.encode(out);
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Option<PreparedTables> {
        let mut prepared = PreparedTables {
            xid: xid(d)?,
            tables: Vec::new(),
        };
        while !d.is_empty() {
            let keyspace = keyspace(d)?;
            prepared.tables.push((keyspace, TableRecord::decode(d)?));
        }
        Some(prepared)
    }
}

impl GroupEdit {
    /// Returns the keyspace that changes.
    pub fn keyspace(&self) -> KeyspaceId {
        match self {
            GroupEdit::AddUpper { keyspace, .. }
            | GroupEdit::RemoveUpper { keyspace, .. }
            | GroupEdit::AddLast { keyspace, .. }
            | GroupEdit::RemoveLast { keyspace, .. }
            | GroupEdit::Split { keyspace, .. }
            | GroupEdit::Join { keyspace, .. } => *keyspace,
        }
    }

    /// Returns the low key of the group that changes.
    pub fn low(&self) -> &[u8] {
        match self {
            GroupEdit::AddUpper { low, .. }
            | GroupEdit::RemoveUpper { low, .. }
            | GroupEdit::AddLast { low, .. }
            | GroupEdit::RemoveLast { low, .. }
            | GroupEdit::Split { low, .. }
            | GroupEdit::Join { low, .. } => low,
        }
    }

    fn has_global_seqno(&self) -> bool {
        match self {
            GroupEdit::AddUpper { table, .. } | GroupEdit::AddLast { table, .. } => {
                table.global_seqno.is_some()
            }
            _ => false,
        }
    }

    fn tag(&self) -> u8 {
        match self {
            GroupEdit::AddUpper { .. } => tag::ADD_UPPER,
            GroupEdit::RemoveUpper { .. } => tag::REMOVE_UPPER,
            GroupEdit::AddLast { .. } => tag::ADD_LAST,
            GroupEdit::RemoveLast { .. } => tag::REMOVE_LAST,
            GroupEdit::Split { .. } => tag::SPLIT,
            GroupEdit::Join { .. } => tag::JOIN,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.keyspace().0.into());
        put_bytes(out, self.low());
        match self {
            GroupEdit::AddUpper { table, run, .. } => {
                put_varint(out, *run);
                table.encode(out);
            }
            GroupEdit::AddLast { table, .. } => table.encode(out),
            GroupEdit::RemoveUpper { table, .. } | GroupEdit::RemoveLast { table, .. } => {
                put_varint(out, table.0);
            }
            GroupEdit::Split { at, .. } => put_bytes(out, at),
            GroupEdit::Join { .. } => {}
        }
    }

    fn decode(tag: u8, d: &mut Decoder<'_>) -> Option<GroupEdit> {
        let keyspace = keyspace(d)?;
        let low = key(d)?;
        Some(match tag {
            tag::ADD_UPPER => GroupEdit::AddUpper {
                keyspace,
                low,
                run: d.varint()?,
                table: TableRecord::decode(d)?,
            },
            tag::REMOVE_UPPER => GroupEdit::RemoveUpper {
                keyspace,
                low,
                table: TableId(d.varint()?),
            },
            tag::ADD_LAST => GroupEdit::AddLast {
                keyspace,
                low,
                table: TableRecord::decode(d)?,
            },
            tag::REMOVE_LAST => GroupEdit::RemoveLast {
                keyspace,
                low,
                table: TableId(d.varint()?),
            },
            tag::SPLIT => GroupEdit::Split {
                keyspace,
                low,
                at: key(d)?,
            },
            tag::JOIN => GroupEdit::Join { keyspace, low },
            _ => return None,
        })
    }
}

impl TableRecord {
    /// Returns the smallest and the largest seqno of the table's entries, with the global seqno
    /// applied.
    pub fn seqnos(&self) -> (SeqNo, SeqNo) {
        let floor = self.global_seqno.unwrap_or(0);
        (self.min_seqno.max(floor), self.max_seqno.max(floor))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.id.0);
        out.extend_from_slice(&self.uid.to_le_bytes());
        for number in [
            self.file_bytes,
            self.entries,
            self.tombstones,
            self.raw_bytes,
        ] {
            put_varint(out, number);
        }
        put_bytes(out, &self.first_key);
        put_bytes(out, &self.last_key);
        put_varint(out, self.min_seqno);
        put_varint(out, self.max_seqno);
        // Shifted by one, so that 0 is "none".
        put_varint(out, self.global_seqno.map_or(0, |seqno| seqno + 1));
    }

    fn decode(d: &mut Decoder<'_>) -> Option<TableRecord> {
        let record = TableRecord {
            id: TableId(d.varint()?),
            uid: d.u64()?,
            file_bytes: d.varint()?,
            entries: d.varint()?,
            tombstones: d.varint()?,
            raw_bytes: d.varint()?,
            first_key: key(d)?,
            last_key: key(d)?,
            min_seqno: seqno(d)?,
            max_seqno: seqno(d)?,
            global_seqno: match d.varint()? {
                0 => None,
                shifted => Some(shifted - 1).filter(|&seqno| seqno <= SEQNO_MAX),
            },
        };
        let ordered = record.first_key <= record.last_key && record.min_seqno <= record.max_seqno;
        ordered.then_some(record)
    }
}

#[cfg(test)]
mod tests;
