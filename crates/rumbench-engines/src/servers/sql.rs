//! SQL of tables with columns and indexes, generated from their schema, for both servers.
//!
//! Texts are written in MariaDB's syntax, names in backticks and a `?` for each parameter;
//! [`Dialect::text`] converts them to PostgreSQL's. Numbers of rows are part of the text, so that a
//! plan made only once can use them. Parameters appear in the order in which they are given. A
//! bound of several columns takes some of them twice in MariaDB ([`bound_values`]), which has no
//! ranges over a comparison of rows.

use std::borrow::Cow;
use std::ops::Range;

use rumbench_core::tables::{Column, ColumnType, Path, Table, TableSchema, Value};

/// SQL dialect of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Postgres,
    /// MariaDB, with the storage form of its tables.
    Maria(Form),
}

/// Storage form of a MariaDB table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// InnoDB, pages as they are in memory.
    InnoDb,
    /// InnoDB, pages compressed by zlib into blocks of `kib` KiB.
    KeyBlocks { kib: u8 },
    /// InnoDB, pages compressed on write, with a hole in the file after each.
    PageCompressed { level: u8 },
    /// MyRocks.
    MyRocks,
    /// Alluvium.
    Alluvium,
}

impl Form {
    /// Returns engine and options of a new table.
    fn clause(self) -> String {
        match self {
            Form::InnoDb => "ENGINE=InnoDB".to_string(),
            Form::KeyBlocks { kib } => {
                format!("ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE={kib}")
            }
            Form::PageCompressed { level } => {
                format!("ENGINE=InnoDB PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL={level}")
            }
            Form::MyRocks => "ENGINE=ROCKSDB".to_string(),
            Form::Alluvium => "ENGINE=ALLUVIUM".to_string(),
        }
    }
}

/// Longest byte column, in bytes, that MariaDB stores inside its row.
const VARBINARY_MAX: u32 = 1024;

impl Dialect {
    /// Converts a text to this server's syntax.
    pub(super) fn text(self, text: &str) -> String {
        if self != Dialect::Postgres {
            return text.to_string();
        }
        let mut out = String::with_capacity(text.len());
        let mut parameters = 0;
        for letter in text.chars() {
            match letter {
                '`' => out.push('"'),
                '?' => {
                    parameters += 1;
                    out += &format!("${parameters}");
                }
                other => out.push(other),
            }
        }
        out
    }

    fn column(self, column: &Column) -> Cow<'static, str> {
        let of = match (self, column.of) {
            // PostgreSQL's only unsigned number; 4 bytes, as on the other server.
            (Dialect::Postgres, ColumnType::U32) => "oid",
            (Dialect::Postgres, ColumnType::U64 | ColumnType::I64) => "bigint",
            (Dialect::Postgres, ColumnType::Bytes) => "bytea",
            (Dialect::Maria(_), ColumnType::U32) => "INT UNSIGNED",
            (Dialect::Maria(_), ColumnType::U64) => "BIGINT UNSIGNED",
            (Dialect::Maria(_), ColumnType::I64) => "BIGINT",
            (Dialect::Maria(_), ColumnType::Bytes) => match column.bytes_max {
                // MariaDB sorts pointers to blobs, in files.
                Some(most @ ..=VARBINARY_MAX) => return format!("VARBINARY({most})").into(),
                _ => "MEDIUMBLOB",
            },
        };
        of.into()
    }

    /// Returns the clause that follows the columns of a new table.
    pub(super) fn table_options(self) -> String {
        match self {
            Dialect::Postgres => String::new(),
            // MyRocks needs byte columns in an index to compare as bytes.
            Dialect::Maria(form) => format!(" {} DEFAULT COLLATE latin1_bin", form.clause()),
        }
    }
}

/// Parameters that determine the text of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ScanShape {
    pub(super) path: Path,
    /// Number of values of the lower bound.
    pub(super) from: usize,
    /// Number of values of the upper bound.
    pub(super) to: usize,
    pub(super) reverse: bool,
    /// Maximum rows to return; `None` for all.
    pub(super) limit: Option<usize>,
}

/// Table that holds the description of the schema.
pub(super) const CATALOG_TABLE: &str = "rumbench_catalog";
/// Statement that creates the table for the schema's description.
pub(super) const CREATE_CATALOG: &str =
    "CREATE TABLE IF NOT EXISTS rumbench_catalog (tables_of TEXT NOT NULL)";
pub(super) const READ_CATALOG: &str = "SELECT tables_of FROM rumbench_catalog";

/// Needs no escapes: names are letters, digits, and a few signs, none of which ends a text.
pub(super) fn write_catalog(description: &str) -> String {
    format!("INSERT INTO rumbench_catalog (tables_of) VALUES ('{description}')")
}

pub(super) fn create_tables(dialect: Dialect, schema: &TableSchema) -> Vec<String> {
    let create = |table: &Table| {
        let columns: Vec<String> = table
            .columns
            .iter()
            .map(|column| format!("`{}` {} NOT NULL", column.name, dialect.column(column)))
            .collect();
        dialect.text(&format!(
            "CREATE TABLE IF NOT EXISTS `{}` ({}, PRIMARY KEY ({})){}",
            table.name,
            columns.join(", "),
            key(table),
            dialect.table_options()
        ))
    };
    schema.tables().iter().map(create).collect()
}

/// Returns the statement that creates the first of these indexes, or all of them, and the next
/// index to create. InnoDB and Alluvium build all of them in one pass over the rows. MyRocks would
/// need memory for all sorts at once, and PostgreSQL has no such statement. Index entries also
/// return the primary key: MariaDB's engines append it themselves.
pub(super) fn create_indexes(
    dialect: Dialect,
    table: &Table,
    indexes: Range<usize>,
) -> (String, usize) {
    let name = |index: usize| table.index_name(index);
    let columns = |index: usize| names(table, index_columns(dialect, table, index));
    if matches!(dialect, Dialect::Maria(Form::MyRocks) | Dialect::Postgres) {
        let index = indexes.start;
        let text = format!(
            "CREATE INDEX IF NOT EXISTS `{}` ON `{}` ({})",
            name(index),
            table.name,
            columns(index)
        );
        return (dialect.text(&text), index + 1);
    }
    let add = |index| {
        format!(
            "ADD INDEX IF NOT EXISTS `{}` ({})",
            name(index),
            columns(index)
        )
    };
    let all: Vec<String> = indexes.clone().map(add).collect();
    let text = format!("ALTER TABLE `{}` {}", table.name, all.join(", "));
    (text, indexes.end)
}

/// Returns the columns of an index. PostgreSQL's are followed by the missing columns of the primary
/// key; MariaDB's engines append them implicitly.
fn index_columns(dialect: Dialect, table: &Table, index: usize) -> Vec<usize> {
    let mut columns = table.indexes[index].columns.clone();
    if dialect == Dialect::Postgres {
        let key =
            (0..table.key_columns).filter(|place| !table.indexes[index].columns.contains(place));
        columns.extend(key);
    }
    columns
}

pub(super) fn insert(dialect: Dialect, table: &Table, rows: usize) -> String {
    let columns = table.columns.len();
    let row = format!("({})", parameters(columns));
    dialect.text(&format!(
        "INSERT INTO `{}` ({}) VALUES {}",
        table.name,
        names(table, 0..columns),
        vec![row; rows].join(", ")
    ))
}

/// Updates all columns of an existing row. Parameters: first the non-key columns, then the key.
pub(super) fn replace(dialect: Dialect, table: &Table) -> String {
    let columns = table.columns.iter().skip(table.key_columns);
    let columns: Vec<String> = columns
        .map(|column| format!("`{}` = ?", column.name))
        .collect();
    dialect.text(&format!(
        "UPDATE `{}` SET {} WHERE {}",
        table.name,
        columns.join(", "),
        key_is(table)
    ))
}

pub(super) fn delete(dialect: Dialect, table: &Table) -> String {
    dialect.text(&format!(
        "DELETE FROM `{}` WHERE {}",
        table.name,
        key_is(table)
    ))
}

/// Deletes the first rows at or after a key. PostgreSQL has no limit in deletes.
pub(super) fn delete_first(dialect: Dialect, table: &Table, from: usize, rows: usize) -> String {
    let (name, key) = (&table.name, key(table));
    let bound = match from {
        0 => String::new(),
        _ => format!(" WHERE {}", bound(dialect, table, 0..from, '>', true)),
    };
    let first = format!("{bound} ORDER BY {key} LIMIT {rows}");
    dialect.text(&match dialect {
        Dialect::Maria(_) => format!("DELETE FROM `{name}`{first}"),
        Dialect::Postgres => {
            format!("DELETE FROM `{name}` WHERE ({key}) IN (SELECT {key} FROM `{name}`{first})")
        }
    })
}

pub(super) fn update(dialect: Dialect, table: &Table, column: usize, adds: bool) -> String {
    let column = &table.columns[column];
    let name = &column.name;
    let value = match (adds, column.of, dialect) {
        (false, _, _) => "?".to_string(),
        // Wraps around as the type does.
        (true, ColumnType::U32, Dialect::Postgres) => {
            format!("((`{name}`::bigint + ?) & 4294967295)::oid")
        }
        // An unsigned number does not accept a negative addend.
        (true, ColumnType::U32, Dialect::Maria(_)) => {
            format!("(CAST(`{name}` AS SIGNED) + ?) & 4294967295")
        }
        (true, ColumnType::U64, Dialect::Maria(_)) => format!("CAST(`{name}` AS SIGNED) + ?"),
        (true, _, _) => format!("`{name}` + ?"),
    };
    dialect.text(&format!(
        "UPDATE `{}` SET `{name}` = {value} WHERE {}",
        table.name,
        key_is(table)
    ))
}

/// Selects rows with any of `keys` keys.
pub(super) fn get(dialect: Dialect, table: &Table, keys: usize) -> String {
    let any = match (keys, table.key_columns) {
        (1, _) => key_is(table),
        (_, 1) => format!("{} IN ({})", key(table), parameters(keys)),
        _ => vec![format!("({})", key_is(table)); keys].join(" OR "),
    };
    dialect.text(&format!(
        "SELECT {} FROM `{}` WHERE {any}",
        names(table, 0..table.columns.len()),
        table.name
    ))
}

pub(super) fn scan(dialect: Dialect, table: &Table, shape: ScanShape) -> String {
    let order: Vec<usize> = table.path_columns(shape.path).collect();
    let (answer, index) = match shape.path {
        Path::Primary => (names(table, 0..table.columns.len()), "PRIMARY".to_string()),
        Path::Index(index) => (names(table, order.iter().copied()), table.index_name(index)),
    };
    // As the reference clients do: PostgreSQL has no way to name an index.
    let forced = match dialect {
        Dialect::Maria(_) => format!(" FORCE INDEX (`{index}`)"),
        Dialect::Postgres => String::new(),
    };
    let mut bounds = Vec::new();
    if shape.from > 0 {
        let columns = order[..shape.from].iter().copied();
        bounds.push(bound(dialect, table, columns, '>', true));
    }
    if shape.to > 0 {
        let columns = order[..shape.to].iter().copied();
        bounds.push(bound(dialect, table, columns, '<', false));
    }
    let bounds = match bounds.len() {
        0 => String::new(),
        _ => format!(" WHERE {}", bounds.join(" AND ")),
    };
    let direction = if shape.reverse { " DESC" } else { "" };
    let order: Vec<String> = order
        .iter()
        .map(|place| format!("`{}`{direction}", table.columns[*place].name))
        .collect();
    let limit = shape
        .limit
        .map_or(String::new(), |limit| format!(" LIMIT {limit}"));
    dialect.text(&format!(
        "SELECT {answer} FROM `{}`{forced}{bounds} ORDER BY {}{limit}",
        table.name,
        order.join(", ")
    ))
}

/// Compares the first columns of an order with as many values; `side` is `<` or `>`.
fn bound(
    dialect: Dialect,
    table: &Table,
    columns: impl IntoIterator<Item = usize>,
    side: char,
    inclusive: bool,
) -> String {
    let columns: Vec<String> = columns
        .into_iter()
        .map(|place| format!("`{}`", table.columns[place].name))
        .collect();
    let equal = if inclusive { "=" } else { "" };
    let (Some(first), Some(last)) = (columns.first(), columns.last()) else {
        return "TRUE".to_string();
    };
    if columns.len() == 1 {
        return format!("{first} {side}{equal} ?");
    }
    if dialect == Dialect::Postgres {
        let values = parameters(columns.len());
        return format!("({}) {side}{equal} ({values})", columns.join(", "));
    }
    let mut nested = format!("{last} {side}{equal} ?");
    for column in columns.iter().rev().skip(1) {
        nested = format!("({column} {side} ? OR ({column} = ? AND {nested}))");
    }
    // The first condition alone is a range of the index.
    format!("{first} {side}= ? AND {nested}")
}

/// Returns the values of a bound in the order of its parameters.
pub(super) fn bound_values<'v, 'a>(
    dialect: Dialect,
    values: &'v [Value<'a>],
) -> impl Iterator<Item = Value<'a>> + use<'v, 'a> {
    let expanded = dialect != Dialect::Postgres && values.len() > 1;
    let last = values.len().saturating_sub(1);
    let leading = values.first().copied().filter(|_| expanded);
    let rest = values.iter().enumerate().flat_map(move |(place, value)| {
        let times = if expanded && place < last { 2 } else { 1 };
        std::iter::repeat_n(*value, times)
    });
    leading.into_iter().chain(rest)
}

fn key(table: &Table) -> String {
    names(table, 0..table.key_columns)
}

pub(super) fn key_is(table: &Table) -> String {
    let columns: Vec<String> = table.columns[..table.key_columns]
        .iter()
        .map(|column| format!("`{}` = ?", column.name))
        .collect();
    columns.join(" AND ")
}

pub(super) fn names(table: &Table, places: impl IntoIterator<Item = usize>) -> String {
    let names: Vec<String> = places
        .into_iter()
        .map(|place| format!("`{}`", table.columns[place].name))
        .collect();
    names.join(", ")
}

pub(super) fn parameters(count: usize) -> String {
    vec!["?"; count].join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use rumbench_core::tables::Index;

    use super::*;

    const MARIA: Dialect = Dialect::Maria(Form::InnoDb);

    pub(in crate::servers) fn table() -> Table {
        Table {
            name: "t".to_string(),
            columns: vec![
                Column::new("a", ColumnType::U64),
                Column::new("b", ColumnType::U32),
                Column::new("c", ColumnType::Bytes),
            ],
            key_columns: 2,
            indexes: vec![Index {
                name: "b".to_string(),
                columns: vec![1],
            }],
            expect_hits: true,
        }
    }

    const SHAPE: ScanShape = ScanShape {
        path: Path::Index(0),
        from: 3,
        to: 1,
        reverse: true,
        limit: Some(7),
    };

    #[test]
    fn scans_name_their_index_and_bounds_of_several_columns_are_ranges() {
        assert_eq!(
            scan(MARIA, &table(), SHAPE),
            "SELECT `b`, `a`, `b` FROM `t` FORCE INDEX (`t_b`) WHERE `b` >= ? AND (`b` > ? OR (`b` = ? AND \
             (`a` > ? OR (`a` = ? AND `b` >= ?)))) AND `b` < ? ORDER BY `b` DESC, `a` DESC, `b` DESC LIMIT 7"
        );
        assert_eq!(
            scan(Dialect::Postgres, &table(), SHAPE),
            "SELECT \"b\", \"a\", \"b\" FROM \"t\" WHERE (\"b\", \"a\", \"b\") >= ($1, $2, $3) AND \"b\" < $4 \
             ORDER BY \"b\" DESC, \"a\" DESC, \"b\" DESC LIMIT 7"
        );
    }

    #[test]
    fn short_bytes_are_part_of_their_row() {
        assert_eq!(MARIA.column(&Column::short("c", 119)), "VARBINARY(119)");
        assert_eq!(MARIA.column(&Column::short("c", 2000)), "MEDIUMBLOB");
        assert_eq!(
            MARIA.column(&Column::new("c", ColumnType::Bytes)),
            "MEDIUMBLOB"
        );
        assert_eq!(Dialect::Postgres.column(&Column::short("c", 119)), "bytea");
    }

    #[test]
    fn there_are_as_many_values_as_parameters() {
        let values = [1, 2, 3].map(Value::Unsigned);
        for count in 0..=3 {
            for dialect in [MARIA, Dialect::Postgres] {
                let text = bound(dialect, &table(), 0..count, '>', true);
                let given = bound_values(dialect, &values[..count]).count();
                assert_eq!(text.matches('?').count(), given, "{text}");
            }
        }
        let order: Vec<u64> = bound_values(MARIA, &values)
            .filter_map(Value::unsigned)
            .collect();
        assert_eq!(order, [1, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn an_index_holds_the_primary_key_once() {
        let one = |dialect| create_indexes(dialect, &table(), 0..1);
        assert_eq!(
            one(Dialect::Postgres),
            (
                "CREATE INDEX IF NOT EXISTS \"t_b\" ON \"t\" (\"b\", \"a\")".to_string(),
                1
            )
        );
        assert_eq!(
            one(Dialect::Maria(Form::MyRocks)),
            (
                "CREATE INDEX IF NOT EXISTS `t_b` ON `t` (`b`)".to_string(),
                1
            )
        );
        assert_eq!(
            one(MARIA),
            (
                "ALTER TABLE `t` ADD INDEX IF NOT EXISTS `t_b` (`b`)".to_string(),
                1
            )
        );
    }

    #[test]
    fn innodb_and_alluvium_build_all_indexes_at_once_and_the_others_one_after_the_other() {
        let mut table = table();
        table.indexes.push(table.indexes[0].clone());
        for dialect in [MARIA, Dialect::Maria(Form::Alluvium)] {
            let (text, next) = create_indexes(dialect, &table, 0..2);
            assert_eq!((text.matches("ADD INDEX").count(), next), (2, 2), "{text}");
        }
        for dialect in [Dialect::Postgres, Dialect::Maria(Form::MyRocks)] {
            let (text, next) = create_indexes(dialect, &table, 0..2);
            assert_eq!(
                (text.matches("CREATE INDEX").count(), next),
                (1, 1),
                "{text}"
            );
        }
    }

    #[test]
    fn deletes_of_the_first_rows_and_reads_of_several_keys() {
        assert_eq!(
            delete_first(Dialect::Postgres, &table(), 1, 5),
            "DELETE FROM \"t\" WHERE (\"a\", \"b\") IN (SELECT \"a\", \"b\" FROM \"t\" WHERE \"a\" >= $1 \
             ORDER BY \"a\", \"b\" LIMIT 5)"
        );
        assert_eq!(
            delete_first(MARIA, &table(), 0, 5),
            "DELETE FROM `t` ORDER BY `a`, `b` LIMIT 5"
        );
        assert!(
            get(MARIA, &table(), 2).ends_with("(`a` = ? AND `b` = ?) OR (`a` = ? AND `b` = ?)")
        );
        let one = Table {
            key_columns: 1,
            ..table()
        };
        assert!(get(Dialect::Postgres, &one, 3).ends_with("WHERE \"a\" IN ($1, $2, $3)"));
    }
}
