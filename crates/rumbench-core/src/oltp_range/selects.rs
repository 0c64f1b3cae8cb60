//! Reads of a SQL server that are whole events: a list or a range in one statement, with the
//! columns of the reference. Embedded engines read whole rows, or entries and then their rows
//! (`reads`).
//!
//! Answers without ids have weaker checks: a c must have been written for one of the requested ids,
//! a k must be one of the requested values.

use super::columns::{C, ID, K};
use super::events::{Statement, What};
use super::rows::C_BYTES;
use super::state::{Shared, wrong};
use crate::error::Result;
use crate::tables::{Fold, TableId, TableQueries, Value, Where};

/// Performs a statement that names its columns and returns the rows read. A scan returns no rows;
/// its result is the number of rows that the server examined. `judges`: answers are checked.
pub(super) fn perform(
    shared: &Shared,
    queries: &mut dyn TableQueries,
    judges: bool,
    statement: &Statement,
    numbers: &[u64],
) -> Result<u64> {
    let table = statement.table;
    let (by, rows) = match (statement.what, numbers) {
        (What::Points, ids) => (ID, Where::In(ids)),
        (What::PointsByK { .. }, values) => (K, Where::In(values)),
        (What::Range(Fold::Rows), &[from, to]) => (ID, Where::Between(from, to - 1)),
        (What::RangeByK { .. }, &[from, to]) => (K, Where::Between(from, to - 1)),
        (What::Scan, _) => (C, Where::Longer(C_BYTES)),
        (what, _) => return Err(wrong(format!("{what:?} is no read of columns"))),
    };
    let mut answer = Answer::to(shared, table, by, rows);
    // Rows that exist before the read must be in the answer.
    let least = answer.least();
    queries.select(TableId(table), statement.columns, by, rows, &mut |row| {
        let good = answer.is_right(statement.columns, row);
        answer.rows += 1;
        answer.good &= good;
    })?;
    let right = answer.good && (least..=answer.most()).contains(&answer.rows);
    if judges && !right && (shared.is_exact() || !answer.good) {
        let name = shared.name(table);
        return Err(wrong(format!(
            "{:?} of {name} answered {} rows, {least} to {} can be, their values right: {}",
            statement.what,
            answer.rows,
            answer.most(),
            answer.good
        )));
    }
    Ok(match rows {
        Where::Longer(_) => shared.tables[table].count_all(),
        _ => answer.rows,
    })
}

/// Requested values and the received rows.
struct Answer<'a> {
    shared: &'a Shared,
    table: usize,
    /// Column of the condition.
    by: usize,
    rows_where: Where<'a>,
    /// Values of a list, sorted and without duplicates; `came` is true for each value with a
    /// received row.
    listed: Vec<u64>,
    came: Vec<bool>,
    rows: u64,
    good: bool,
    /// Place of the value at which the search for the next c starts.
    next: u64,
}

impl<'a> Answer<'a> {
    fn to(shared: &'a Shared, table: usize, by: usize, rows_where: Where<'a>) -> Answer<'a> {
        let mut listed = match rows_where {
            Where::In(values) => values.to_vec(),
            Where::Between(..) | Where::Longer(_) => Vec::new(),
        };
        listed.sort_unstable();
        listed.dedup();
        Answer {
            shared,
            table,
            by,
            rows_where,
            came: vec![false; listed.len()],
            listed,
            rows: 0,
            good: true,
            next: 0,
        }
    }

    fn asked(&self) -> u64 {
        match self.rows_where {
            Where::In(_) => self.listed.len() as u64,
            Where::Between(from, to) => to - from + 1,
            Where::Longer(_) => 0,
        }
    }

    /// Returns the value at this place.
    fn value(&self, place: u64) -> u64 {
        match self.rows_where {
            Where::Between(from, _) => from + place,
            _ => self.listed[place as usize],
        }
    }

    /// Returns true if a row with this value was requested. Only one row may have a given id.
    fn was_asked(&mut self, value: u64) -> bool {
        match self.rows_where {
            Where::In(_) => {
                let place = self.listed.binary_search(&value);
                let first = place.map(|place| !std::mem::replace(&mut self.came[place], true));
                first.is_ok_and(|first| first || self.by != ID)
            }
            Where::Between(from, to) => (from..=to).contains(&value),
            Where::Longer(_) => false,
        }
    }

    /// Returns the least number of rows of a right answer. The number of rows with a given k is
    /// unknown.
    fn least(&self) -> u64 {
        let state = &self.shared.tables[self.table];
        match (self.by, self.rows_where) {
            (ID, Where::Between(from, to)) => state.count(from, to + 1),
            (ID, Where::In(_)) => self.listed.iter().filter(|id| state.has(**id)).count() as u64,
            _ => 0,
        }
    }

    fn most(&self) -> u64 {
        match self.by {
            K => u64::MAX,
            _ => self.asked(),
        }
    }

    /// Returns true if these values can belong to a requested row.
    fn is_right(&mut self, columns: &[usize], row: &[Value<'_>]) -> bool {
        let mut id = None;
        columns
            .iter()
            .zip(row)
            .all(|(column, value)| match (*column, value) {
                (ID, Value::Unsigned(number)) => {
                    id = Some(*number);
                    self.by != ID || self.was_asked(*number)
                }
                (K, Value::Unsigned(number)) => self.by != K || self.was_asked(*number),
                (C, Value::Bytes(text)) => match (id, self.by) {
                    (Some(id), _) => self.shared.rows.is_c_of(self.table, id, text),
                    (None, ID) => self.is_c_of_any(text),
                    (None, _) => text.len() == C_BYTES,
                },
                _ => false,
            })
    }

    /// Returns true if `text` is a c of any requested id. Rows usually come in the order of their
    /// ids, but need not.
    fn is_c_of_any(&mut self, text: &[u8]) -> bool {
        let mut place = 0;
        let places = (self.next..self.asked()).chain(0..self.next);
        let ids = places.map(|next| {
            place = next;
            self.value(next)
        });
        let found = self.shared.rows.find_of_c(self.table, text, ids).is_some();
        if found {
            self.next = place + 1;
        }
        found
    }
}
