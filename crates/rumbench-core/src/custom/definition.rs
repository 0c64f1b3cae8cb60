//! Content of the file of a custom workload: tables, and phases of operations on them.

use crate::tables::{Column, ColumnType, Index, Path, Table, TableSchema};
use crate::trial::{Pace, PhaseEnd};

/// Name of the primary key's column in every table.
pub const KEY: &str = "id";

/// A mistake in a file. Displayed as `FILE:LINE: MESSAGE`; the message states the mistake and the
/// allowed values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct DefinitionError {
    /// The file as the user named it.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// The mistake and the allowed values.
    pub message: String,
}

/// A workload as its file describes it; its parts are consistent.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Description in one sentence.
    pub description: String,
    /// Tables, at least one.
    pub tables: Vec<TableDef>,
    /// Phases in order; the first is the load.
    pub phases: Vec<PhaseDef>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDef {
    /// Name in the database.
    pub name: String,
    /// Rows that the load writes.
    pub rows: u64,
    /// Order of keys relative to the order of insertion.
    pub order: KeyOrder,
    /// Columns without the primary key.
    pub columns: Vec<ColumnDef>,
    /// Indexes: the name of each, and the positions of its columns in `columns`.
    pub indexes: Vec<(String, Vec<usize>)>,
}

/// Mapping from a row's position in the order of insertion to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// Keys are spread over the whole key space.
    Hashed,
    /// Keys ascend.
    Ordered,
}

/// One column other than the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDef {
    /// Name in the database.
    pub name: String,
    /// Distribution of its values.
    pub content: Content,
}

/// Distribution of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Numbers, uniformly drawn from `distinct` values.
    Number {
        /// Integer type.
        of: ColumnType,
        /// Number of different values.
        distinct: u64,
    },
    /// Bytes.
    Bytes {
        /// Length of the shortest value in bytes.
        min: u64,
        /// Length of the longest value in bytes; all lengths from `min` to `max` are equally
        /// likely.
        max: u64,
        /// Percentage of the bytes after the first eight that is random; the rest is constant.
        random_percent: u64,
    },
}

/// One phase.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseDef {
    /// Name in results.
    pub name: String,
    /// Kind of the phase.
    pub kind: PhaseKind,
}

/// Kind of a phase.
#[derive(Debug, Clone, PartialEq)]
pub enum PhaseKind {
    /// Writes the rows of all tables.
    Load {
        /// Rows of one transaction.
        batch: u64,
        /// Number of clients that share the rows.
        clients: u32,
    },
    /// Builds the indexes. Without such a phase they exist before the load.
    Index,
    /// Lets the engine work off its backlog.
    Settle,
    /// Runs a mix of operations.
    Run(RunDef),
}

/// A mix of operations.
#[derive(Debug, Clone, PartialEq)]
pub struct RunDef {
    /// End of the phase.
    pub end: PhaseEnd,
    /// Number of clients.
    pub clients: u32,
    /// Rate of all clients together; `None`: as fast as they can.
    pub pace: Option<Pace>,
    /// True if its operations are recorded in the results; false for a warm-up.
    pub recorded: bool,
    /// Operations; their percents add up to 100.
    pub operations: Vec<OperationDef>,
}

/// One operation of a mix.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationDef {
    /// Name in results.
    pub name: String,
    /// Action on the rows.
    pub action: Action,
    /// Index of its table.
    pub table: usize,
    /// Percentage of the mix.
    pub percent: f64,
    /// Distribution of the rows that it selects.
    pub keys: Keys,
    /// Fewest and most rows of one operation, equally likely; (1, 1) for most operations.
    pub rows: (u64, u64),
}

/// Action of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reads rows by key.
    Read,
    /// Reads keys that no row has.
    ReadMissing,
    /// Overwrites columns of a row.
    Update(Written),
    /// Inserts new rows as one transaction.
    Insert,
    /// Removes a row.
    Delete,
    /// Reads rows in order, starting at one row.
    Scan(Path),
    /// Reads a row, then overwrites columns of it.
    ReadModifyWrite(Written),
}

/// Columns that an update writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// One of these columns, each equally likely. The positions refer to [`TableDef::columns`],
    /// without the key.
    One(Vec<usize>),
    /// All columns.
    Row,
}

/// Distribution of the rows that an operation selects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keys {
    /// Each row is equally likely.
    Uniform,
    /// A power law of the rank.
    Zipfian {
        /// Exponent of the power law.
        theta: f64,
        /// True if ranks are spread over the table; false if the first row is the most popular.
        scrambled: bool,
    },
    /// A power law of the age; the newest rows are the most popular.
    Latest {
        /// Exponent of the power law.
        theta: f64,
    },
    /// One row after another, from a different start for each client; a delete takes the oldest
    /// row.
    Sequential,
    /// A share of the operations goes to a share of the rows, the first of the table.
    Hotspot {
        /// Share of the rows, from 0 to 1.
        rows: f64,
        /// Share of the operations, from 0 to 1.
        operations: f64,
    },
}

impl TableDef {
    /// Returns the table as engines see it.
    pub fn table(&self, expect_hits: bool) -> Table {
        let own = self.columns.iter().map(|column| {
            let of = match column.content {
                Content::Number { of, .. } => of,
                Content::Bytes { .. } => ColumnType::Bytes,
            };
            Column::new(&column.name, of)
        });
        let indexes = self.indexes.iter().map(|(name, columns)| Index {
            name: name.clone(),
            // The key comes first.
            columns: columns.iter().map(|place| place + 1).collect(),
        });
        Table {
            name: self.name.clone(),
            columns: std::iter::once(Column::new(KEY, ColumnType::U64))
                .chain(own)
                .collect(),
            key_columns: 1,
            indexes: indexes.collect(),
            expect_hits,
        }
    }

    /// Returns the average number of bytes of a row and its index entries.
    pub fn row_bytes(&self) -> u64 {
        let width = |place: &usize| match self.columns[*place].content {
            Content::Number {
                of: ColumnType::U32,
                ..
            } => 4,
            Content::Number { .. } => 8,
            Content::Bytes { min, max, .. } => (min + max) / 2,
        };
        let row: u64 = (0..self.columns.len()).map(|place| width(&place)).sum();
        let entry = |columns: &Vec<usize>| 8 + columns.iter().map(width).sum::<u64>();
        8 + row + self.indexes.iter().map(|(_, of)| entry(of)).sum::<u64>()
    }
}

impl Definition {
    /// Returns the operations of all phases.
    pub fn operations(&self) -> impl Iterator<Item = &OperationDef> {
        self.phases.iter().flat_map(|phase| match &phase.kind {
            PhaseKind::Run(run) => &run.operations[..],
            _ => &[],
        })
    }

    /// Returns the tables as engines see them.
    ///
    /// # Errors A message that names the invalid table, column or index.
    pub fn schema(&self) -> Result<&'static TableSchema, String> {
        let misses = |table: usize| {
            let mut on_it = self.operations().filter(|one| one.table == table);
            on_it.any(|one| one.action == Action::ReadMissing)
        };
        let tables = self.tables.iter().enumerate();
        TableSchema::new(
            tables
                .map(|(place, table)| table.table(!misses(place)))
                .collect(),
        )
    }

    /// Returns true if a separate phase builds the indexes.
    pub fn builds_indexes(&self) -> bool {
        let mut phases = self.phases.iter();
        phases.any(|phase| phase.kind == PhaseKind::Index)
    }
}
