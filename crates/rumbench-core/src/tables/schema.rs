//! Schema of a workload's tables: columns, primary keys, secondary indexes.

use crate::error::EngineError;
use crate::kv::MapDef;

/// Maximum number of columns of a table, so that a row fits on the stack.
pub const COLUMNS_MAX: usize = 16;
/// Name of the map that records the schema of a database and its built indexes.
pub(super) const CATALOG: &str = "catalog";

/// Index of a table in its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableId(pub usize);

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// A whole number from 0 to 2^32 - 1.
    U32,
    /// A whole number from 0; engines with SQL keep 63 bits.
    U64,
    /// A signed whole number of 64 bits.
    I64,
    /// Text or bytes of any length. Only [`TableSchema::key_value`] has a key of them.
    Bytes,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name in the database.
    pub name: String,
    /// Type of the values.
    pub of: ColumnType,
    /// Maximum length of a value in bytes; `None` if unknown. MariaDB stores short values as
    /// `VARBINARY`, so that it sorts them in memory, and all others as blobs.
    pub bytes_max: Option<u32>,
}

impl Column {
    /// Creates a column.
    pub fn new(name: &str, of: ColumnType) -> Column {
        Column {
            name: name.to_owned(),
            of,
            bytes_max: None,
        }
    }

    /// Creates a column of bytes, at most `bytes_max` long.
    pub fn short(name: &str, bytes_max: usize) -> Column {
        Column {
            bytes_max: u32::try_from(bytes_max).ok(),
            ..Column::new(name, ColumnType::Bytes)
        }
    }
}

/// A secondary index, not unique. An entry is the index's columns and the primary key; a scan of
/// the index alone returns these columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Name without the table's: see [`Table::index_name`].
    pub name: String,
    /// Positions of its columns in [`Table::columns`].
    pub columns: Vec<usize>,
}

/// Order of a range read, and the columns that it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// Whole rows by primary key.
    Primary,
    /// The columns of this index and the primary key, from the index alone.
    Index(usize),
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Name in the database.
    pub name: String,
    /// All columns; those of the primary key come first.
    pub columns: Vec<Column>,
    /// Number of columns of the primary key.
    pub key_columns: usize,
    /// Secondary indexes. A new database has none of them until the workload builds them.
    pub indexes: Vec<Index>,
    /// True if reads by primary key are expected to find their row nearly always.
    pub expect_hits: bool,
}

impl Table {
    /// Returns the columns of a path: the index's own, if any, then the primary key. A scan of an
    /// index returns these columns.
    pub fn path_columns(&self, path: Path) -> impl Iterator<Item = usize> + '_ {
        let own = match path {
            Path::Primary => &[][..],
            Path::Index(index) => &self.indexes[index].columns,
        };
        own.iter().copied().chain(0..self.key_columns)
    }

    /// Returns the types of the columns that a read by this path returns, and their number; the
    /// rest of the array is unused. By the primary key these are all columns of the row, by an
    /// index those of [`Table::path_columns`]. Measured reads call this, so it does not allocate.
    pub fn answer_types(&self, path: Path) -> ([ColumnType; COLUMNS_MAX * 2], usize) {
        let mut types = [ColumnType::U64; COLUMNS_MAX * 2];
        let mut columns = 0;
        let mut push = |place: usize| {
            types[columns] = self.columns[place].of;
            columns += 1;
        };
        match path {
            Path::Primary => (0..self.columns.len()).for_each(&mut push),
            Path::Index(_) => self.path_columns(path).for_each(&mut push),
        }
        (types, columns)
    }

    /// Returns the columns of an index, then the primary key: [`Table::path_columns`] of its path.
    pub fn index_columns(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        self.path_columns(Path::Index(index))
    }

    /// Returns the name of an index in the database, `TABLE_INDEX`.
    pub fn index_name(&self, index: usize) -> String {
        format!("{}_{}", self.name, self.indexes[index].name)
    }

    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if !is_name(name) {
            return Err(format!(
                "the table name `{name}` must be letters, digits and `_`"
            ));
        }
        if self.columns.len() > COLUMNS_MAX {
            return Err(format!("table {name} has more than {COLUMNS_MAX} columns"));
        }
        if self.key_columns == 0 || self.key_columns > self.columns.len() {
            return Err(format!("table {name} needs a primary key of its columns"));
        }
        let columns = self.columns.iter().map(|column| &column.name);
        let indexes = self.indexes.iter().map(|index| &index.name);
        if let Some(bad) = columns.chain(indexes).find(|name| !is_name(name)) {
            return Err(format!(
                "the name `{bad}` in table {name} must be letters, digits and `_`"
            ));
        }
        let indexed = self.indexes.iter().flat_map(|index| &index.columns);
        let mut keys = (0..self.key_columns).chain(indexed.copied());
        let bad = keys.find(|place| {
            let column = self.columns.get(*place);
            column.is_none_or(|column| column.of == ColumnType::Bytes)
        });
        if let Some(place) = bad {
            return Err(format!(
                "column {place} of table {name} is in a key, but is no number"
            ));
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Validated tables of a database. They live as long as the process, which runs one trial.
#[derive(Debug, PartialEq, Eq)]
pub struct TableSchema {
    tables: Vec<Table>,
    maps: Vec<MapDef>,
    /// Position in `maps` of the map of each table's rows; the maps of its indexes follow.
    first_maps: Vec<usize>,
    form: Form,
}

/// Statements that a workload makes on the tables of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// All; they change rows that other clients may change too.
    Transactions,
    /// Inserts, and deletes of first rows.
    Queues,
    /// Inserts and puts of keys and values.
    KeyValue,
}

impl TableSchema {
    /// Validates the tables and assigns their maps.
    ///
    /// # Errors
    /// A message about the first name, column count or key that is not allowed.
    pub fn new(tables: Vec<Table>) -> Result<&'static TableSchema, String> {
        TableSchema::checked(tables, Form::Transactions)
    }

    /// Creates a schema like [`TableSchema::new`], for tables that are only read and changed by
    /// [`insert`](super::TableConnection::insert) and
    /// [`delete_first`](super::TableConnection::delete_first).
    pub fn without_transactions(tables: Vec<Table>) -> Result<&'static TableSchema, String> {
        TableSchema::checked(tables, Form::Queues)
    }

    /// Creates the schema of one table of keys and values, which are bytes of any length. An engine
    /// of ordered maps stores it as one map and nothing else: it has no catalog.
    pub fn key_value(name: &str) -> &'static TableSchema {
        let table = Table {
            name: name.to_owned(),
            columns: vec![
                Column::new("key", ColumnType::Bytes),
                Column::new("value", ColumnType::Bytes),
            ],
            key_columns: 1,
            indexes: Vec::new(),
            expect_hits: true,
        };
        Box::leak(Box::new(TableSchema {
            maps: vec![map(name.to_owned(), true, true, false)],
            tables: vec![table],
            first_maps: vec![0],
            form: Form::KeyValue,
        }))
    }

    fn checked(tables: Vec<Table>, form: Form) -> Result<&'static TableSchema, String> {
        let mut maps = vec![map(CATALOG.to_owned(), true, false, false)];
        let is_queue = form == Form::Queues;
        let mut first_maps = Vec::new();
        for table in &tables {
            table.check()?;
            first_maps.push(maps.len());
            maps.push(map(table.name.clone(), true, table.expect_hits, is_queue));
            let indexes = 0..table.indexes.len();
            maps.extend(indexes.map(|index| map(table.index_name(index), false, false, is_queue)));
        }
        for (place, one) in maps.iter().enumerate() {
            if maps[..place].iter().any(|other| other.name == one.name) {
                return Err(format!("the name {} is taken twice", one.name));
            }
        }
        // Leaked: maps keep their names as long as an engine may be open, and a process opens few
        // schemas.
        Ok(Box::leak(Box::new(TableSchema {
            tables,
            maps,
            first_maps,
            form,
        })))
    }

    /// Returns all tables.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Returns one table.
    pub fn table(&self, table: TableId) -> &Table {
        &self.tables[table.0]
    }

    /// Returns the ordered maps that store the tables: the catalog if there is one, then for each
    /// table its rows and its indexes.
    pub fn maps(&self) -> &[MapDef] {
        &self.maps
    }

    /// Returns true if a workload on these tables begins transactions.
    pub fn has_transactions(&self) -> bool {
        self.form == Form::Transactions
    }

    /// Returns true for a schema of [`TableSchema::key_value`].
    pub fn is_key_value(&self) -> bool {
        self.form == Form::KeyValue
    }

    /// Returns the position in [`TableSchema::maps`] of the map of a table's rows; the maps of its
    /// indexes follow.
    pub(super) fn first_map(&self, table: TableId) -> usize {
        self.first_maps[table.0]
    }

    /// Compares the description found in a database with this schema.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] if the two differ.
    pub fn compare(&self, found: &str) -> Result<(), EngineError> {
        let wanted = self.describe();
        if found == wanted {
            return Ok(());
        }
        Err(EngineError::Unsupported(format!(
            "the database holds tables of another run: {found}. Wanted: {wanted}. Give an empty directory"
        )))
    }

    /// Returns a text description of the schema, used to recognize it in an existing database.
    pub fn describe(&self) -> String {
        let tables = self.tables.iter().map(|table| {
            let columns: Vec<String> = table
                .columns
                .iter()
                .map(|column| format!("{} {:?}", column.name, column.of))
                .collect();
            let indexes: Vec<String> = table
                .indexes
                .iter()
                .map(|index| format!("{} {:?}", index.name, index.columns))
                .collect();
            format!(
                "{} ({}), key {}, indexes ({})",
                table.name,
                columns.join(", "),
                table.key_columns,
                indexes.join(", ")
            )
        });
        tables.collect::<Vec<_>>().join("; ")
    }
}

fn map(name: String, point_reads: bool, expect_hits: bool, is_queue: bool) -> MapDef {
    MapDef {
        name: name.leak(),
        scan_prefix_bytes: None,
        point_reads,
        expect_hits,
        is_queue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            name: "t".to_owned(),
            columns: vec![
                Column::new("id", ColumnType::U64),
                Column::new("k", ColumnType::U32),
                Column::new("c", ColumnType::Bytes),
            ],
            key_columns: 1,
            indexes: vec![Index {
                name: "k".to_owned(),
                columns: vec![1],
            }],
            expect_hits: true,
        }
    }

    fn refusal(change: impl FnOnce(&mut Table)) -> String {
        let mut table = table();
        change(&mut table);
        TableSchema::new(vec![table]).unwrap_err()
    }

    #[test]
    fn schemas_that_cannot_be_are_refused_in_words() {
        assert!(refusal(|t| t.indexes[0].columns = vec![2]).contains("is no number"));
        assert!(refusal(|t| t.indexes[0].columns = vec![7]).contains("column 7"));
        assert!(refusal(|t| t.key_columns = 0).contains("needs a primary key"));
        assert!(refusal(|t| t.name = "a b".to_owned()).contains("letters, digits"));
        assert!(refusal(|t| t.columns[1].name = "k\"".to_owned()).contains("letters, digits"));
        assert!(refusal(|t| t.indexes[0].name = String::new()).contains("letters, digits"));
        let twice = TableSchema::new(vec![table(), table()]).unwrap_err();
        assert!(twice.contains("the name t is taken twice"), "{twice}");
    }

    #[test]
    fn maps_are_the_catalog_then_rows_and_indexes_of_each_table() {
        let other = Table {
            name: "u".to_owned(),
            ..table()
        };
        let schema = TableSchema::new(vec![table(), other]).unwrap();
        let names: Vec<&str> = schema.maps().iter().map(|map| map.name).collect();
        assert_eq!(names, ["catalog", "t", "t_k", "u", "u_k"]);
        assert_eq!(schema.first_map(TableId(1)), 3);
        assert_eq!(table().index_columns(0).collect::<Vec<_>>(), [1, 0]);
    }
}
