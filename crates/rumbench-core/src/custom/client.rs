//! Client of a mix: performs the operations of its stream on its own connection and checks every
//! row that it reads.
//!
//! `prepare` claims all resources of an operation: numbers of new rows, the row of a delete,
//! versions. If the operation is not performed, the next `prepare` or the drop of the client
//! releases them.

use std::sync::Arc;

use super::checks::{Shared, wrong};
use super::definition::{Action, Written};
use super::population::{Population, State};
use super::scan::Walk;
use super::stream::Stream;
use super::versions::Ticket;
use crate::error::Result;
use crate::random::Random;
use crate::retry::retried_with;
use crate::tables::{Change, Path, Range, RowBatch, TableConnection, TableId, Value};
use crate::trial::{Done, OpIndex, PhaseClient};

/// One client of one phase.
pub(super) struct MixClient {
    shared: Arc<Shared>,
    connection: Box<dyn TableConnection>,
    stream: Stream,
    /// Draws versions for values without version tracking.
    random: Random,
    /// True if the store keeps rows, so that its answers can be checked.
    judges: bool,
    action: Action,
    table: usize,
    rows: Vec<u64>,
    count: u64,
    /// State of each row before it is read, and the oldest version of each of its columns.
    before: Vec<State>,
    oldest: Vec<u32>,
    keys: RowBatch,
    /// One batch for each table, and one for single values.
    batches: Vec<RowBatch>,
    value: RowBatch,
    claims: Claims,
}

/// Resources that the prepared operation has claimed.
#[derive(Debug, Default)]
struct Claims {
    table: usize,
    /// Numbers of new rows.
    taken: Vec<u64>,
    /// The row of a delete.
    leaving: Option<u64>,
    /// Versions, each with the index of its column.
    tickets: Vec<(usize, Ticket)>,
}

impl MixClient {
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Box<dyn TableConnection>,
        stream: Stream,
        random: Random,
        judges: bool,
    ) -> MixClient {
        let tables = shared.definition.tables.iter();
        MixClient {
            batches: tables
                .map(|table| RowBatch::new(1 + table.columns.len()))
                .collect(),
            shared,
            connection,
            stream,
            random,
            judges,
            action: Action::Read,
            table: 0,
            rows: Vec::new(),
            count: 0,
            before: Vec::new(),
            oldest: Vec::new(),
            keys: RowBatch::new(1),
            value: RowBatch::new(1),
            claims: Claims::default(),
        }
    }

    fn population(&self) -> &Population {
        &self.shared.populations[self.table]
    }

    /// Releases the claims of an operation that was not performed.
    fn put_back(&mut self) {
        let claims = &mut self.claims;
        let population = &self.shared.populations[claims.table];
        for number in claims.taken.drain(..).rev() {
            population.give_back(number);
        }
        if let Some(row) = claims.leaving.take() {
            population.unclaim(row);
        }
        for (_, ticket) in claims.tickets.drain(..) {
            self.shared.versions[claims.table].end(ticket, false);
        }
    }

    /// Records the states of the rows before they are read, and builds their keys.
    fn prepare_reads(&mut self, missing: bool) {
        let (shared, table) = (&*self.shared, self.table);
        self.keys.clear();
        self.before.clear();
        self.oldest.clear();
        for row in &self.rows {
            self.before.push(shared.populations[table].state(*row));
            for column in 0..shared.rows.columns(table) {
                self.oldest
                    .push(shared.versions[table].oldest(*row, column));
            }
            self.keys.push(if missing {
                shared.rows.missing_key(table, *row)
            } else {
                shared.rows.key(table, *row)
            });
        }
    }

    /// Issues versions and builds the new values.
    fn prepare_write(&mut self, column: Option<usize>) {
        let (shared, table, row) = (&*self.shared, self.table, self.rows[0]);
        let (versions, random) = (&shared.versions[table], &mut self.random);
        let tickets = &mut self.claims.tickets;
        let mut issue = |column| {
            let ticket = versions.issue(row, column, random);
            tickets.push((column, ticket));
            ticket.version
        };
        match column {
            Some(column) => {
                self.value.clear();
                let version = issue(column);
                shared
                    .rows
                    .push((table, row), column, version, &mut self.value);
            }
            None => {
                let batch = &mut self.batches[table];
                batch.clear();
                shared.rows.push_row((table, row), issue, batch);
            }
        }
    }

    fn prepare_insert(&mut self) {
        let (shared, table) = (&*self.shared, self.table);
        let batch = &mut self.batches[table];
        batch.clear();
        for _ in 0..self.count {
            let row = shared.populations[table].take();
            self.claims.taken.push(row);
            shared.rows.push_row((table, row), |_| 0, batch);
        }
    }

    /// True if a row that was present before must still be there: no client has claimed it for a
    /// delete.
    fn must_have(&self, place: usize) -> bool {
        let present = self.before[place] == State::Present;
        present && self.population().state(self.rows[place]) == State::Present
    }

    fn read(&mut self) -> Result<Done> {
        let (shared, table) = (&*self.shared, self.table);
        let columns = shared.rows.columns(table);
        let (rows, before, oldest) = (&self.rows, &self.before, &self.oldest);
        let (mut found, mut absent, mut bad) = (0, Vec::new(), Ok(()));
        let judges = self.judges;
        let ((), retries) = retried_with(shared.backoff, || {
            found = 0;
            absent.clear();
            bad = Ok(());
            self.connection
                .get(TableId(table), &self.keys, &mut |place, values| {
                    let Some(values) = values else {
                        return absent.push(place);
                    };
                    found += 1;
                    if !judges || bad.is_err() {
                        return;
                    }
                    let oldest = &oldest[place * columns..];
                    bad = match before[place] {
                        State::Gone => Err(wrong(format!(
                            "row {} of {} was deleted and is there",
                            rows[place],
                            shared.name(table)
                        ))),
                        _ => shared.check_row((table, rows[place]), |c| oldest[c], values),
                    };
                })
        })?;
        bad?;
        // This allocates nothing if all rows were found.
        let missing = absent.into_iter().find(|place| self.must_have(*place));
        match missing.filter(|_| judges) {
            Some(place) => Err(shared.missing(table, self.rows[place])),
            None => Ok(done(found, retries)),
        }
    }

    fn read_missing(&mut self) -> Result<Done> {
        let (shared, table) = (&*self.shared, self.table);
        let mut found = None;
        let ((), retries) = retried_with(shared.backoff, || {
            found = None;
            self.connection
                .get(TableId(table), &self.keys, &mut |place, values| {
                    found = found.or(values.map(|_| place));
                })
        })?;
        match found.filter(|_| self.judges) {
            None => Ok(done(0, retries)),
            Some(place) => Err(wrong(format!(
                "table {} answers the key {:?}, which no row has",
                shared.name(table),
                shared.rows.missing_key(table, self.rows[place]).unsigned()
            ))),
        }
    }

    /// Writes the prepared values and checks the engine's answer whether the row exists.
    fn write(&mut self) -> Result<Done> {
        let (shared, table, row) = (&*self.shared, self.table, self.rows[0]);
        let key = [shared.rows.key(table, row)];
        let one = match self.claims.tickets[..] {
            [(column, _)] if self.writes_one() => Some(column),
            _ => None,
        };
        let (connection, batch) = (&mut self.connection, &self.batches[table]);
        let value = self.value.rows().next().map(|row| row.value(0));
        let written = retried_with(shared.backoff, || match (one, value) {
            // The key comes first.
            (Some(column), Some(value)) => {
                connection.update(TableId(table), &key, column + 1, Change::Set(value))
            }
            _ => connection.replace(TableId(table), batch),
        });
        let Ok((there, retries)) = written else {
            // The write may have happened or not, so its versions stay pending.
            self.claims.tickets.clear();
            return written.map(|_| Done::default());
        };
        for (_, ticket) in self.claims.tickets.drain(..) {
            shared.versions[table].end(ticket, there);
        }
        let name = shared.name(table);
        match (there, self.judges) {
            (false, true) if self.must_have(0) => Err(shared.missing(table, row)),
            (true, true) if self.before[0] == State::Gone => Err(wrong(format!(
                "row {row} of {name} was deleted and is there"
            ))),
            _ => Ok(done(u64::from(there), retries)),
        }
    }

    fn writes_one(&self) -> bool {
        matches!(
            self.action,
            Action::Update(Written::One(_)) | Action::ReadModifyWrite(Written::One(_))
        )
    }

    /// Reads and writes in two statements, each a transaction of its own: other clients may write
    /// between them.
    fn read_modify_write(&mut self) -> Result<Done> {
        let read = self.read()?;
        if read.rows == 0 {
            self.put_back();
            return Ok(read);
        }
        let write = self.write()?;
        Ok(done(write.rows, read.retries + write.retries))
    }

    fn insert(&mut self) -> Result<Done> {
        let (shared, table) = (&*self.shared, self.table);
        let inserted = retried_with(shared.backoff, || {
            self.connection.insert(TableId(table), &self.batches[table])
        });
        let population = &shared.populations[table];
        let rows = self.claims.taken.len() as u64;
        if inserted.is_err() {
            population.note_failure();
            self.claims.taken.clear();
        }
        for number in self.claims.taken.drain(..) {
            population.note_inserted(number);
        }
        inserted.map(|((), retries)| done(rows, retries))
    }

    fn delete(&mut self) -> Result<Done> {
        let (shared, table, row) = (&*self.shared, self.table, self.rows[0]);
        let key = [shared.rows.key(table, row)];
        let deleted = retried_with(shared.backoff, || {
            self.connection.delete(TableId(table), &key)
        });
        let population = &shared.populations[table];
        self.claims.leaving = None;
        match deleted {
            Err(error) => {
                population.note_failure();
                Err(error)
            }
            Ok((false, _)) if self.judges => Err(shared.missing(table, row)),
            Ok((_, retries)) => {
                population.note_deleted(row);
                Ok(done(1, retries))
            }
        }
    }

    fn scan(&mut self, path: Path) -> Result<Done> {
        let (shared, table, first) = (&*self.shared, self.table, self.rows[0]);
        let of = shared.schema.table(TableId(table));
        let from = match path {
            Path::Primary => shared.rows.key(table, first),
            // The first value of the row, which other rows share.
            Path::Index(index) => {
                let column = of.indexes[index].columns[0] - 1;
                let value = shared.rows.number((table, first), column, 0);
                value.unwrap_or(Value::Unsigned(0))
            }
        };
        let (mut walk, limit) = (Walk::new(from), self.count as usize);
        let range = Range {
            from: &[from],
            limit,
            ..Range::ALL
        };
        let judges = self.judges;
        let ((), retries) = retried_with(shared.backoff, || {
            walk.restart();
            self.connection
                .scan(TableId(table), path, range, &mut |values| {
                    if judges {
                        walk.step(shared, table, path, values);
                    }
                    walk.seen += 1;
                    // The scan ends at its last row, so the engine does not step to a row that is
                    // not read.
                    walk.seen < limit && walk.bad.is_none()
                })
        })?;
        if let Some(error) = walk.bad {
            return Err(error);
        }
        if judges && path == Path::Primary {
            walk.check_complete(shared, table, first, limit)?;
        }
        Ok(done(walk.seen as u64, retries))
    }
}

fn done(rows: u64, retries: u64) -> Done {
    Done {
        rows,
        retries,
        ..Done::default()
    }
}

impl PhaseClient for MixClient {
    fn prepare(&mut self) -> Option<OpIndex> {
        self.put_back();
        let request = self.stream.advance(&self.shared.populations);
        let operation = request.operation;
        let column = request.column;
        self.rows.clone_from(&request.rows);
        self.count = request.count;
        let of = self.stream.operation(operation);
        self.table = of.table;
        self.claims.table = of.table;
        self.action.clone_from(&of.action);
        match self.action {
            Action::Read => self.prepare_reads(false),
            Action::ReadMissing => self.prepare_reads(true),
            Action::Insert => self.prepare_insert(),
            Action::Update(_) | Action::ReadModifyWrite(_) => {
                self.prepare_reads(false);
                self.prepare_write(column);
            }
            Action::Delete => {
                // Another client may have claimed the same row. The client ends when no row is
                // present any more.
                let population = &self.shared.populations[self.table];
                while !population.claim(self.rows[0]) {
                    self.rows[0] = population.present_from(self.rows[0])?;
                }
                self.claims.leaving = Some(self.rows[0]);
            }
            Action::Scan(_) => {}
        }
        Some(operation)
    }

    fn execute(&mut self) -> Result<Done> {
        match self.action {
            Action::Read => self.read(),
            Action::ReadMissing => self.read_missing(),
            Action::Insert => self.insert(),
            Action::Update(_) => self.write(),
            Action::ReadModifyWrite(_) => self.read_modify_write(),
            Action::Delete => self.delete(),
            Action::Scan(path) => self.scan(path),
        }
    }
}

impl Drop for MixClient {
    fn drop(&mut self) {
        self.put_back();
    }
}
