//! Parses the text of a file into a [`Definition`]: `read_tables` its tables, `read_phases` its
//! phases.

use toml::de::DeTable;

use super::definition::{Definition, DefinitionError, TableDef};
use super::source::{Section, Source};
use super::{read_phases, read_tables};

type Result<T> = std::result::Result<T, DefinitionError>;

/// Most tables of a file: each table and each index is a map of the engine.
const TABLES_MAX: usize = 16;

/// Parses a text. Messages name it `file`.
///
/// # Errors
/// The first mistake, with its line and the allowed values.
pub(super) fn definition(file: &str, text: &str) -> Result<Definition> {
    let source = Source { file, text };
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        source.refuse(
            at,
            format!("not TOML: {}", error.message().replace('\n', " ")),
        )
    })?;
    let allowed = ["description", "table", "phase"];
    let file = Section::new(source, "the file", 0, document.get_ref(), &allowed)?;
    let description = file.text("description")?.map_or("", |text| text.value);
    let mut tables: Vec<TableDef> = Vec::new();
    for found in file.tables("table")? {
        let table = read_tables::table(source, found)?;
        let name = table.name.to_ascii_lowercase();
        if tables
            .iter()
            .any(|other| other.name.to_ascii_lowercase() == name)
        {
            let message = format!("there is a table `{}` already", table.name);
            return Err(source.refuse(found.at, message));
        }
        tables.push(table);
    }
    if tables.is_empty() || tables.len() > TABLES_MAX {
        let message = format!(
            "the file must describe 1 to {TABLES_MAX} tables as [[table]], not {}",
            tables.len()
        );
        return Err(source.refuse(0, message));
    }
    let phases = read_phases::phases(file, &tables)?;
    let definition = Definition {
        description: description.to_owned(),
        tables,
        phases,
    };
    // The schema also checks for an index name that equals a table name.
    definition
        .schema()
        .map_err(|message| source.refuse(0, message))?;
    Ok(definition)
}
