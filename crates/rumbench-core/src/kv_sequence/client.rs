//! Client of a step: performs the operations of its stream on its own connection and checks every
//! row that it reads.

use std::sync::Arc;

use super::steps::{Action, MULTIGET_KEYS};
use super::stream::{Request, Stream, loaded_draw};
use super::value::Values;
use crate::error::EngineError;
use crate::kv::Direction;
use crate::retry::{retried, retried_with};
use crate::tables::{Path, Range, RowBatch, TableConnection, TableId, Value};
use crate::trial::{Done, OpIndex, PhaseClient};

/// The only table.
pub(super) const ROWS: TableId = TableId(0);
/// Lower bound of all keys.
const LOWEST: &[u8] = &[0];
/// Upper bound of all keys: they start with a number, so with a zero byte.
const HIGHEST: &[u8] = &[0xff];

/// Returns the operation names of steps with this action.
pub(super) fn operations(action: Action) -> &'static [&'static str] {
    match action {
        Action::Load => &["LOAD"],
        Action::Get => &["GET"],
        Action::MultiGet => &["MULTIGET"],
        Action::Scan(Direction::Forward, _) => &["SCAN"],
        Action::Scan(Direction::Reverse, _) => &["SCAN_REVERSE"],
        Action::Put => &["PUT"],
        Action::Settle => &[],
    }
}

/// State shared by all clients of a trial.
pub(super) struct Table {
    pub(super) values: Values,
    /// Number of rows of the table.
    pub(super) keys: u64,
    pub(super) seed: u64,
    pub(super) backoff: fn(u32),
}

/// Result of checking a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Good,
    Missing,
    Damaged,
}

impl Table {
    #[inline]
    fn look_at(&self, number: u64, row: Option<&[Value<'_>]>) -> Found {
        match row {
            None => Found::Missing,
            Some(row) if self.values.is_value(number, columns(row).1) => Found::Good,
            Some(_) => Found::Damaged,
        }
    }

    /// Returns a wrong answer unless the row exists and its value is good.
    fn judge(&self, number: u64, found: Found) -> Result<(), EngineError> {
        match found {
            Found::Good => Ok(()),
            Found::Missing => Err(wrong(format!("row {number} is missing"))),
            Found::Damaged => Err(wrong(format!(
                "row {number} has a value that was never written for it"
            ))),
        }
    }

    /// Reads one row and checks it.
    pub(super) fn check(
        &self,
        connection: &mut dyn TableConnection,
        number: u64,
    ) -> Result<(), EngineError> {
        let mut key = RowBatch::new(1);
        key.push_bytes(|out| self.values.append_key(number, out));
        let mut found = Found::Missing;
        connection.get_one(ROWS, &key, &mut |row| found = self.look_at(number, row))?;
        self.judge(number, found)
    }
}

/// Returns key and value of a row.
#[inline]
pub(super) fn columns<'a>(row: &[Value<'a>]) -> (&'a [u8], &'a [u8]) {
    match *row {
        [Value::Bytes(key), Value::Bytes(value)] => (key, value),
        _ => (&[], &[]),
    }
}

pub(super) fn wrong(message: String) -> EngineError {
    EngineError::Wrong(message)
}

/// One client of one step, or its background writer.
pub(super) struct SequenceClient {
    stream: Stream,
    connection: Box<dyn TableConnection>,
    table: Arc<Table>,
    /// True if the store keeps rows, so that its answers can be checked.
    judges: bool,
    /// Rows that the next operation writes.
    rows: RowBatch,
    /// Keys that it reads.
    keys: RowBatch,
    /// Bound of its scan.
    bound: Vec<u8>,
}

impl SequenceClient {
    pub(super) fn new(
        stream: Stream,
        connection: Box<dyn TableConnection>,
        table: Arc<Table>,
        judges: bool,
    ) -> SequenceClient {
        SequenceClient {
            stream,
            connection,
            table,
            judges,
            rows: RowBatch::new(2),
            keys: RowBatch::new(1),
            bound: Vec::new(),
        }
    }

    fn load(&mut self, count: u64) -> Result<Done, EngineError> {
        let written = retried(self.table.backoff, count, || {
            self.connection.insert(ROWS, &self.rows)
        })?;
        Ok(Done {
            written_bytes: self.rows.value_bytes() as u64,
            ..written
        })
    }

    fn put(&mut self) -> Result<Done, EngineError> {
        let written = retried(self.table.backoff, 1, || {
            self.connection.put(ROWS, &self.rows)
        })?;
        Ok(Done {
            written_bytes: self.rows.value_bytes() as u64,
            ..written
        })
    }

    fn get(&mut self, number: u64) -> Result<Done, EngineError> {
        let table = &self.table;
        let mut found = Found::Missing;
        let ((), retries) = retried_with(table.backoff, || {
            self.connection.get_one(ROWS, &self.keys, &mut |row| {
                found = table.look_at(number, row);
            })
        })?;
        if self.judges {
            table.judge(number, found)?;
        }
        Ok(read(1, retries))
    }

    fn multi_get(&mut self) -> Result<Done, EngineError> {
        let Request::MultiGet(numbers) = self.stream.request() else {
            return Ok(Done::default());
        };
        let table = &self.table;
        let mut found = [Found::Missing; MULTIGET_KEYS];
        let ((), retries) = retried_with(table.backoff, || {
            self.connection.get(ROWS, &self.keys, &mut |place, row| {
                found[place] = table.look_at(numbers[place], row);
            })
        })?;
        if self.judges {
            for (number, found) in numbers.iter().zip(found) {
                table.judge(*number, found)?;
            }
        }
        Ok(read(MULTIGET_KEYS as u64, retries))
    }

    fn scan(&mut self, first: u64, direction: Direction, rows: u64) -> Result<Done, EngineError> {
        let table = &self.table;
        let (from, to, there) = match direction {
            Direction::Forward => (&self.bound[..], HIGHEST, table.keys - first),
            // The end is exclusive. The buffer holds the key's successor in byte order, so that the
            // scan begins with the key itself.
            Direction::Reverse => (LOWEST, &self.bound[..], first + 1),
        };
        let range = Range {
            from: &[Value::Bytes(from)],
            to: &[Value::Bytes(to)],
            direction,
            limit: rows as usize,
        };
        let (mut seen, mut good) = (0, true);
        let ((), retries) = retried_with(table.backoff, || {
            (seen, good) = (0, true);
            // The scan ends at its last row, so the engine does not step to a row that is not read.
            self.connection
                .scan(ROWS, Path::Primary, range, &mut |row| {
                    let (key, value) = columns(row);
                    let number = match direction {
                        Direction::Forward => first + seen,
                        Direction::Reverse => first.wrapping_sub(seen),
                    };
                    good &=
                        table.values.is_key(number, key) && table.values.is_value(number, value);
                    seen += 1;
                    seen < rows
                })
        })?;
        if self.judges && (!good || seen != rows.min(there)) {
            let request = self.stream.request();
            return Err(wrong(format!(
                "{seen} rows, all good: {good}, for: {request}"
            )));
        }
        Ok(read(seen, retries))
    }
}

fn read(rows: u64, retries: u64) -> Done {
    Done {
        rows,
        retries,
        ..Done::default()
    }
}

impl PhaseClient for SequenceClient {
    fn prepare(&mut self) -> Option<OpIndex> {
        if !self.stream.advance() {
            return None;
        }
        let values = &self.table.values;
        self.rows.clear();
        self.keys.clear();
        let mut push_row = |number, draw| {
            self.rows.push_bytes(|out| values.append_key(number, out));
            self.rows
                .push_bytes(|out| values.append_value(number, draw, out));
        };
        match self.stream.request() {
            Request::Load { first, rows } => {
                for number in first..first + rows {
                    push_row(number, loaded_draw(self.table.seed, number));
                }
            }
            Request::Put { number, draw } => {
                push_row(number, draw);
            }
            Request::Get(number) => self.keys.push_bytes(|out| values.append_key(number, out)),
            Request::MultiGet(numbers) => {
                for number in numbers {
                    self.keys.push_bytes(|out| values.append_key(*number, out));
                }
            }
            Request::Scan {
                first, direction, ..
            } => {
                self.bound.clear();
                values.append_key(first, &mut self.bound);
                if direction == Direction::Reverse {
                    self.bound.push(0);
                }
            }
        }
        Some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        match self.stream.request() {
            Request::Load { rows, .. } => self.load(rows),
            Request::Put { .. } => self.put(),
            Request::Get(number) => self.get(number),
            Request::MultiGet(_) => self.multi_get(),
            Request::Scan {
                first,
                direction,
                rows,
            } => self.scan(first, direction, rows),
        }
    }
}
