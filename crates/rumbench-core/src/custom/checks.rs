//! State shared by all clients of a trial, and the checks of each row read, of tables after the
//! load and at the end.

use super::definition::Definition;
use super::population::{Population, State};
use super::rows::{Known, Rows};
use super::versions::Versions;
use crate::error::{EngineError, Result};
use crate::random::Random;
use crate::tables::{Path, Range, RowBatch, TableConnection, TableId, TableSchema, Value};

/// Number of rows that are read back after a load.
const SAMPLE_ROWS: u64 = 1000;
/// Key of the random generator of the sample.
const SAMPLE_KEY: u64 = 0x7361_6d70;
/// Most versions that a number is compared with; if more are possible, any number of the column's
/// range is accepted.
const VERSIONS_TRIED: u32 = 64;

/// State shared by all clients of a trial.
pub(super) struct Shared {
    pub(super) definition: Definition,
    pub(super) schema: &'static TableSchema,
    pub(super) rows: Rows,
    pub(super) populations: Vec<Population>,
    pub(super) versions: Vec<Versions>,
    pub(super) seed: u64,
    pub(super) backoff: fn(u32),
}

pub(super) fn wrong(message: String) -> EngineError {
    EngineError::Wrong(message)
}

impl Shared {
    pub(super) fn name(&self, table: usize) -> &str {
        &self.definition.tables[table].name
    }

    pub(super) fn missing(&self, table: usize, row: u64) -> EngineError {
        wrong(format!("row {row} of {} is missing", self.name(table)))
    }

    /// Checks the value of one column of a row. `column` does not count the key, and `oldest` is
    /// the oldest version allowed.
    #[inline]
    pub(super) fn check_value(
        &self,
        (table, row): (usize, u64),
        column: usize,
        oldest: u32,
        value: Value<'_>,
    ) -> Result<()> {
        let versions = &self.versions[table];
        let known = self.rows.know((table, row), column, value);
        let newest = versions.newest(row, column);
        let good = match known {
            Known::Foreign => false,
            Known::Version(found) => (oldest..=newest).contains(&found),
            Known::Number if newest - oldest.min(newest) >= VERSIONS_TRIED => true,
            Known::Number => {
                let mut possible = oldest..=newest;
                possible.any(|one| self.rows.number((table, row), column, one) == Some(value))
            }
        };
        if good {
            return Ok(());
        }
        let place = format!(
            "row {row} of {}, column {}",
            self.name(table),
            self.definition.tables[table].columns[column].name
        );
        Err(wrong(match known {
            Known::Version(found) => {
                format!("{place}, has version {found}; only {oldest} to {newest} can be there")
            }
            Known::Number | Known::Foreign => {
                format!("{place}, has a value that was never written there")
            }
        }))
    }

    /// Checks a whole row. `oldest` returns the oldest version allowed in a column.
    #[inline]
    pub(super) fn check_row(
        &self,
        (table, row): (usize, u64),
        oldest: impl Fn(usize) -> u32,
        values: &[Value<'_>],
    ) -> Result<()> {
        let columns = self.rows.columns(table);
        let name = || self.name(table);
        let Some((key, values)) = values
            .split_first()
            .filter(|(_, rest)| rest.len() == columns)
        else {
            return Err(wrong(format!("row {row} of {} lacks columns", name())));
        };
        if *key != self.rows.key(table, row) {
            return Err(wrong(format!(
                "the read of row {row} of {} found another",
                name()
            )));
        }
        let mut values = values.iter().enumerate();
        values.try_for_each(|(column, value)| {
            self.check_value((table, row), column, oldest(column), *value)
        })
    }

    /// Checks a table after the load: counts its rows and reads back the first, the last and random
    /// ones.
    pub(super) fn check_load(
        &self,
        connection: &mut dyn TableConnection,
        table: usize,
    ) -> Result<()> {
        let wanted = self.definition.tables[table].rows;
        let found = connection.count(TableId(table))?;
        if found != wanted {
            let name = self.name(table);
            return Err(wrong(format!(
                "table {name} holds {found} rows after the load of {wanted}"
            )));
        }
        let mut random = Random::keyed(self.seed, &[SAMPLE_KEY, table as u64]);
        let some = (0..SAMPLE_ROWS).map(|_| random.below(wanted));
        let rows: Vec<u64> = [0, wanted - 1].into_iter().chain(some).collect();
        let mut keys = RowBatch::new(1);
        rows.iter()
            .for_each(|row| keys.push(self.rows.key(table, *row)));
        let mut bad = Ok(());
        connection.get(TableId(table), &keys, &mut |place, values| {
            let row = rows[place];
            let checked = match values {
                Some(values) => self.check_row((table, row), |_| 0, values),
                None => Err(self.missing(table, row)),
            };
            if bad.is_ok() {
                bad = checked;
            }
        })?;
        bad
    }

    /// Walks the whole table at the end and returns its number of rows. Each row that must be there
    /// occurs once, in key order and in an allowed version.
    pub(super) fn check_all(
        &self,
        connection: &mut dyn TableConnection,
        table: usize,
    ) -> Result<u64> {
        let (population, versions) = (&self.populations[table], &self.versions[table]);
        let (mut present, mut unsure, mut last) = (0, 0, None);
        let mut bad = Ok(());
        connection.scan(TableId(table), Path::Primary, Range::ALL, &mut |values| {
            let key = values.first().and_then(|key| key.unsigned());
            let row = self.row_of(table, values);
            let open = row < population.bounds().1 && !population.is_exact();
            match population.state(row) {
                State::Present if key > last => present += 1,
                State::Absent | State::Leaving if key > last && open => unsure += 1,
                _ => {
                    bad = Err(wrong(format!(
                        "table {} holds a row with the key {key:?} out of order, or that is not to be there",
                        self.name(table)
                    )));
                }
            }
            if bad.is_ok() {
                bad = self.check_row((table, row), |column| versions.oldest(row, column), values);
            }
            last = key;
            bad.is_ok()
        })?;
        bad?;
        let wanted = population.count();
        if present == wanted {
            Ok(present + unsure)
        } else {
            Err(wrong(format!(
                "table {} holds {present} of the {wanted} rows that must be there",
                self.name(table)
            )))
        }
    }

    /// Returns the row of the key that comes first among these values.
    #[inline]
    pub(super) fn row_of(&self, table: usize, values: &[Value<'_>]) -> u64 {
        let key = values.first().copied().unwrap_or(Value::Bytes(b""));
        self.rows.number_of(table, key)
    }
}
