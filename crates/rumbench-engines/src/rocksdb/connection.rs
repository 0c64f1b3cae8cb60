//! Connection of one client to RocksDB: reads, scans and writes outside transactions.

use std::sync::Arc;

use rocksdb::{DBRawIteratorWithThreadMode, ReadOptions, SstFileWriter};
use rumbench_core::engine::Result;
use rumbench_core::kv::{BulkRow, Direction, KvConnection, MapId, Scan};

use super::database::Database;
use super::maps::{RocksMaps, conflict_or};
use super::transaction::CallOptions;
use crate::error::failed;

/// Connection of one client.
pub struct RocksConnection<D> {
    pub(super) shared: Arc<RocksMaps<D>>,
    pub(super) options: CallOptions,
}

impl<D: Database> KvConnection for RocksConnection<D> {
    type Txn<'a> = D::Txn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let family = &self.shared.map(map)?.family;
        let value = self
            .shared
            .db
            .get_pinned_cf_opt(family, key, &self.options.read)
            .map_err(failed("rocksdb: get"))?;
        Ok(read(value.as_deref()))
    }

    fn scan(
        &mut self,
        map: MapId,
        scan: Scan<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        if scan.start >= scan.end || scan.limit == 0 {
            return Ok(());
        }
        let info = self.shared.map(map)?;
        let mut options = ReadOptions::default();
        let one_prefix = info
            .filtered_prefix
            .is_some_and(|bytes| within_one_prefix(scan.start, scan.end, bytes));
        match scan.direction {
            // RocksDB probes the filter with the prefix of the seek key, and that is the range's
            // prefix only if the seek begins at the range's start.
            Direction::Forward if one_prefix => options.set_prefix_same_as_start(true),
            _ => options.set_total_order_seek(true),
        }
        match scan.direction {
            Direction::Forward => options.set_iterate_upper_bound(scan.end),
            Direction::Reverse => options.set_iterate_lower_bound(scan.start),
        }
        let rows = self.shared.db.rows(&info.family, options);
        visit_rows(rows, scan, &mut visit)
    }

    fn multi_get(
        &mut self,
        map: MapId,
        keys: &[&[u8]],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let family = &self.shared.map(map)?.family;
        self.shared
            .db
            .read_several(family, keys, &self.options.read, read)
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let family = &self.shared.map(map)?.family;
        self.shared
            .db
            .put_row(family, (key, value), &self.options.write)
            .map_err(conflict_or("rocksdb: put"))
    }

    fn begin(&mut self) -> Result<D::Txn<'_>> {
        D::begin(&self.shared, &self.options)
    }

    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()> {
        let writes = rows.iter().map(|row| {
            let family = &self.shared.map(row.map)?.family;
            Ok((family, row.key, Some(row.value)))
        });
        self.shared.db.write_all(writes, &self.options.write)
    }

    fn ingest<'a>(
        &mut self,
        map: MapId,
        rows: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<bool> {
        let info = self.shared.map(map)?;
        let Some(options) = &info.file_options else {
            return Ok(false);
        };
        let mut rows = rows.peekable();
        // RocksDB refuses a table without rows.
        if rows.peek().is_none() {
            return Ok(true);
        }
        // Other connections may ingest into other maps at the same time.
        let path = self.shared.dir.join(format!("ingested-{}", map.0));
        let mut file = SstFileWriter::create(options);
        file.open(&path).map_err(failed("rocksdb: open a table"))?;
        for (key, value) in rows {
            let put = file.put(key, value);
            put.map_err(failed("rocksdb: write a table"))?;
        }
        file.finish().map_err(failed("rocksdb: finish a table"))?;
        self.shared.db.ingest_file(&info.family, &path)?;
        Ok(true)
    }

    fn bulk_delete(&mut self, keys: &[(MapId, &[u8])]) -> Result<()> {
        let writes = keys.iter().map(|(map, key)| {
            let family = &self.shared.map(*map)?.family;
            Ok((family, *key, None))
        });
        self.shared.db.write_all(writes, &self.options.write)
    }
}

fn visit_rows<D: Database>(
    mut rows: DBRawIteratorWithThreadMode<'_, D>,
    scan: Scan<'_>,
    visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    match scan.direction {
        Direction::Forward => rows.seek(scan.start),
        Direction::Reverse => {
            rows.seek_for_prev(scan.end);
            // The end is exclusive, and the seek may have found it.
            if rows.key() == Some(scan.end) {
                rows.prev();
            }
        }
    }
    for _ in 0..scan.limit {
        let Some((key, value)) = rows.item() else {
            break;
        };
        if !visit(key, value) {
            return Ok(());
        }
        match scan.direction {
            Direction::Forward => rows.next(),
            Direction::Reverse => rows.prev(),
        }
    }
    rows.status().map_err(failed("rocksdb: scan"))
}

/// Returns `true` if every key of `start..end` begins with the first `bytes` bytes of `start`. A
/// scan of one prefix, from the prefix up to its successor, is such a range.
fn within_one_prefix(start: &[u8], end: &[u8], bytes: usize) -> bool {
    let Some(prefix) = start.get(..bytes) else {
        return false;
    };
    // The shortest successor of the prefix increments its last byte below 0xFF and ends there.
    let Some(last) = prefix.iter().rposition(|byte| *byte != 0xFF) else {
        return true;
    };
    let stem = &prefix[..last];
    let successor_byte = prefix[last] + 1;
    match end.get(..last) {
        None => end <= stem,
        Some(end_stem) if end_stem != stem => end_stem < stem,
        Some(_) => match end.get(last) {
            None => true,
            Some(byte) if *byte == successor_byte => end.len() == last + 1,
            Some(byte) => *byte < successor_byte,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_up_to_the_successor_of_a_prefix_lies_within_it() {
        assert!(within_one_prefix(b"ab", b"ac", 2));
        assert!(within_one_prefix(b"abx", b"aby", 2));
        assert!(within_one_prefix(b"ab\x00", b"ab\xFF\xFF", 2));
        assert!(within_one_prefix(b"a\xFFz", b"b", 2));
        assert!(within_one_prefix(b"\xFF\xFF1", b"\xFF\xFF\xFF\xFF", 2));
    }

    #[test]
    fn a_range_that_leaves_its_prefix_does_not() {
        assert!(!within_one_prefix(b"ab", b"ac\x00", 2));
        assert!(!within_one_prefix(b"ab", b"b", 2));
        assert!(!within_one_prefix(b"a", b"b", 2), "shorter than the prefix");
        assert!(!within_one_prefix(b"a\xFFz", b"b\x00", 2));
        assert!(!within_one_prefix(b"\x00\x00", b"\xFF", 2));
    }
}
