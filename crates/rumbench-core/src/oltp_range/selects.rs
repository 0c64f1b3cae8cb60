//! Reads of a server with SQL that are whole events: a list or a range in one statement, with the columns that the reference
//! asks for. Engines in the process read whole rows, or entries and then their rows (`reads`).
//!
//! What is asked without ids can be checked less: a c must be one that was written for an id that was asked for, a k must be
//! one that was asked for.

use super::events::{Statement, What};
use super::rows::{C, C_BYTES, ID, K};
use super::state::{Shared, wrong};
use crate::engine::Result;
use crate::tables::{Fold, TableId, TableQueries, Value, Where};

/// Performs a statement that names the columns to ask for; `judges`: whether answers can be judged. Rows read; of a scan,
/// which answers none, those that the server looked at.
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
    // What was there before the read is there in it.
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

/// What came, beside what was asked for.
struct Answer<'a> {
    shared: &'a Shared,
    table: usize,
    /// Column of the condition.
    by: usize,
    rows_where: Where<'a>,
    /// The values of a list in order, each once, and which of them a row has come for.
    listed: Vec<u64>,
    came: Vec<bool>,
    rows: u64,
    good: bool,
    /// Place of the value for which the next c is looked for first.
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

    /// The value of this place.
    fn value(&self, place: u64) -> u64 {
        match self.rows_where {
            Where::Between(from, _) => from + place,
            _ => self.listed[place as usize],
        }
    }

    /// Whether a row with this value is one that was asked for. One with an id comes once.
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

    /// Rows that must come. How many have a k is not known.
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

    /// Whether these values can be those of a row that was asked for.
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

    /// Rows come in the order of their ids most of the time, but need not.
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
