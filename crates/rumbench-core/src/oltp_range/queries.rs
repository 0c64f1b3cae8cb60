//! Reads of engines with SQL, and the check of their answers. Here the server computes the column,
//! count or sum that the client computes from whole rows for other engines.
//!
//! The checks are weaker than for whole rows. A value of column `c` must have been written for its
//! id, or for an id of the range. Sorted values must be in order, and only the first of them is
//! looked up. A sum is only checked against bounds.

use super::columns::{C, K};
use super::events::{Statement, What};
use super::rows::C_BYTES;
use super::selects;
use super::state::{Shared, wrong};
use crate::error::Result;
use crate::tables::{Fold, TableId, TableQueries, Value};

/// Performs one read statement, in a transaction or alone, and returns the number of values or
/// rows. `judges`: the answer is checked. `numbers`: the id, or the first id and the one after the
/// last.
pub(super) fn perform(
    shared: &Shared,
    queries: &mut dyn TableQueries,
    judges: bool,
    statement: &Statement,
    numbers: &[u64],
) -> Result<u64> {
    match (statement.what, numbers) {
        _ if !statement.columns.is_empty() => {
            selects::perform(shared, queries, judges, statement, numbers)
        }
        (What::Points, &[id]) => point(shared, queries, judges, statement.table, id),
        (What::Range(fold), &[from, to]) => {
            range(shared, queries, judges, statement.table, (from, to), fold)
        }
        (what, _) => Err(wrong(format!("{what:?} is no query of one column"))),
    }
}

fn point(
    shared: &Shared,
    queries: &mut dyn TableQueries,
    judges: bool,
    table: usize,
    id: u64,
) -> Result<u64> {
    let was_there = shared.tables[table].has(id);
    let mut found = None;
    queries.column(TableId(table), &[Value::Unsigned(id)], C, &mut |value| {
        found = Some(matches!(value, Value::Bytes(c) if shared.rows.is_c_of(table, id, c)));
    })?;
    let name = shared.name(table);
    match found.filter(|_| judges) {
        Some(false) => Err(wrong(format!(
            "c of row {id} of {name} was never written for it"
        ))),
        None if judges && was_there && shared.is_exact() => {
            Err(wrong(format!("row {id} of {name} is missing")))
        }
        _ => Ok(u64::from(found.is_some())),
    }
}

/// Running check of the values of a range.
struct Answer {
    values: u64,
    /// Last number received.
    number: u64,
    /// True if every text checked so far is right.
    good: bool,
    /// Id at which the search for the next text starts.
    next: u64,
    last: [u8; C_BYTES],
}

fn range(
    shared: &Shared,
    queries: &mut dyn TableQueries,
    judges: bool,
    table: usize,
    (from, to): (u64, u64),
    fold: Fold,
) -> Result<u64> {
    let least = if judges {
        shared.tables[table].count(from, to)
    } else {
        0
    };
    let column = if fold == Fold::Sum { K } else { C };
    let mut answer = Answer {
        values: 0,
        number: 0,
        good: true,
        next: from,
        last: [0; C_BYTES],
    };
    queries.fold(TableId(table), from..=to - 1, column, fold, &mut |value| {
        answer.good &= answer.take(shared, table, (from, to), fold, value);
    })?;
    let most = to - from;
    let right = match fold {
        // Each k is at least 1.
        Fold::Sum => answer.values == 1 && answer.number >= least,
        Fold::Count => answer.values == 1 && (least..=most).contains(&answer.number),
        Fold::Distinct => (shared.rows.different_c(least)..=most).contains(&answer.values),
        _ => (least..=most).contains(&answer.values),
    };
    if judges && !(answer.good && (right || !shared.is_exact())) {
        let name = shared.name(table);
        return Err(wrong(format!(
            "{fold:?} of {name} from {from} to below {to} answered {} values, the last number {}, their texts right: {}; \
             {least} rows are there",
            answer.values, answer.number, answer.good
        )));
    }
    Ok(answer.values)
}

impl Answer {
    /// Takes the next value; returns true if it is plausible.
    fn take(
        &mut self,
        shared: &Shared,
        table: usize,
        (from, to): (u64, u64),
        fold: Fold,
        value: Value<'_>,
    ) -> bool {
        self.values += 1;
        let text = match (fold, value) {
            (Fold::Sum | Fold::Count, Value::Unsigned(number)) => {
                self.number = number;
                return true;
            }
            (Fold::Rows | Fold::Order | Fold::Distinct, Value::Bytes(text)) => text,
            _ => return false,
        };
        let Ok(text) = <[u8; C_BYTES]>::try_from(text) else {
            return false;
        };
        let is_first = self.values == 1;
        let in_order = match fold {
            Fold::Order => self.last <= text,
            Fold::Distinct => is_first || self.last < text,
            _ => true,
        };
        self.last = text;
        if fold != Fold::Rows && !is_first {
            return in_order;
        }
        // Texts usually come in the order of their ids, but need not.
        let ids = (self.next..to).chain(from..self.next);
        let id = shared.rows.find_of_c(table, &text, ids);
        self.next = id.map_or(self.next, |id| id + 1);
        in_order && id.is_some()
    }
}
