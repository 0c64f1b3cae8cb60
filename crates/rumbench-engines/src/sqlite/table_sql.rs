//! SQL of tables with columns and indexes, built from their schema. Names are already checked to
//! consist of letters, digits and `_`.

use rumbench_core::tables::{ColumnType, Path, Table, TableSchema};

/// Counts the indexes of a table that a statement created.
pub(super) const COUNT_INDEXES: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?1 AND sql IS NOT NULL";

/// Properties of a scan that determine its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ScanShape {
    pub(super) path: Path,
    /// Number of values in the lower bound.
    pub(super) from: usize,
    /// Number of values in the upper bound.
    pub(super) to: usize,
    pub(super) reverse: bool,
}

/// Table of the schema's description, kept in the database.
pub(super) const CREATE_CATALOG: &str = "CREATE TABLE IF NOT EXISTS catalog (schema TEXT NOT NULL)";
pub(super) const READ_CATALOG: &str = "SELECT schema FROM catalog";
pub(super) const WRITE_CATALOG: &str = "INSERT INTO catalog (schema) VALUES (?1)";

pub(super) fn create_tables(schema: &TableSchema) -> String {
    schema.tables().iter().map(create_table).collect()
}

fn create_table(table: &Table) -> String {
    let columns: Vec<String> = table
        .columns
        .iter()
        .enumerate()
        .map(|(place, column)| {
            let of = match column.of {
                ColumnType::Bytes => "BLOB",
                ColumnType::U32 | ColumnType::U64 | ColumnType::I64 => "INTEGER",
            };
            // A single number is the row id only if the column's declaration includes the key.
            let key = if place == 0 && table.key_columns == 1 {
                " PRIMARY KEY"
            } else {
                ""
            };
            format!("{} {of} NOT NULL{key}", column.name)
        })
        .collect();
    let (name, columns) = (&table.name, columns.join(", "));
    match (table.key_columns, table.columns[0].of) {
        (1, ColumnType::Bytes) => {
            format!("CREATE TABLE IF NOT EXISTS {name} ({columns}) WITHOUT ROWID;\n")
        }
        (1, _) => format!("CREATE TABLE IF NOT EXISTS {name} ({columns});\n"),
        _ => format!(
            "CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY ({})) WITHOUT ROWID;\n",
            key(table)
        ),
    }
}

pub(super) fn create_index(table: &Table, index: usize) -> String {
    let columns = table.indexes[index].columns.iter().copied();
    format!(
        "CREATE INDEX IF NOT EXISTS {} ON {} ({})",
        table.index_name(index),
        table.name,
        names(table, columns)
    )
}

pub(super) fn insert(table: &Table) -> String {
    let all = 0..table.columns.len();
    format!(
        "INSERT INTO {} ({}) VALUES ({})",
        table.name,
        names(table, all.clone()),
        parameters(1, all.len())
    )
}

/// Inserts or replaces a row. The parameters are all columns in their order.
pub(super) fn put(table: &Table) -> String {
    let columns = table.columns[table.key_columns..].iter();
    let columns: Vec<String> = columns
        .map(|column| format!("{0} = excluded.{0}", column.name))
        .collect();
    format!(
        "{} ON CONFLICT ({}) DO UPDATE SET {}",
        insert(table),
        key(table),
        columns.join(", ")
    )
}

/// Updates an existing row. The parameters are all columns in their order.
pub(super) fn replace(table: &Table) -> String {
    let columns = table.columns.iter().enumerate().skip(table.key_columns);
    let columns: Vec<String> = columns
        .map(|(place, column)| format!("{} = ?{}", column.name, place + 1))
        .collect();
    format!(
        "UPDATE {} SET {} WHERE ({}) = ({})",
        table.name,
        columns.join(", "),
        key(table),
        parameters(1, table.key_columns)
    )
}

pub(super) fn delete(table: &Table) -> String {
    format!(
        "DELETE FROM {} WHERE ({}) = ({})",
        table.name,
        key(table),
        parameters(1, table.key_columns)
    )
}

/// Deletes the first rows from a key on, in the form that the reference client uses for servers
/// without a limit in deletes.
pub(super) fn delete_first(table: &Table, from: usize) -> String {
    let (name, key) = (&table.name, key(table));
    let bound = match from {
        0 => String::new(),
        _ => format!("WHERE ({key}) >= ({})", parameters(1, from)),
    };
    let limit = from + 1;
    format!(
        "DELETE FROM {name} WHERE ({key}) IN (SELECT {key} FROM {name} {bound} ORDER BY {key} LIMIT ?{limit})"
    )
}

pub(super) fn update(table: &Table, column: usize, adds: bool) -> String {
    let column = &table.columns[column];
    let name = &column.name;
    let value = match (adds, column.of) {
        (false, _) => "?1".to_owned(),
        // Wraps around as the type does.
        (true, ColumnType::U32) => format!("({name} + ?1) & 4294967295"),
        (true, _) => format!("{name} + ?1"),
    };
    format!(
        "UPDATE {} SET {name} = {value} WHERE ({}) = ({})",
        table.name,
        key(table),
        parameters(2, table.key_columns)
    )
}

pub(super) fn get(table: &Table) -> String {
    format!(
        "SELECT {} FROM {} WHERE ({}) = ({})",
        names(table, 0..table.columns.len()),
        table.name,
        key(table),
        parameters(1, table.key_columns)
    )
}

pub(super) fn scan(table: &Table, shape: ScanShape) -> String {
    let ScanShape { path, from, to, .. } = shape;
    let order: Vec<usize> = table.path_columns(path).collect();
    let (answer, index) = match path {
        Path::Primary => (names(table, 0..table.columns.len()), String::new()),
        Path::Index(index) => (
            names(table, order.iter().copied()),
            format!(" INDEXED BY {}", table.index_name(index)),
        ),
    };
    let bound = |values: usize, compare: &str, first: usize| {
        let columns = names(table, order[..values].iter().copied());
        format!("({columns}) {compare} ({})", parameters(first, values))
    };
    let mut bounds = Vec::new();
    if from > 0 {
        bounds.push(bound(from, ">=", 1));
    }
    if to > 0 {
        bounds.push(bound(to, "<", 1 + from));
    }
    let bounds = match bounds.len() {
        0 => String::new(),
        _ => format!(" WHERE {}", bounds.join(" AND ")),
    };
    let direction = if shape.reverse { " DESC" } else { "" };
    let order: Vec<String> = order
        .iter()
        .map(|place| format!("{}{direction}", table.columns[*place].name))
        .collect();
    format!(
        "SELECT {answer} FROM {}{index}{bounds} ORDER BY {} LIMIT ?{}",
        table.name,
        order.join(", "),
        1 + from + to
    )
}

fn key(table: &Table) -> String {
    names(table, 0..table.key_columns)
}

fn names(table: &Table, places: impl Iterator<Item = usize>) -> String {
    let names: Vec<&str> = places
        .map(|place| table.columns[place].name.as_str())
        .collect();
    names.join(", ")
}

fn parameters(first: usize, count: usize) -> String {
    let parameters: Vec<String> = (first..first + count)
        .map(|number| format!("?{number}"))
        .collect();
    parameters.join(", ")
}
