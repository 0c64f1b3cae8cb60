//! Parses a table with its columns and indexes in the file of a custom workload.

use toml::de::DeTable;

use super::definition::{ColumnDef, Content, DefinitionError, KEY, KeyOrder, TableDef};
use super::source::{At, Section, Source};
use crate::tables::ColumnType;
use crate::tables::schema::COLUMNS_MAX;

type Result<T> = std::result::Result<T, DefinitionError>;

/// Bytes at the start of every value that identify its row and version; see `rows`.
pub(super) const VALUE_BYTES_MIN: u64 = 8;
const VALUE_BYTES_MAX: u64 = 1 << 20;
/// Most rows of a table, so that `population` has room for inserts.
const ROWS_MAX: u64 = 1 << 35;
const INDEXES_MAX: usize = 8;

/// Reserved words of SQL, as SQLite lists them; names are not quoted.
const SQL_WORDS: &[&str] = &[
    "add",
    "all",
    "alter",
    "and",
    "as",
    "between",
    "case",
    "check",
    "collate",
    "commit",
    "constraint",
    "create",
    "default",
    "delete",
    "distinct",
    "drop",
    "else",
    "escape",
    "except",
    "exists",
    "foreign",
    "from",
    "group",
    "having",
    "in",
    "index",
    "insert",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "limit",
    "not",
    "nothing",
    "notnull",
    "null",
    "on",
    "or",
    "order",
    "primary",
    "references",
    "returning",
    "select",
    "set",
    "table",
    "then",
    "to",
    "transaction",
    "union",
    "unique",
    "update",
    "using",
    "values",
    "when",
    "where",
];

/// Parses one table.
pub(super) fn table<'a>(source: Source<'a>, found: At<&'a DeTable<'a>>) -> Result<TableDef> {
    let allowed = ["name", "rows", "keys", "column", "index"];
    let section = Section::new(source, "[[table]]", found.at, found.value, &allowed)?;
    let name = name(section, "a name of letters, digits and `_`")?;
    let orders = [("hashed", KeyOrder::Hashed), ("ordered", KeyOrder::Ordered)];
    let rows = section.whole("rows", 1..ROWS_MAX + 1)?;
    let mut columns = Vec::new();
    for found in section.tables("column")? {
        column(source, found, &mut columns)?;
    }
    if columns.is_empty() || columns.len() >= COLUMNS_MAX {
        let message = format!(
            "table `{name}` must have 1 to {} columns as [[table.column]] besides its key `{KEY}`, not {}",
            COLUMNS_MAX - 1,
            columns.len()
        );
        return Err(section.refuse(section.at, message));
    }
    let mut table = TableDef {
        name,
        rows: section.required("rows", "how many the load writes", rows)?,
        order: section.choice("keys", &orders)?.unwrap_or(KeyOrder::Hashed),
        columns,
        indexes: Vec::new(),
    };
    for found in section.tables("index")? {
        let index = index(source, found, &table)?;
        table.indexes.push(index);
    }
    if table.indexes.len() > INDEXES_MAX {
        let message = format!("table `{}` has more than {INDEXES_MAX} indexes", table.name);
        return Err(section.refuse(section.at, message));
    }
    Ok(table)
}

/// Returns the name of a section after checking that every engine accepts it, also as SQL without
/// quotes.
fn name(section: Section<'_>, form: &str) -> Result<String> {
    let given = section.text("name")?;
    let At { value, at } = section.required("name", form, given)?;
    let good = value.len() <= 48
        && value.starts_with(|first: char| first.is_ascii_alphabetic())
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !good {
        let message = format!(
            "the name `{value}` must be at most 48 letters, digits and `_`, a letter first"
        );
        return Err(section.refuse(at, message));
    }
    let lower = value.to_ascii_lowercase();
    if SQL_WORDS.contains(&lower.as_str()) || lower.starts_with("sqlite_") || lower == "catalog" {
        let message =
            format!("the name `{value}` is a word of SQL or of an engine; choose another");
        return Err(section.refuse(at, message));
    }
    Ok(value.to_owned())
}

/// Parses one column, or with `repeat` several equal columns with numbered names.
fn column<'a>(
    source: Source<'a>,
    found: At<&'a DeTable<'a>>,
    columns: &mut Vec<ColumnDef>,
) -> Result<()> {
    let what = "[[table.column]]";
    let all = [
        "name",
        "type",
        "repeat",
        "distinct",
        "bytes",
        "random_percent",
    ];
    let section = Section::new(source, what, found.at, found.value, &all)?;
    let name = name(section, "a name of letters, digits and `_`")?;
    let types = [
        ("bytes", ColumnType::Bytes),
        ("u32", ColumnType::U32),
        ("u64", ColumnType::U64),
        ("i64", ColumnType::I64),
    ];
    let of = section.choice("type", &types)?;
    let of = section.required("type", "bytes, u32, u64 or i64", of)?;
    let content = match of {
        ColumnType::Bytes => bytes(section, &name)?,
        _ => number(section, &name, of)?,
    };
    let repeat = section.whole("repeat", 1..COLUMNS_MAX as u64)?;
    for number in 0..repeat.unwrap_or(1) {
        let name = match repeat {
            Some(_) => format!("{name}{number}"),
            None => name.clone(),
        };
        let lower = name.to_ascii_lowercase();
        let taken = |column: &ColumnDef| column.name.to_ascii_lowercase() == lower;
        if lower == KEY || columns.iter().any(taken) {
            let message =
                format!("there is a column `{name}` already (every table's key is `{KEY}`)");
            return Err(section.refuse(section.at, message));
        }
        columns.push(ColumnDef { name, content });
    }
    Ok(())
}

fn number(section: Section<'_>, name: &str, of: ColumnType) -> Result<Content> {
    for key in ["bytes", "random_percent"] {
        if section.has(key) {
            let message =
                format!("`{key}` is for columns of type bytes; `{name}` takes `distinct`");
            return Err(section.refuse(section.place_of(key), message));
        }
    }
    let most = match of {
        ColumnType::U32 => 1 << 32,
        _ => 1 << 62,
    };
    let distinct = section.whole("distinct", 1..most + 1)?;
    Ok(Content::Number {
        of,
        distinct: section.required("distinct", "how many different values it has", distinct)?,
    })
}

fn bytes(section: Section<'_>, name: &str) -> Result<Content> {
    if section.has("distinct") {
        let message = format!("`distinct` is for columns of numbers; `{name}` takes `bytes`");
        return Err(section.refuse(section.place_of("distinct"), message));
    }
    let form = "a length from 8, or { min = 8, max = 100 }";
    let lengths = span(section, "bytes", VALUE_BYTES_MIN..VALUE_BYTES_MAX + 1)?;
    let (min, max) = section.required("bytes", form, lengths)?;
    let random = section.whole("random_percent", 0..101)?;
    Ok(Content::Bytes {
        min,
        max,
        random_percent: random.unwrap_or(100),
    })
}

/// Parses a number, or its minimum and maximum.
pub(super) fn span(
    section: Section<'_>,
    key: &str,
    allowed: std::ops::Range<u64>,
) -> Result<Option<(u64, u64)>> {
    let Some(found) = section.inline(key) else {
        return Ok(section.whole(key, allowed)?.map(|one| (one, one)));
    };
    let what = format!("`{key}`");
    let source = section.source;
    let inner = Section::new(source, &what, found.at, found.value, &["min", "max"])?;
    let min = inner.whole("min", allowed.clone())?;
    let min = inner.required("min", "the least value", min)?;
    let max = inner.whole("max", allowed)?;
    let max = inner.required("max", "the greatest value", max)?;
    if min > max {
        let message = format!("`{key}` has min = {min} above max = {max}");
        return Err(section.refuse(found.at, message));
    }
    Ok(Some((min, max)))
}

fn index<'a>(
    source: Source<'a>,
    found: At<&'a DeTable<'a>>,
    table: &TableDef,
) -> Result<(String, Vec<usize>)> {
    let allowed = ["name", "columns"];
    let section = Section::new(source, "[[table.index]]", found.at, found.value, &allowed)?;
    let name = name(section, "a name of letters, digits and `_`")?;
    let lower = name.to_ascii_lowercase();
    let taken = |(other, _): &(String, _)| other.to_ascii_lowercase() == lower;
    if table.indexes.iter().any(taken) {
        let message = format!("table `{}` has an index `{name}` already", table.name);
        return Err(section.refuse(section.at, message));
    }
    let given = section.texts("columns")?;
    let given = section.required("columns", "a list of columns of numbers", given)?;
    let mut places = Vec::new();
    for column in &given {
        let place = column_place(section, table, *column)?;
        if let Content::Bytes { .. } = table.columns[place].content {
            let message = format!(
                "column `{}` is no number: an index cannot have it",
                column.value
            );
            return Err(section.refuse(column.at, message));
        }
        if places.contains(&place) {
            let message = format!("column `{}` is in the index twice", column.value);
            return Err(section.refuse(column.at, message));
        }
        places.push(place);
    }
    if places.is_empty() {
        let message = format!("index `{name}` needs a column");
        return Err(section.refuse(section.place_of("columns"), message));
    }
    Ok((name, places))
}

/// Returns the index of a column by its name.
pub(super) fn column_place(
    section: Section<'_>,
    table: &TableDef,
    name: At<&str>,
) -> Result<usize> {
    let mut columns = table.columns.iter();
    let found = columns.position(|column| column.name == name.value);
    found.ok_or_else(|| {
        let known: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
        let what = format!("column of table `{}`", table.name);
        section.refuse(name.at, crate::names::unknown(&what, name.value, &known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom::read::definition;

    #[test]
    fn lengths_of_a_column_may_have_units() {
        let lengths = |bytes: &str| {
            let text = format!(
                r#"
                [[table]]
                name = "t"
                rows = 10
                [[table.column]]
                name = "c"
                type = "bytes"
                bytes = {bytes}
                [[phase]]
                kind = "load"
                "#
            );
            let found = definition("t.toml", &text).map_err(|error| error.to_string())?;
            match found.tables[0].columns[0].content {
                Content::Bytes { min, max, .. } => Ok((min, max)),
                Content::Number { .. } => Err("a number".to_string()),
            }
        };
        assert_eq!(lengths(r#""1K""#), Ok((1024, 1024)));
        assert_eq!(lengths(r#"{ min = 8, max = "2KiB" }"#), Ok((8, 2048)));
        let said = lengths(r#"{ min = 8, max = "2Q" }"#).unwrap_err();
        assert!(said.contains("`max` must be a whole number"), "{said}");
    }
}
