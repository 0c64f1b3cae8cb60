//! What a file of an own workload can say: tables, and phases of operations on them.

use crate::tables::{Column, ColumnType, Index, Path, Table, TableSchema};
use crate::trial::{Pace, PhaseEnd};

/// Name of the primary key's column in every table.
pub const KEY: &str = "id";

/// A file cannot be followed. Displayed as `FILE:LINE: what is wrong and what is allowed`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct DefinitionError {
    /// The file as the user named it.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and what is allowed.
    pub message: String,
}

/// A workload as its file describes it; everything in it fits together.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// One sentence.
    pub description: String,
    /// At least one.
    pub tables: Vec<TableDef>,
    /// In order; the first is the load.
    pub phases: Vec<PhaseDef>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDef {
    /// Name in the database.
    pub name: String,
    /// Rows that the load writes.
    pub rows: u64,
    /// How keys follow from the order of insertion.
    pub order: KeyOrder,
    /// The columns behind the primary key.
    pub columns: Vec<ColumnDef>,
    /// Name and places, among `columns`, of each index.
    pub indexes: Vec<(String, Vec<usize>)>,
}

/// How the key of a row follows from its place in the order of insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// Spread over all keys.
    Hashed,
    /// Ascending.
    Ordered,
}

/// One column behind the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDef {
    /// Name in the database.
    pub name: String,
    /// What its values are.
    pub content: Content,
}

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Numbers, each of so many equally likely.
    Number {
        /// A type of numbers.
        of: ColumnType,
        /// Different values.
        distinct: u64,
    },
    /// Bytes.
    Bytes {
        /// Shortest value.
        min: u64,
        /// Longest value; lengths between are equally likely.
        max: u64,
        /// Share of the bytes behind the first eight that is random; the rest is constant.
        random_percent: u64,
    },
}

/// One phase.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseDef {
    /// Name in results.
    pub name: String,
    /// What it does.
    pub kind: PhaseKind,
}

/// What a phase does.
#[derive(Debug, Clone, PartialEq)]
pub enum PhaseKind {
    /// Writes the rows of all tables.
    Load {
        /// Rows of one transaction.
        batch: u64,
        /// Clients that share the rows.
        clients: u32,
    },
    /// Builds the indexes; without such a phase they are there before the load.
    Index,
    /// The engine pays its debt.
    Settle,
    /// A mix of operations.
    Run(RunDef),
}

/// A mix of operations.
#[derive(Debug, Clone, PartialEq)]
pub struct RunDef {
    /// When it ends.
    pub end: PhaseEnd,
    /// Clients.
    pub clients: u32,
    /// Rate of all clients together; `None`: as fast as they can.
    pub pace: Option<Pace>,
    /// Whether it is in the results; a warm-up is not.
    pub recorded: bool,
    /// Their percents add up to 100.
    pub operations: Vec<OperationDef>,
}

/// One operation of a mix.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationDef {
    /// Name in results.
    pub name: String,
    /// What it does.
    pub action: Action,
    /// Place of its table.
    pub table: usize,
    /// Share of the mix.
    pub percent: f64,
    /// Which rows.
    pub keys: Keys,
    /// Fewest and most rows of one operation, equally likely; most operations have one.
    pub rows: (u64, u64),
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reads rows by key.
    Read,
    /// Looks for keys that no row has.
    ReadMissing,
    /// Overwrites columns of a row.
    Update(Written),
    /// Writes new rows as one transaction.
    Insert,
    /// Removes a row.
    Delete,
    /// Reads rows in order from one on.
    Scan(Path),
    /// Reads a row, then overwrites columns of it.
    ReadModifyWrite(Written),
}

/// What an update writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// One column, each of these (places behind the key) equally likely.
    One(Vec<usize>),
    /// All of them.
    Row,
}

/// Which rows an operation goes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keys {
    /// Each equally likely.
    Uniform,
    /// By a power law of the rank.
    Zipfian {
        /// Its exponent.
        theta: f64,
        /// Whether ranks are spread over the table, instead of the first row being the most popular.
        scrambled: bool,
    },
    /// Newest rows most, by a power law of the age.
    Latest {
        /// Its exponent.
        theta: f64,
    },
    /// One after the other, each client from a place of its own; a delete takes the oldest.
    Sequential,
    /// A share of the operations goes to a share of the rows, the first ones.
    Hotspot {
        /// Share of the rows, from 0 to 1.
        rows: f64,
        /// Share of the operations, from 0 to 1.
        operations: f64,
    },
}

impl TableDef {
    /// The table as engines know it.
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

    /// Bytes of a row, on average, and of its index entries.
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
    /// The operations of all phases.
    pub fn operations(&self) -> impl Iterator<Item = &OperationDef> {
        self.phases.iter().flat_map(|phase| match &phase.kind {
            PhaseKind::Run(run) => &run.operations[..],
            _ => &[],
        })
    }

    /// The tables as engines know them.
    ///
    /// # Errors
    /// What of them cannot be.
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

    /// Whether a phase of their own builds the indexes.
    pub fn builds_indexes(&self) -> bool {
        let mut phases = self.phases.iter();
        phases.any(|phase| phase.kind == PhaseKind::Index)
    }
}
