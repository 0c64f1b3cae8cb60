//! Tables of the suite for table stores, and batches of their rows.

use Value::{Signed, Unsigned};
use rumbench_core::tables::{
    Column, ColumnType, Index, Path, RowBatch, Table, TableId, TableSchema, Value,
};

/// Table with two indexes.
pub(super) const PLAIN: TableId = TableId(0);
/// Table with a key of two columns.
pub(super) const PAIRS: TableId = TableId(1);
/// Indexes of [`PLAIN`].
pub(super) const BY_K: Path = Path::Index(0);
pub(super) const BY_K_AND_A: Path = Path::Index(1);

/// Tables that the suite needs; open the engine with these.
pub fn table_schema() -> &'static TableSchema {
    let table = |name: &str, key_columns, indexes| Table {
        name: name.to_owned(),
        columns: vec![
            Column::new("id", ColumnType::U64),
            Column::new("k", ColumnType::U32),
            Column::new("a", ColumnType::I64),
            Column::new("c", ColumnType::Bytes),
        ],
        key_columns,
        indexes,
        expect_hits: true,
    };
    let index = |name: &str, columns: &[usize]| Index {
        name: name.to_owned(),
        columns: columns.to_vec(),
    };
    let tables = vec![
        table("plain", 1, vec![index("k", &[1]), index("ka", &[1, 2])]),
        table("pairs", 2, vec![index("a", &[2])]),
    ];
    TableSchema::new(tables).unwrap_or_else(|error| panic!("{error}"))
}

/// Row of either table: id, k, a, c.
pub(super) type Row = (u64, u32, i64, &'static [u8]);

pub(super) fn batch(rows: &[Row]) -> RowBatch {
    let mut batch = RowBatch::new(4);
    for (id, k, a, c) in rows {
        batch.push(Unsigned(*id));
        batch.push(Unsigned(u64::from(*k)));
        batch.push(Signed(*a));
        batch.push(Value::Bytes(c));
    }
    batch
}
