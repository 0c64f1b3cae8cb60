//! Verification of a whole table: every checksum, the order, and that fences, filters and
//! properties agree with the rows.

use crate::base::{SEQNO_MAX, SeqNo};
use crate::table::block::{ReusedBlock, Row};
use crate::table::malformed::Malformed;
use crate::table::properties::Properties;
use crate::table::read_ahead::ReadAhead;
use crate::table::reader::{Table, read_dictionary};
use crate::{Error, Result};
use std::cmp::Ordering;

impl Table {
    /// Checks everything in the file. Cost: one pass over it; the cache does not change.
    ///
    /// Errors: `Corruption` for the first defect; `Io`.
    pub fn verify(&self) -> Result<()> {
        let mut first = Ok(());
        self.verify_all(&mut |_| {}, &mut |error| {
            if first.is_ok() {
                first = Err(error);
            }
        });
        first
    }

    /// Works like [`Table::verify`], but continues after a bad block and reports each error.
    /// Between two blocks it calls `read` with the length of the block just read; `read` may block.
    pub fn verify_all(&self, read: &mut dyn FnMut(u64), report: &mut dyn FnMut(Error)) {
        let (mut seen, mut ahead) = (Seen::default(), ReadAhead::default());
        let mut block = ReusedBlock::default();
        let mut whole = true;
        for index in 0..self.blocks() {
            let range = self.fences.block_range(index);
            ahead.note(&*self.file, range.clone(), 0..self.fences.blocks_end());
            if let Err(error) = self.verify_block(index, &mut block, &mut seen, report) {
                whole = false;
                report(error);
            }
            read(range.end - range.start);
        }
        if let Err(error) = self.verify_dictionary_copy() {
            report(error);
        }
        // The rows of the readable blocks do not determine the sums.
        if whole && let Err(error) = self.verify_sums(seen) {
            report(error);
        }
    }

    fn verify_block(
        &self,
        index: usize,
        block: &mut ReusedBlock,
        seen: &mut Seen,
        report: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let offset = self.fences.block_range(index).start;
        let block = block.replace(|space| self.read_block(index, space))?;
        for slot in 0..block.len() {
            let row = block.row(slot);
            let checked = seen.add(&row).and_then(|key| self.check_found(index, key));
            checked.map_err(|malformed| malformed.at(self.file.path(), offset))?;
            if row.kind.is_pointer()
                && let Err(error) = self.value(row.value)
            {
                // The error is in another file: the rows of this one may be right.
                report(error);
            }
        }
        Ok(())
    }

    /// Checks the copy of the dictionary, which only a repair uses.
    fn verify_dictionary_copy(&self) -> Result<()> {
        let (file, copy) = (&*self.file, self.footer.dictionary_copy);
        match copy.length {
            0 => Ok(()),
            _ => read_dictionary(file, self.footer.uid, copy).map(drop),
        }
    }

    fn verify_sums(&self, seen: Seen) -> Result<()> {
        let path = self.file.path();
        let mut found = seen.into_properties(self.properties());
        self.ranges.iter().for_each(|ranges| found.take_in(ranges));
        if found != *self.properties() {
            let found = format!("{} entries, or another sum", found.entries);
            let expected = format!("{} entries", self.properties().entries);
            let malformed = Malformed::new("sums of all rows", expected, found);
            return Err(malformed.at(path, self.fences.blocks_end()));
        }
        Ok(())
    }

    /// Checks that fences and filters lead to `key`, a key in block `index`.
    fn check_found(&self, index: usize, key: &[u8]) -> Result<(), Malformed> {
        let block = self.fences.find(key);
        let spans = (block..index).all(|before| self.fences.separator_is(before, key));
        if block > index || !spans {
            return Err(Malformed::new("block by the fences", index, block));
        }
        if !self.filters.admit(key) {
            let found = key.escape_ascii();
            return Err(Malformed::new("filter", "to admit every key", found));
        }
        Ok(())
    }
}

/// Sums over the rows so far.
struct Seen {
    sums: Properties,
    last: Option<(Vec<u8>, SeqNo)>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            sums: Properties {
                min_seqno: SEQNO_MAX,
                ..Properties::default()
            },
            last: None,
        }
    }
}

impl Seen {
    /// Adds a row and returns its key.
    fn add(&mut self, row: &Row<'_>) -> Result<&[u8], Malformed> {
        let key = [row.prefix, row.suffix].concat();
        if let Some((last, last_seqno)) = &self.last {
            self.sums.older_versions += u64::from(*last == key);
            let order = last.cmp(&key).then(row.seqno.cmp(last_seqno));
            if order != Ordering::Less {
                let expected = format!("after {} at {last_seqno}", last.escape_ascii());
                let found = format!("{} at {}", key.escape_ascii(), row.seqno);
                return Err(Malformed::new("order of rows", expected, found));
            }
        } else {
            self.sums.first_key = key.clone();
        }
        self.sums.entries += 1;
        self.sums.tombstones += u64::from(row.kind.is_tombstone());
        self.sums.inserts += u64::from(row.kind.is_insert());
        self.sums.raw_key_bytes += key.len() as u64;
        self.sums.raw_value_bytes += row.value.len() as u64;
        self.sums.min_seqno = self.sums.min_seqno.min(row.seqno);
        self.sums.max_seqno = self.sums.max_seqno.max(row.seqno);
        let (key, _) = self.last.insert((key, row.seqno));
        Ok(key)
    }

    /// Returns the sums, with the fields of `stored` that rows do not determine.
    fn into_properties(self, stored: &Properties) -> Properties {
        Properties {
            last_key: self.last.map_or_else(Vec::new, |(key, _)| key),
            keyspaces: stored.keyspaces.clone(),
            user: stored.user.clone(),
            expiring: stored.expiring,
            values: stored.values.clone(),
            // Older builds did not count older versions.
            older_versions: match stored.older_versions {
                0 => 0,
                _ => self.sums.older_versions,
            },
            ..self.sums
        }
    }
}
