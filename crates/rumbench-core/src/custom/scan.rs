//! Check of a scan: its rows are in order, have their own values, and are complete.
//!
//! The caller restarts the check before each scan, passes each row to [`Walk::step`] and counts it
//! in `seen`. It stops at the first error, which is in `bad`.

use super::checks::{Shared, wrong};
use super::definition::KeyOrder;
use super::population::State;
use crate::error::{EngineError, Result};
use crate::tables::schema::COLUMNS_MAX;
use crate::tables::{Path, TableId, Value};

/// Number of rows that are checked for omissions after the last row of a scan that ended before its
/// limit.
const CHECKED_AFTER_END: u64 = 1000;

/// State of a scan in progress.
pub(super) struct Walk {
    from: Value<'static>,
    /// Rows so far, counted by the caller.
    pub(super) seen: usize,
    /// Visited rows in key order.
    visited: Vec<u64>,
    last_row: Option<u64>,
    /// Ordered columns of the previous entry, and their number.
    last: ([u64; COLUMNS_MAX], usize),
    pub(super) bad: Option<EngineError>,
}

impl Walk {
    pub(super) fn new(from: Value<'static>) -> Walk {
        Walk {
            from,
            seen: 0,
            visited: Vec::new(),
            last_row: None,
            last: ([0; COLUMNS_MAX], 0),
            bad: None,
        }
    }

    pub(super) fn restart(&mut self) {
        self.seen = 0;
        self.visited.clear();
        self.last_row = None;
        self.last = order_of(&[self.from]);
        self.bad = None;
    }

    /// Checks one row or entry: it follows the previous one, and each of its values was written for
    /// its row. Sets `bad` otherwise.
    pub(super) fn step(&mut self, shared: &Shared, table: usize, path: Path, values: &[Value<'_>]) {
        let of = shared.schema.table(TableId(table));
        let (key, order) = match path {
            Path::Primary => (values.first(), order_of(values.get(..1).unwrap_or(&[]))),
            Path::Index(_) => (values.last(), order_of(values)),
        };
        let (this, last) = (&order.0[..order.1], &self.last.0[..self.last.1]);
        // The first key may equal the start, which for an index is only a prefix of the key.
        let in_order = if self.seen == 0 {
            this >= last
        } else {
            this > last
        };
        let row = shared.row_of(table, key.map_or(&[], std::slice::from_ref));
        if !in_order || row >= shared.populations[table].bounds().1 {
            let name = shared.name(table);
            let message =
                format!("a scan of {name} met the key {key:?}, which is out of order or of no row");
            self.bad = Some(wrong(message));
            return;
        }
        let checked = match path {
            Path::Primary => shared.check_row((table, row), |_| 0, values),
            Path::Index(_) => {
                let mut own = of
                    .path_columns(path)
                    .zip(values)
                    .filter(|(place, _)| *place > 0);
                own.try_for_each(|(place, value)| {
                    shared.check_value((table, row), place - 1, 0, *value)
                })
            }
        };
        self.bad = checked.err();
        self.last = order;
        self.last_row = Some(row);
        self.visited.push(row);
    }

    /// Checks, if keys follow the order of insertion, that the scan omitted no row from `first`
    /// that must be there. Only loaded rows are checked, because other rows may have been inserted
    /// during the scan.
    pub(super) fn check_complete(
        &self,
        shared: &Shared,
        table: usize,
        first: u64,
        limit: usize,
    ) -> Result<()> {
        let of = &shared.definition.tables[table];
        if of.order != KeyOrder::Ordered {
            return Ok(());
        }
        let end = match (self.seen < limit, self.last_row) {
            (false, Some(last)) => last,
            (_, last) => last.map_or(first, |last| last + 1) + CHECKED_AFTER_END,
        };
        let population = &shared.populations[table];
        let mut visited = self.visited.iter().peekable();
        let mut left_out = (first..end.min(of.rows)).filter(|row| {
            let was_visited = visited.next_if(|seen| *seen == row).is_some();
            !was_visited && population.state(*row) == State::Present
        });
        let left_out = left_out.next();
        left_out.map_or(Ok(()), |row| Err(shared.missing(table, row)))
    }
}

/// Maps signed and unsigned numbers to integers of the same order; unsigned ones are below 2^63.
#[inline]
fn order_of(values: &[Value<'_>]) -> ([u64; COLUMNS_MAX], usize) {
    const SIGN: u64 = 1 << 63;
    let mut order = [0; COLUMNS_MAX];
    let mut length = 0;
    for (place, value) in order.iter_mut().zip(values) {
        *place = match value {
            Value::Unsigned(number) => number | SIGN,
            Value::Signed(number) => *number as u64 ^ SIGN,
            Value::Bytes(_) => u64::MAX,
        };
        length += 1;
    }
    (order, length)
}
