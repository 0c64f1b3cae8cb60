//! Client of a step: performs the operations of its stream on its own connection and checks every
//! row that it reads.

use std::sync::Arc;

use super::steps::{Action, MULTIGET_KEYS};
use super::store::{Row, RowConnection};
use super::stream::{Request, Stream, loaded_draw};
use super::value::Values;
use crate::error::EngineError;
use crate::kv::{Direction, Scan};
use crate::retry::{retried, retried_with};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Lower bound of all keys.
pub(super) const LOWEST: &[u8] = &[0];
/// Upper bound of all keys: they start with a number, so with a zero byte.
pub(super) const HIGHEST: &[u8] = &[0xff];

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
    pub(super) row_bytes: u64,
    pub(super) key_bytes: usize,
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
    fn look_at(&self, number: u64, value: Option<&[u8]>) -> Found {
        match value {
            None => Found::Missing,
            Some(value) if self.values.is_value(number, value) => Found::Good,
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
        connection: &mut dyn RowConnection,
        number: u64,
    ) -> Result<(), EngineError> {
        let mut key = Vec::new();
        self.values.append_key(number, &mut key);
        let mut found = Found::Missing;
        connection.get(&key, &mut |value| found = self.look_at(number, value))?;
        self.judge(number, found)
    }
}

pub(super) fn wrong(message: String) -> EngineError {
    EngineError::Wrong(message)
}

/// One client of one step, or its background writer.
pub(super) struct SequenceClient {
    stream: Stream,
    connection: Box<dyn RowConnection>,
    table: Arc<Table>,
    /// True if the store keeps rows, so that its answers can be checked.
    judges: bool,
    /// Keys, or keys and values, of the next operation.
    bytes: Vec<u8>,
}

impl SequenceClient {
    pub(super) fn new(
        stream: Stream,
        connection: Box<dyn RowConnection>,
        table: Arc<Table>,
        judges: bool,
    ) -> SequenceClient {
        SequenceClient {
            stream,
            connection,
            table,
            judges,
            bytes: Vec::new(),
        }
    }

    fn load(&mut self, count: u64) -> Result<Done, EngineError> {
        let table = &self.table;
        let row = |bytes| row_of(bytes, table.key_bytes);
        let written = if self.bytes.len() as u64 == table.row_bytes {
            // A single row needs no vector.
            let rows = [row(&self.bytes[..])];
            retried(table.backoff, 1, || self.connection.load(&rows))
        } else {
            let rows: Vec<Row<'_>> = self
                .bytes
                .chunks_exact(table.row_bytes as usize)
                .map(row)
                .collect();
            retried(table.backoff, count, || self.connection.load(&rows))
        }?;
        Ok(Done {
            written_bytes: self.bytes.len() as u64,
            ..written
        })
    }

    fn put(&mut self) -> Result<Done, EngineError> {
        let row = row_of(&self.bytes, self.table.key_bytes);
        let done = retried(self.table.backoff, 1, || self.connection.put(row))?;
        Ok(Done {
            written_bytes: self.bytes.len() as u64,
            ..done
        })
    }

    fn get(&mut self, number: u64) -> Result<Done, EngineError> {
        let table = &self.table;
        let mut found = Found::Missing;
        let ((), retries) = retried_with(table.backoff, || {
            self.connection.get(&self.bytes, &mut |value| {
                found = table.look_at(number, value);
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
        let length = table.key_bytes;
        let keys: [&[u8]; MULTIGET_KEYS] =
            std::array::from_fn(|place| &self.bytes[place * length..(place + 1) * length]);
        let mut found = [Found::Missing; MULTIGET_KEYS];
        let ((), retries) = retried_with(table.backoff, || {
            self.connection.multi_get(&keys, &mut |place, value| {
                found[place] = table.look_at(numbers[place], value);
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
        let (start, end, there) = match direction {
            Direction::Forward => (&self.bytes[..], HIGHEST, table.keys - first),
            // The end is exclusive. The buffer holds the key's successor in byte order, so that the
            // scan begins with the key itself.
            Direction::Reverse => (LOWEST, &self.bytes[..], first + 1),
        };
        let scan = Scan {
            start,
            end,
            direction,
            limit: rows as usize,
        };
        let (mut seen, mut good) = (0, true);
        let ((), retries) = retried_with(table.backoff, || {
            (seen, good) = (0, true);
            // The scan ends at its last row, so the engine does not step to a row that is not read.
            self.connection.scan(scan, &mut |key, value| {
                let number = match direction {
                    Direction::Forward => first + seen,
                    Direction::Reverse => first.wrapping_sub(seen),
                };
                good &= table.values.is_key(number, key) && table.values.is_value(number, value);
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

fn row_of(bytes: &[u8], key_bytes: usize) -> Row<'_> {
    let (key, value) = bytes.split_at(key_bytes);
    Row { key, value }
}

impl PhaseClient for SequenceClient {
    fn prepare(&mut self) -> Option<OpIndex> {
        if !self.stream.advance() {
            return None;
        }
        let (values, bytes) = (&self.table.values, &mut self.bytes);
        bytes.clear();
        match self.stream.request() {
            Request::Load { first, rows } => {
                for number in first..first + rows {
                    values.append_key(number, bytes);
                    values.append_value(number, loaded_draw(self.table.seed, number), bytes);
                }
            }
            Request::Put { number, draw } => {
                values.append_key(number, bytes);
                values.append_value(number, draw, bytes);
            }
            Request::Get(number) => values.append_key(number, bytes),
            Request::MultiGet(numbers) => {
                for number in numbers {
                    values.append_key(*number, bytes);
                }
            }
            Request::Scan {
                first, direction, ..
            } => {
                values.append_key(first, bytes);
                if direction == Direction::Reverse {
                    bytes.push(0);
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
