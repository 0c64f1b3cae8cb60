//! Properties of a table: counts, key range, seqno range, and the owner's own properties.
//!
//! The raw bytes are fields of `tag varint | length varint | bytes`. A reader skips unknown tags; a
//! property that it must know has a feature bit in the footer.
//!
//! ```text
//! 1  keyspaces    for each: id, first block, block count (varints); this version writes one
//! 2  counts       entries, tombstones, inserts, raw key bytes, raw value bytes (varints)
//! 3  seqnos       smallest, largest (varints)
//! 4  first key    bytes
//! 5  last key     bytes
//! 6  user         name (varint length, bytes), value (the rest); one field for each
//! 8  values       for each value file pointed into: id, uid, entries, stored bytes (varints)
//! 7  expiry       entries that expire, earliest time, latest time (varints); absent if none
//! 9  older        entries older than another version of their key (varint); absent if none
//! ```

use crate::base::coding::{Decoder, put_bytes, put_varint};
use crate::base::{KeyspaceId, SeqNo, ValueFileId};
use crate::range_deletes::RangeDeletes;
use crate::table::malformed::Malformed;

/// The properties of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// Keyspaces whose rows the table contains, in order. This version writes one.
    pub keyspaces: Vec<KeyspacePart>,
    /// Number of entries: every version of every key.
    pub entries: u64,
    /// Number of entries that are deletes.
    pub tombstones: u64,
    /// Number of entries that are inserts; a delete may cancel an insert.
    pub inserts: u64,
    /// Number of entries with a newer version of their key in the table; a snapshot may have needed
    /// them. 0 in tables of builds that did not count them.
    pub older_versions: u64,
    /// Sum of all key lengths in bytes.
    pub raw_key_bytes: u64,
    /// Sum of all value lengths in bytes.
    pub raw_value_bytes: u64,
    /// The smallest seqno of an entry or range delete.
    pub min_seqno: SeqNo,
    /// The largest seqno of an entry or range delete.
    pub max_seqno: SeqNo,
    /// The smallest key, or the start of a range delete before it.
    pub first_key: Vec<u8>,
    /// The largest key, or the end of a range delete after it.
    pub last_key: Vec<u8>,
    /// Entries that expire; `None` if none do.
    pub expiring: Option<Expiring>,
    /// The value files that the table points into, by number.
    pub values: Vec<ValuesPart>,
    /// Names and values stored by the table's owner; the table does not interpret them.
    pub user: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Part of a value file that a table points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuesPart {
    /// Number of the value file.
    pub file: ValueFileId,
    /// Random number that distinguishes this file from any other of the same name.
    pub uid: u64,
    /// Number of entries that point into it.
    pub entries: u64,
    /// Bytes that these entries point to.
    pub stored_bytes: u64,
}

/// The entries of a table that expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiring {
    /// Number of entries that expire.
    pub entries: u64,
    /// Earliest expiry time in milliseconds since 1970.
    pub first_ms: u64,
    /// Latest expiry time in milliseconds since 1970.
    pub last_ms: u64,
}

impl Expiring {
    /// Estimates the number of entries expired at `now_ms`, as if their times were spread evenly.
    pub fn expired(&self, now_ms: u64) -> u64 {
        if now_ms >= self.last_ms {
            return self.entries;
        }
        let passed = u128::from(now_ms.saturating_sub(self.first_ms));
        let span = u128::from(self.last_ms.saturating_sub(self.first_ms).max(1));
        (u128::from(self.entries) * passed / span) as u64
    }
}

/// The blocks of one keyspace in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyspacePart {
    /// Id of the keyspace.
    pub keyspace: KeyspaceId,
    /// Index of its first block.
    pub first_block: u32,
    /// Number of its blocks.
    pub blocks: u32,
}

const TAG_KEYSPACES: u64 = 1;
const TAG_COUNTS: u64 = 2;
const TAG_SEQNOS: u64 = 3;
const TAG_FIRST_KEY: u64 = 4;
const TAG_LAST_KEY: u64 = 5;
const TAG_USER: u64 = 6;
const TAG_EXPIRING: u64 = 7;
const TAG_VALUES: u64 = 8;
const TAG_OLDER_VERSIONS: u64 = 9;

impl Properties {
    /// Counts an entry that expires at `until_ms`.
    pub(super) fn note_expiry(&mut self, until_ms: u64) {
        let expiring = self.expiring.get_or_insert(Expiring {
            entries: 0,
            first_ms: until_ms,
            last_ms: until_ms,
        });
        expiring.entries += 1;
        expiring.first_ms = expiring.first_ms.min(until_ms);
        expiring.last_ms = expiring.last_ms.max(until_ms);
    }

    /// Counts an entry that points to `stored_bytes` of a value file.
    pub(super) fn note_pointer(&mut self, file: ValueFileId, uid: u64, stored_bytes: u64) {
        let at = self.values.partition_point(|part| part.file < file);
        if self.values.get(at).is_none_or(|part| part.file != file) {
            let part = ValuesPart {
                file,
                uid,
                entries: 0,
                stored_bytes: 0,
            };
            self.values.insert(at, part);
        }
        self.values[at].entries += 1;
        self.values[at].stored_bytes += stored_bytes;
    }

    /// Widens the key range and seqno range to cover `ranges`.
    pub(super) fn take_in(&mut self, ranges: &RangeDeletes) {
        if let Some((start, end)) = ranges.key_range() {
            if start < &self.first_key[..] {
                self.first_key = start.to_vec();
            }
            if end > &self.last_key[..] {
                self.last_key = end.to_vec();
            }
        }
        if let Some((oldest, newest)) = ranges.seqno_range() {
            self.min_seqno = self.min_seqno.min(oldest);
            self.max_seqno = self.max_seqno.max(newest);
        }
    }

    /// Appends the raw bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let parts = self.keyspaces.iter();
        let parts = parts.flat_map(|p| [p.keyspace.0, p.first_block, p.blocks].map(u64::from));
        put_numbers(out, TAG_KEYSPACES, parts);
        let counts = [
            self.entries,
            self.tombstones,
            self.inserts,
            self.raw_key_bytes,
            self.raw_value_bytes,
        ];
        put_numbers(out, TAG_COUNTS, counts.into_iter());
        put_numbers(
            out,
            TAG_SEQNOS,
            [self.min_seqno, self.max_seqno].into_iter(),
        );
        put_field(out, TAG_FIRST_KEY, &self.first_key);
        put_field(out, TAG_LAST_KEY, &self.last_key);
        if let Some(expiring) = &self.expiring {
            let numbers = [expiring.entries, expiring.first_ms, expiring.last_ms];
            put_numbers(out, TAG_EXPIRING, numbers.into_iter());
        }
        if !self.values.is_empty() {
            let numbers = |v: &ValuesPart| [v.file.0, v.uid, v.entries, v.stored_bytes];
            put_numbers(out, TAG_VALUES, self.values.iter().flat_map(numbers));
        }
        if self.older_versions > 0 {
            put_numbers(out, TAG_OLDER_VERSIONS, [self.older_versions].into_iter());
        }
        for (name, value) in &self.user {
            let mut field = Vec::with_capacity(name.len() + value.len() + 5);
            put_bytes(&mut field, name);
            field.extend_from_slice(value);
            put_field(out, TAG_USER, &field);
        }
    }

    /// Reads the raw bytes.
    pub(super) fn decode(raw: &[u8]) -> Result<Properties, Malformed> {
        let mut properties = Properties::default();
        let mut d = Decoder::new(raw);
        while !d.is_empty() {
            let field = d.varint().zip(d.bytes());
            let tag = field.map(|(tag, _)| tag);
            let read = field.and_then(|(tag, bytes)| properties.read_field(tag, bytes));
            if read.is_none() {
                let found = tag.map_or("a cut one".to_owned(), |tag| format!("tag {tag}"));
                return Err(Malformed::new("property", "a field of its tag", found));
            }
        }
        if properties.entries == 0 || properties.keyspaces.is_empty() {
            return Err(Malformed::new("properties", "keyspaces and counts", "none"));
        }
        Ok(properties)
    }

    fn read_field(&mut self, tag: u64, bytes: &[u8]) -> Option<()> {
        let mut d = Decoder::new(bytes);
        match tag {
            TAG_KEYSPACES => {
                while !d.is_empty() {
                    self.keyspaces.push(KeyspacePart {
                        keyspace: KeyspaceId(d.varint32()?),
                        first_block: d.varint32()?,
                        blocks: d.varint32()?,
                    });
                }
            }
            TAG_COUNTS => {
                self.entries = d.varint()?;
                self.tombstones = d.varint()?;
                self.inserts = d.varint()?;
                self.raw_key_bytes = d.varint()?;
                self.raw_value_bytes = d.varint()?;
            }
            TAG_SEQNOS => {
                self.min_seqno = d.varint()?;
                self.max_seqno = d.varint()?;
            }
            TAG_FIRST_KEY => self.first_key = bytes.to_vec(),
            TAG_LAST_KEY => self.last_key = bytes.to_vec(),
            TAG_USER => {
                let name = d.bytes()?.to_vec();
                self.user.push((name, d.rest().to_vec()));
            }
            TAG_VALUES => {
                while !d.is_empty() {
                    self.values.push(ValuesPart {
                        file: ValueFileId(d.varint()?),
                        uid: d.varint()?,
                        entries: d.varint()?,
                        stored_bytes: d.varint()?,
                    });
                }
            }
            TAG_OLDER_VERSIONS => self.older_versions = d.varint()?,
            TAG_EXPIRING => {
                self.expiring = Some(Expiring {
                    entries: d.varint()?,
                    first_ms: d.varint()?,
                    last_ms: d.varint()?,
                });
            }
            _ => {}
        }
        Some(())
    }
}

fn put_numbers(out: &mut Vec<u8>, tag: u64, numbers: impl Iterator<Item = u64>) {
    let mut field = Vec::new();
    numbers.for_each(|n| put_varint(&mut field, n));
    put_field(out, tag, &field);
}

fn put_field(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    put_varint(out, tag);
    put_bytes(out, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    fn sample() -> Properties {
        Properties {
            keyspaces: vec![KeyspacePart {
                keyspace: KeyspaceId(7),
                first_block: 0,
                blocks: 12,
            }],
            entries: 1000,
            tombstones: 3,
            inserts: 5,
            older_versions: 300,
            raw_key_bytes: 8000,
            raw_value_bytes: 1 << 40,
            min_seqno: 0,
            max_seqno: 99,
            first_key: b"a".to_vec(),
            last_key: Vec::new(),
            expiring: Some(Expiring {
                entries: 7,
                first_ms: 1_700_000_000_000,
                last_ms: 1_700_000_500_000,
            }),
            values: vec![ValuesPart {
                file: ValueFileId(17),
                uid: u64::MAX,
                entries: 3,
                stored_bytes: 1 << 33,
            }],
            user: vec![(b"collector".to_vec(), vec![0, 1, 2])],
        }
    }

    #[test]
    fn properties_round_trip_and_unknown_tags_are_skipped() {
        let mut raw = Vec::new();
        put_field(&mut raw, 1_000_000, b"from a later version");
        sample().encode(&mut raw);
        let read = Properties::decode(&raw).expect("fresh properties are readable");
        assert_eq!(read, sample());
    }

    #[test]
    fn expired_entries_are_estimated_between_the_first_and_the_last_time() {
        let expiring = Expiring {
            entries: 100,
            first_ms: 1_000,
            last_ms: 2_000,
        };
        for (now, expected) in [(0, 0), (1_000, 0), (1_250, 25), (2_000, 100), (9_000, 100)] {
            assert_eq!(expiring.expired(now), expected, "at {now}");
        }
    }

    #[test]
    fn cut_properties_are_refused() {
        let mut raw = Vec::new();
        sample().encode(&mut raw);
        for n in 0..raw.len() {
            if let Ok(read) = Properties::decode(&raw[..n]) {
                // The section's checksum detects a cut between two fields.
                assert_ne!(read, sample());
            }
        }
    }

    #[test]
    fn fuzz_properties_are_refused_or_round_trip() {
        let mut raw = Vec::new();
        sample().encode(&mut raw);
        fuzz_decoder("properties of tables", &[raw], 64, |raw| {
            let Ok(read) = Properties::decode(raw) else {
                return;
            };
            let mut again = Vec::new();
            read.encode(&mut again);
            assert_eq!(Properties::decode(&again).ok(), Some(read));
        });
    }
}
