//! Statements that read: rows by id, ranges of ids, index entries with or without their rows, whole
//! tables.
//!
//! The client sums, sorts and counts the rows of a range as a SQL server would, in the same way for
//! all engines. It checks every column of every row. It judges missing rows only by the state
//! before the read, because other clients may delete and insert during the read.

use std::hint::black_box;

use super::columns::C;
use super::events::{Statement, What};
use super::queries;
use super::rows::C_BYTES;
use super::state::{Shared, wrong};
use crate::error::Result;
use crate::retry::retried_with;
use crate::tables::{Fold, Path, Range, RowBatch, TableConnection, TableId, Value};

/// The index of k.
const BY_K: Path = Path::Index(0);
/// Length for the filter of a scan: no c is longer, so no row passes.
const LONGER_THAN_ANY: usize = C_BYTES;

/// State and buffers of reads, reused from call to call.
pub(super) struct Reads {
    /// True if answers are checked.
    judges: bool,
    /// True if clients write meanwhile.
    writes: bool,
    keys: RowBatch,
    /// True for each key with a row that existed before the read.
    there: Vec<bool>,
    /// k and id of each index entry.
    entries: Vec<(u64, u64)>,
    texts: Vec<[u8; C_BYTES]>,
}

impl Reads {
    pub(super) fn new(judges: bool, writes: bool) -> Reads {
        Reads {
            judges,
            writes,
            keys: RowBatch::new(1),
            there: Vec::new(),
            entries: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Performs one statement and returns the rows read and the number of retries.
    pub(super) fn perform(
        &mut self,
        shared: &Shared,
        connection: &mut dyn TableConnection,
        statement: &Statement,
        numbers: &[u64],
    ) -> Result<(u64, u64)> {
        let table = statement.table;
        if let Some(queries) = connection.queries() {
            let judges = self.judges;
            return retried_with(shared.backoff, || {
                queries::perform(shared, queries, judges, statement, numbers)
            });
        }
        match (statement.what, numbers) {
            (What::Points, ids) => self.points(shared, connection, table, ids),
            (What::PointsByK { rows }, values) => {
                self.entries.clear();
                let mut retries = 0;
                for k in values {
                    retries += self.entries_of(shared, connection, table, *k, k + 1)?;
                }
                self.rows_of_entries(shared, connection, table, rows, retries)
            }
            (What::RangeByK { rows }, &[from, to]) => {
                self.entries.clear();
                let retries = self.entries_of(shared, connection, table, from, to)?;
                self.rows_of_entries(shared, connection, table, rows, retries)
            }
            (What::Range(fold), &[from, to]) => {
                self.range(shared, connection, table, (from, to), fold)
            }
            _ => scan(shared, connection, table, self.judges),
        }
    }

    fn set_keys(&mut self, ids: impl Iterator<Item = u64>) {
        self.keys.clear();
        ids.for_each(|id| self.keys.push(Value::Unsigned(id)));
    }

    fn points(
        &mut self,
        shared: &Shared,
        connection: &mut dyn TableConnection,
        table: usize,
        ids: &[u64],
    ) -> Result<(u64, u64)> {
        let state = &shared.tables[table];
        self.set_keys(ids.iter().copied());
        self.there.clear();
        self.there.extend(ids.iter().map(|id| state.has(*id)));
        let (there, keys) = (&self.there, &self.keys);
        let (mut rows, mut bad) = (0, None);
        let ((), retries) = retried_with(shared.backoff, || {
            (rows, bad) = (0, None);
            connection.get(TableId(table), keys, &mut |place, row| {
                rows += u64::from(row.is_some());
                let good = match row.map(|row| shared.rows.look_at(table, row)) {
                    None => !there[place],
                    Some(None) => false,
                    Some(Some(found)) => found.id == ids[place] && state.could_be(found),
                };
                if !good {
                    bad = Some((ids[place], row.is_some()));
                }
            })
        })?;
        self.judge(shared, table, bad)?;
        Ok((rows, retries))
    }

    /// Reports a missing row, or a row with values that do not belong to its id.
    fn judge(&self, shared: &Shared, table: usize, bad: Option<(u64, bool)>) -> Result<()> {
        let name = shared.name(table);
        match bad.filter(|_| self.judges) {
            Some((id, true)) => Err(wrong(format!(
                "row {id} of {name} has values that were never written for it"
            ))),
            Some((id, false)) if shared.is_exact() => {
                Err(wrong(format!("row {id} of {name} is missing")))
            }
            _ => Ok(()),
        }
    }

    fn range(
        &mut self,
        shared: &Shared,
        connection: &mut dyn TableConnection,
        table: usize,
        (from, to): (u64, u64),
        fold: Fold,
    ) -> Result<(u64, u64)> {
        let state = &shared.tables[table];
        let least = if self.judges {
            state.count(from, to)
        } else {
            0
        };
        let (start, end) = ([Value::Unsigned(from)], [Value::Unsigned(to)]);
        let range = Range {
            from: &start,
            to: &end,
            limit: (to - from) as usize,
            ..Range::ALL
        };
        let (writes, texts) = (self.writes, &mut self.texts);
        let (mut rows, mut sum, mut bad, mut next) = (0, 0, None, from);
        let ((), retries) = retried_with(shared.backoff, || {
            (rows, sum, bad, next) = (0, 0, None, from);
            texts.clear();
            connection.scan(TableId(table), Path::Primary, range, &mut |row| {
                rows += 1;
                let found = shared.rows.look_at(table, row);
                let good = found.is_some_and(|found| {
                    let in_order = (next..to).contains(&found.id);
                    next = found.id + 1;
                    in_order && state.could_be(found) && (writes || state.has(found.id))
                });
                if !good && bad.is_none() {
                    bad = Some((row.first().and_then(|id| id.unsigned()).unwrap_or(0), true));
                }
                match fold {
                    Fold::Sum => sum += found.map_or(0, |found| found.k),
                    Fold::Order | Fold::Distinct => texts.extend(text(row)),
                    Fold::Rows | Fold::Count => {}
                }
                true
            })
        })?;
        if matches!(fold, Fold::Order | Fold::Distinct) {
            texts.sort_unstable();
        }
        if fold == Fold::Distinct {
            texts.dedup();
        }
        black_box((sum, texts.len()));
        self.judge(shared, table, bad)?;
        if self.judges && rows < least && shared.is_exact() {
            let name = shared.name(table);
            return Err(wrong(format!(
                "{rows} rows of {name} from {from} to below {to}, where {least} are"
            )));
        }
        Ok((rows, retries))
    }

    /// Appends the entries of a range of k. Returns the number of retries.
    fn entries_of(
        &mut self,
        shared: &Shared,
        connection: &mut dyn TableConnection,
        table: usize,
        from: u64,
        to: u64,
    ) -> Result<u64> {
        let (start, end) = ([Value::Unsigned(from)], [Value::Unsigned(to)]);
        let range = Range {
            from: &start,
            to: &end,
            ..Range::ALL
        };
        let before = self.entries.len();
        let entries = &mut self.entries;
        let ((), retries) = retried_with(shared.backoff, || {
            entries.truncate(before);
            connection.scan(TableId(table), BY_K, range, &mut |entry| {
                let number = |place: usize| entry.get(place).and_then(|value| value.unsigned());
                entries.push((number(0).unwrap_or(0), number(1).unwrap_or(0)));
                true
            })
        })?;
        let found = &self.entries[before..];
        let known = |entry: &(u64, u64)| {
            (from..to).contains(&entry.0) && (self.writes || shared.tables[table].has(entry.1))
        };
        // Sorted and without duplicates.
        let in_order = found.windows(2).all(|pair| pair[0] < pair[1]);
        if self.judges && !(in_order && found.iter().all(known)) {
            let name = shared.name(table);
            return Err(wrong(format!(
                "the entries of {name} with k from {from} to below {to} are out of order or of no row"
            )));
        }
        Ok(retries)
    }

    /// Reads the rows of the entries if `reads` is true. Each row must have the k of its entry.
    fn rows_of_entries(
        &mut self,
        shared: &Shared,
        connection: &mut dyn TableConnection,
        table: usize,
        reads: bool,
        before: u64,
    ) -> Result<(u64, u64)> {
        if !reads {
            return Ok((self.entries.len() as u64, before));
        }
        let entries = std::mem::take(&mut self.entries);
        self.set_keys(entries.iter().map(|(_, id)| *id));
        let (mut rows, mut bad) = (0, None);
        let ((), retries) = retried_with(shared.backoff, || {
            (rows, bad) = (0, None);
            connection.get(TableId(table), &self.keys, &mut |place, row| {
                rows += u64::from(row.is_some());
                let found = row.and_then(|row| shared.rows.look_at(table, row));
                let good = found.is_some_and(|found| (found.k, found.id) == entries[place]);
                // An entry and its row are two reads: a writer may change the row in between.
                if !good && !self.writes {
                    bad = Some((entries[place].1, row.is_some()));
                }
            })
        })?;
        self.entries = entries;
        self.judge(shared, table, bad)?;
        Ok((rows, before + retries))
    }
}

/// Returns the c of a row.
fn text(row: &[Value<'_>]) -> Option<[u8; C_BYTES]> {
    match row.get(C) {
        Some(Value::Bytes(text)) => (*text).try_into().ok(),
        _ => None,
    }
}

/// Reads a whole table with a filter that no row passes. No client writes meanwhile.
fn scan(
    shared: &Shared,
    connection: &mut dyn TableConnection,
    table: usize,
    judges: bool,
) -> Result<(u64, u64)> {
    let expected = shared.tables[table].count_all();
    let range = Range {
        // The limit admits one extra row, so that the check can see it.
        limit: expected as usize + usize::from(judges),
        ..Range::ALL
    };
    let (mut rows, mut good, mut last) = (0, true, 0);
    let ((), retries) = retried_with(shared.backoff, || {
        (rows, good, last) = (0, true, 0);
        connection.scan(TableId(table), Path::Primary, range, &mut |row| {
            rows += 1;
            let found = shared.rows.look_at(table, row);
            let passes = matches!(row.get(C), Some(Value::Bytes(c)) if c.len() > LONGER_THAN_ANY);
            good &= !passes && found.is_some_and(|found| found.id > last);
            last = found.map_or(last, |found| found.id);
            true
        })
    })?;
    if judges && (!good || (rows != expected && shared.is_exact())) {
        let name = shared.name(table);
        return Err(wrong(format!(
            "a scan of {name} found {rows} rows, all good: {good}; there are {expected}"
        )));
    }
    Ok((rows, retries))
}
