//! Columns of every table.

/// Number of columns of a table: id, k, c, pad.
pub const COLUMNS: usize = 4;
/// Position of the column id in a row.
pub const ID: usize = 0;
/// Position of the column k in a row.
pub const K: usize = 1;
/// Position of the column c in a row.
pub const C: usize = 2;
