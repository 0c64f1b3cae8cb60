//! Operations of the clients of a step, as far as seed, step and client determine them.

use super::config::Config;
use super::rows::Rows;
use crate::random::Random;

/// Key of the random generators of queries.
const QUERY_KEY: u64 = 0x7175_6572;

/// Statements of a stream of inserts or deletes; yields the rows of each.
#[derive(Debug, Clone)]
pub struct Statements {
    rows: u64,
    batch: u64,
}

impl Statements {
    /// Splits `rows` rows into statements of `batch` rows; the last may have fewer.
    pub fn new(rows: u64, batch: u64) -> Statements {
        Statements { rows, batch }
    }

    /// Returns the number of remaining statements.
    pub fn left(&self) -> u64 {
        self.rows.div_ceil(self.batch)
    }
}

impl Iterator for Statements {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let rows = self.rows.min(self.batch);
        self.rows -= rows;
        (rows > 0).then_some(rows)
    }
}

/// Queries of one client in one step.
#[derive(Debug, Clone)]
pub struct Queries {
    random: Random,
    /// Place of the first column of each index.
    first_columns: Vec<usize>,
}

impl Queries {
    /// Creates the queries of a client; `step` is the place of the step in the trial's list.
    pub fn new(config: &Config, first_columns: Vec<usize>, step: u64, client: u64) -> Queries {
        Queries {
            random: Random::keyed(config.seed, &[QUERY_KEY, step, client]),
            first_columns,
        }
    }

    /// Draws a range query: its index, each equally likely, and the first value of its first
    /// column.
    #[inline]
    pub fn range(&mut self, rows: &Rows) -> (usize, u64) {
        let index = self.random.below(self.first_columns.len() as u64) as usize;
        let start = rows.start_of_range(self.first_columns[index], &mut self.random);
        (index, start)
    }

    /// Draws an id of a query by primary key, from `low` up to (not including) `high`. A query may
    /// hold an id twice.
    #[inline]
    pub fn id(&mut self, (low, high): (u64, u64)) -> u64 {
        low + self.random.below(high - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_add_up_to_their_rows() {
        let statements: Vec<u64> = Statements::new(23, 10).collect();
        assert_eq!(statements, [10, 10, 3]);
        assert_eq!(Statements::new(23, 10).left(), 3);
        assert_eq!(Statements::new(20, 10).count(), 2);
        assert_eq!(Statements::new(0, 10).count(), 0);
    }
}
