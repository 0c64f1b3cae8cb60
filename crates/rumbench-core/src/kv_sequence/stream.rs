//! Requests of each client of a step, in order: a pure function of the seed, the step and the
//! client.

use std::fmt;

use super::config::Config;
use super::steps::{Action, FEW_KEYS, MULTIGET_KEYS, StepDef};
use crate::kv::Direction;
use crate::random::{Random, mix};

/// Client number of the background writer.
pub const WRITER: u64 = u64::MAX;

/// One operation. Rows are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Write these new rows.
    Load {
        /// First row.
        first: u64,
        /// Number of rows.
        rows: u64,
    },
    /// Overwrite a row with the value selected by `draw`.
    Put {
        /// Row number.
        number: u64,
        /// Random number that selects the value.
        draw: u64,
    },
    /// Read a row.
    Get(u64),
    /// Read rows in one call.
    MultiGet(&'a [u64]),
    /// Read consecutive rows.
    Scan {
        /// First row.
        first: u64,
        /// Direction.
        direction: Direction,
        /// Number of rows, if the table does not end before.
        rows: u64,
    },
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Load { first, rows } => write!(f, "LOAD {first}..{}", first + rows),
            Request::Put { number, draw } => write!(f, "PUT {number} {draw:016x}"),
            Request::Get(number) => write!(f, "GET {number}"),
            Request::MultiGet(numbers) => write!(f, "MULTIGET {numbers:?}"),
            Request::Scan {
                first,
                direction,
                rows,
            } => {
                let way = match direction {
                    Direction::Forward => "up",
                    Direction::Reverse => "down",
                };
                write!(f, "SCAN {rows} rows {way} from {first}")
            }
        }
    }
}

/// Returns the draw of the value that the load writes for a row.
pub fn loaded_draw(seed: u64, number: u64) -> u64 {
    mix(mix(seed, 0x6c6f_6164), number)
}

/// The operations of one client of one step.
#[derive(Debug)]
pub struct Stream {
    action: Action,
    random: Random,
    keys: u64,
    /// Rows of one commit of a load.
    load_rows: u64,
    /// First row that no commit of the load has taken.
    next_row: u64,
    /// First row and row count of a load, or the rows of a multi-get; otherwise the first element
    /// is the operation's row.
    numbers: [u64; MULTIGET_KEYS],
    draw: u64,
}

impl Stream {
    /// Creates the stream of a client. `occurrence` counts the steps of this name in the trial from
    /// 1, so the requests of a step do not depend on the rest of the list.
    pub fn new(config: &Config, step: &StepDef, occurrence: u64, client: u64) -> Stream {
        let name = step
            .name
            .bytes()
            .fold(0, |hash, byte| mix(hash, u64::from(byte)));
        Stream {
            action: if client == WRITER {
                Action::Put
            } else {
                step.action
            },
            random: Random::keyed(config.seed, &[name, occurrence, client]),
            keys: if step.few_keys {
                config.keys.min(FEW_KEYS)
            } else {
                config.keys
            },
            load_rows: config.load_rows_of(step),
            next_row: 0,
            numbers: [0; MULTIGET_KEYS],
            draw: 0,
        }
    }

    /// Advances to the next operation and returns true if there is one. Only a load ends.
    pub fn advance(&mut self) -> bool {
        match self.action {
            Action::Settle => return false,
            Action::Load => {
                let left = self.keys - self.next_row;
                self.numbers[0] = self.next_row;
                self.numbers[1] = left.min(self.load_rows);
                self.next_row += self.numbers[1];
                return left > 0;
            }
            Action::MultiGet => {
                for number in &mut self.numbers {
                    *number = self.random.below(self.keys);
                }
            }
            Action::Get | Action::Scan(..) => self.numbers[0] = self.random.below(self.keys),
            Action::Put => {
                self.numbers[0] = self.random.below(self.keys);
                self.draw = self.random.bits();
            }
        }
        true
    }

    /// Returns the operation that [`Stream::advance`] selected.
    pub fn request(&self) -> Request<'_> {
        let [number, rows, ..] = self.numbers;
        match self.action {
            Action::Load | Action::Settle => Request::Load {
                first: number,
                rows,
            },
            Action::Put => Request::Put {
                number,
                draw: self.draw,
            },
            Action::Get => Request::Get(number),
            Action::MultiGet => Request::MultiGet(&self.numbers),
            Action::Scan(direction, rows) => Request::Scan {
                first: number,
                direction,
                rows: rows as u64,
            },
        }
    }
}
