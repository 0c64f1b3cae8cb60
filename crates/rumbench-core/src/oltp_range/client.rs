//! Client of a test: performs the statements of its events, and checks every returned row.
//!
//! Each reading statement reads committed data on its own. The writing statements of an event are
//! one transaction, which runs again as a whole after a conflict. An event with a single statement
//! that writes one row uses the engine's call for it.
//!
//! On a SQL server, an event that updates a list is one statement, and an event that inserts a row
//! is an unprepared statement. An event with several statements is one transaction there, even if
//! it only reads.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::columns::{C, COLUMNS, K};
use super::events::{Event, Events, Statement, What};
use super::lists;
use super::queries;
use super::reads::Reads;
use super::rows::{C_BYTES, Draws, ROW_BYTES};
use super::state::{Shared, wrong};
use crate::error::{EngineError, Result};
use crate::retry::retried_with;
use crate::tables::{Change, RowBatch, TableConnection, TableId, TableWrites, Value};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of all tests.
pub(super) const OPERATIONS: &[&str] = &["EVENT"];

/// One client of one test.
pub(super) struct OltpClient {
    shared: Arc<Shared>,
    connection: Box<dyn TableConnection>,
    events: Events,
    event: Event,
    client: usize,
    /// True if answers are checked.
    judges: bool,
    reads: Reads,
    /// New c of each statement of the event that sets one, in sequence.
    texts: Vec<u8>,
    /// Row that the event inserts.
    row: RowBatch,
    /// True for each row written by the event that must exist.
    expected: Vec<bool>,
    /// True for each row written by the event that existed, according to the engine.
    there: Vec<bool>,
}

impl OltpClient {
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Box<dyn TableConnection>,
        events: Events,
        client: usize,
        judges: bool,
        writes: bool,
    ) -> OltpClient {
        OltpClient {
            shared,
            connection,
            events,
            event: Event::default(),
            client,
            judges,
            reads: Reads::new(judges, writes),
            texts: Vec::new(),
            row: RowBatch::new(COLUMNS),
            expected: Vec::new(),
            there: Vec::new(),
        }
    }

    /// Generates the texts and the row of a statement.
    fn make(&mut self, statement: Statement) {
        let (rows, table) = (&self.shared.rows, statement.table);
        match (statement.what, self.event.numbers(&statement)) {
            (What::SetC, &[id, draw]) => rows.append_c(table, id, draw, &mut self.texts),
            (What::SetCOfList, &[draw, ..]) => {
                rows.append_c_of_list(table, draw, &mut self.texts);
            }
            (What::Replace, &[id, c, pad]) => {
                rows.push(table, id, Draws { c, pad }, &mut self.row);
            }
            (What::Insert, &[c, pad]) => {
                let id = self.shared.tables[table].next_insert(self.client);
                rows.push(table, id, Draws { c, pad }, &mut self.row);
            }
            _ => {}
        }
    }

    /// Performs the writing statements, which start at `first`, in one transaction. The statements
    /// from `begin` to `first` are reads in the same transaction. Returns rows and retries.
    fn write(&mut self, begin: usize, first: usize) -> Result<(u64, u64)> {
        let shared = &*self.shared;
        let (event, there, expected) = (&self.event, &mut self.there, &mut self.expected);
        let connection = &mut *self.connection;
        let (reads, statements) = event.statements[begin..].split_at(first - begin);
        let made = (&self.texts[..], &self.row);
        let judges = self.judges;
        announce(shared, event, statements, expected);
        let mut rows = 0;
        let ((), retries) = retried_with(shared.backoff, || {
            there.clear();
            rows = 0;
            if let ([], [only]) = (reads, statements)
                && let Some(queries) = connection.queries()
            {
                match only.what {
                    What::SetCOfList => {
                        let ids = ids_of(event, only);
                        let asked = (&expected[..], judges && shared.is_exact());
                        return lists::set(queries, only.table, ids, made.0, asked, there);
                    }
                    What::Insert => {
                        there.push(true);
                        return queries.insert_parsed(TableId(only.table), made.1);
                    }
                    _ => {}
                }
            }
            if reads.is_empty() && is_single(statements) {
                let writes = &mut Direct(connection);
                return perform(writes, event, statements, made, there);
            }
            connection.write(&mut |writes| {
                for statement in reads {
                    let queries = writes.queries().ok_or_else(no_queries)?;
                    let numbers = event.numbers(statement);
                    rows += queries::perform(shared, queries, judges, statement, numbers)?;
                }
                perform(writes, event, statements, made, there)
            })
        })?;
        self.note(first)?;
        let changed = self.there.iter().filter(|there| **there).count();
        Ok((rows + changed as u64, retries))
    }

    /// Returns the bytes of the keys and new values of the writing statements.
    fn written_bytes(&self, first: usize) -> u64 {
        const KEY_BYTES: u64 = 8;
        let of = |statement: &Statement| match statement.what {
            What::SetC | What::SetCOfList => {
                let rows = ids_of(&self.event, statement).len() as u64;
                rows * (KEY_BYTES + C_BYTES as u64)
            }
            What::AddK => KEY_BYTES + 4,
            What::Replace => KEY_BYTES + ROW_BYTES,
            What::Delete => KEY_BYTES,
            _ => ROW_BYTES,
        };
        self.event.statements[first..].iter().map(of).sum()
    }

    /// Records the effects, and checks the answers: only a deleted row may be missing.
    fn note(&self, first: usize) -> Result<()> {
        let shared = &*self.shared;
        let mut answers = self.expected.iter().zip(&self.there);
        for statement in &self.event.statements[first..] {
            let table = &shared.tables[statement.table];
            for id in ids_of(&self.event, statement) {
                let Some((&expected, &there)) = answers.next() else {
                    continue;
                };
                match statement.what {
                    What::AddK => table.note_added(there),
                    What::Replace => table.note_back(*id),
                    What::Insert => table.note_inserted(self.client),
                    _ => {}
                }
                // Several clients may delete a row at once: only one finds it.
                let alone = statement.what != What::Delete || shared.config.clients == 1;
                let impossible = match statement.what {
                    What::Delete => there != expected,
                    What::Insert => false,
                    _ => expected && !there,
                };
                if self.judges && alone && impossible && shared.is_exact() {
                    return Err(wrong(format!(
                        "row {id} of {} was there: {expected}, but {:?} says: {there}",
                        shared.name(statement.table),
                        statement.what
                    )));
                }
            }
        }
        Ok(())
    }
}

#[cold]
fn no_queries() -> EngineError {
    EngineError::Unsupported("a transaction without the queries of its connection".to_owned())
}

/// Returns the ids of the rows that a statement writes, one per answer. For an insert a draw takes
/// the place of the id.
fn ids_of<'a>(event: &'a Event, statement: &Statement) -> &'a [u64] {
    let numbers = event.numbers(statement);
    match statement.what {
        What::SetCOfList => &numbers[1..],
        _ => &numbers[..1],
    }
}

/// Records the coming effects, and sets `expected` to true for each written row that must exist.
fn announce(shared: &Shared, event: &Event, statements: &[Statement], expected: &mut Vec<bool>) {
    expected.clear();
    for statement in statements {
        let table = &shared.tables[statement.table];
        let ids = ids_of(event, statement);
        match statement.what {
            What::AddK => table.note_add_begun(),
            What::Replace | What::Delete => table.adds_lost.store(true, Ordering::Relaxed),
            _ => {}
        }
        expected.extend(ids.iter().map(|id| match statement.what {
            What::Insert => false,
            What::Delete => !table.note_gone(*id),
            _ => !table.is_gone(*id),
        }));
    }
}

/// Returns true if the engine has a single call for the whole transaction.
fn is_single(statements: &[Statement]) -> bool {
    match statements {
        [only] => !matches!(only.what, What::Replace | What::SetCOfList),
        _ => false,
    }
}

/// A connection used as a transaction: each call is a transaction of its own.
struct Direct<'a>(&'a mut dyn TableConnection);

impl TableWrites for Direct<'_> {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        self.0.insert(table, rows)
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        self.0.delete(table, key)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        self.0.update(table, key, column, change)
    }
}

/// Performs the writing statements and appends to `there` for each of their rows: true if it
/// existed. `texts` holds the new c of each statement that sets one, in sequence; `row` is the row
/// to insert.
fn perform(
    writes: &mut dyn TableWrites,
    event: &Event,
    statements: &[Statement],
    (texts, row): (&[u8], &RowBatch),
    there: &mut Vec<bool>,
) -> Result<()> {
    let mut texts = texts.chunks_exact(C_BYTES);
    for statement in statements {
        let (table, ids) = (TableId(statement.table), ids_of(event, statement));
        let key = [Value::Unsigned(ids[0])];
        let found = match statement.what {
            What::SetC | What::SetCOfList => {
                let set = Change::Set(Value::Bytes(texts.next().unwrap_or_default()));
                for id in ids {
                    there.push(writes.update(table, &[Value::Unsigned(*id)], C, set)?);
                }
                continue;
            }
            What::AddK => writes.update(table, &key, K, Change::Add(1))?,
            What::Replace => {
                let there = writes.delete(table, &key)?;
                writes.insert(table, row)?;
                there
            }
            What::Delete => writes.delete(table, &key)?,
            _ => {
                writes.insert(table, row)?;
                true
            }
        };
        there.push(found);
    }
    Ok(())
}

impl PhaseClient for OltpClient {
    fn prepare(&mut self) -> Option<OpIndex> {
        self.events.next(&mut self.event);
        self.texts.clear();
        self.row.clear();
        for place in 0..self.event.statements.len() {
            self.make(self.event.statements[place]);
        }
        Some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let statements = self.event.statements.iter();
        let first = statements.take_while(|one| !one.what.writes()).count();
        let (mut rows, mut retries, mut written_bytes) = (0, 0, 0);
        // If the connection has queries, the reads are part of the transaction.
        let several = self.event.statements.len() > 1;
        let begin = if several && self.connection.queries().is_some() {
            0
        } else {
            first
        };
        for statement in &self.event.statements[..begin] {
            let numbers = self.event.numbers(statement);
            let shared = &*self.shared;
            let connection = &mut *self.connection;
            let (read, again) = self.reads.perform(shared, connection, statement, numbers)?;
            rows += read;
            retries += again;
        }
        if begin < self.event.statements.len() {
            let written = self.write(begin, first);
            if written.is_err() && first < self.event.statements.len() {
                self.shared.note_failure();
            }
            let (written, again) = written?;
            rows += written;
            retries += again;
            written_bytes = self.written_bytes(first);
        }
        Ok(Done {
            rows: black_box(rows),
            retries,
            written_bytes,
        })
    }
}
