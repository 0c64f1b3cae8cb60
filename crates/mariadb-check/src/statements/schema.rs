//! Tables as the generator knows them: columns, indexes and the changes that statements make.

use alluvium_testkit::Rng;

use super::types::{Collation, Family, Kind};

/// Number of characters of a prefix in an index.
const PREFIX: u8 = 4;
/// Bytes of an index that InnoDB allows are 3072, at most four for each character.
const INDEX_PARTS_MAX: usize = 3;

/// Column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub collation: Option<Collation>,
    pub nullable: bool,
    pub auto_increment: bool,
    pub default: Option<String>,
    /// Expression of a generated column, and true if its value is stored.
    pub generated: Option<(String, bool)>,
}

/// Column of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub column: String,
    pub prefix: bool,
    pub descending: bool,
}

/// Index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// `PRIMARY` for the primary key.
    pub name: String,
    pub unique: bool,
    pub parts: Vec<Part>,
}

/// Things that a run leaves out, so that it passes over differences that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Avoided {
    /// Prefixes of columns in indexes.
    pub prefixes: bool,
    /// AUTO_INCREMENT columns.
    pub numbers: bool,
}

/// Table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    pub avoided: Avoided,
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    /// True if a unique index was added later. InnoDB then checks the unique indexes in another
    /// order than the server lists them, so which one refuses a row first is not defined.
    pub order_unknown: bool,
}

impl Column {
    /// Creates a random column.
    pub fn random(name: String, rng: &mut Rng) -> Column {
        let kind = Kind::random(rng);
        let nullable = rng.percent(60);
        let may_default = !kind.needs_prefix() && rng.percent(30);
        Column {
            name,
            kind,
            collation: kind.is_text().then(|| Collation::random(kind, rng)),
            nullable,
            auto_increment: false,
            default: may_default.then(|| safe_literal(kind, rng)),
            generated: None,
        }
    }

    /// Creates a column that is computed from another one.
    fn generated_from(name: String, of: &Column, rng: &mut Rng) -> Column {
        let source = &of.name;
        let (kind, text) = match of.kind.family() {
            Family::Number => (
                int(8, false),
                format!("CASE WHEN {source} > 5 THEN 1 ELSE 0 END"),
            ),
            Family::Moment => (int(8, false), format!("YEAR({source})")),
            _ => (int(8, false), format!("LENGTH({source})")),
        };
        Column {
            name,
            kind,
            collation: None,
            nullable: true,
            auto_increment: false,
            default: None,
            generated: Some((text, rng.percent(50))),
        }
    }

    /// Returns the definition in SQL.
    pub fn sql(&self) -> String {
        let mut text = format!("{} {}", self.name, self.kind.sql());
        if let Some(collation) = self.collation {
            text += &format!(
                " CHARACTER SET {} COLLATE {}",
                collation.charset, collation.name
            );
        }
        if let Some((expression, stored)) = &self.generated {
            let form = if *stored { "STORED" } else { "VIRTUAL" };
            return format!("{text} GENERATED ALWAYS AS ({expression}) {form}");
        }
        text += if self.nullable { " NULL" } else { " NOT NULL" };
        if self.auto_increment {
            text += " AUTO_INCREMENT";
        }
        if let Some(default) = &self.default {
            text += &format!(" DEFAULT {default}");
        }
        text
    }

    /// Returns true if equal values have equal bytes.
    pub fn is_exact(&self) -> bool {
        self.kind.is_exact()
    }
}

/// Returns a literal that is valid as a default in every SQL mode.
pub fn safe_literal(kind: Kind, rng: &mut Rng) -> String {
    match kind {
        Kind::Char(_) | Kind::VarChar(_) => rng.pick(&["'a'", "''", "'A'"]).to_string(),
        Kind::Binary(_) | Kind::VarBinary(_) => "'a'".to_string(),
        // A fraction that the column has to round is an invalid default.
        Kind::Time(_) => "'12:00:00'".to_string(),
        Kind::DateTime(_) | Kind::Timestamp(_) => "'2024-02-29 12:00:00'".to_string(),
        _ => kind.literal(rng),
    }
}

pub fn int(bytes: u8, unsigned: bool) -> Kind {
    Kind::Int { bytes, unsigned }
}

impl Index {
    /// Returns the definition in SQL, as in CREATE TABLE and after ADD.
    pub fn sql(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(Part::sql).collect();
        let parts = parts.join(", ");
        match (self.name.as_str(), self.unique) {
            ("PRIMARY", _) => format!("PRIMARY KEY ({parts})"),
            (name, true) => format!("UNIQUE KEY {name} ({parts})"),
            (name, false) => format!("KEY {name} ({parts})"),
        }
    }

    /// Returns true if the index has no prefixes, so that it can order and cover.
    pub fn is_whole(&self) -> bool {
        self.parts.iter().all(|part| !part.prefix)
    }

    /// Returns the list of an ORDER BY that the index gives forward or backward.
    pub fn order(&self, backward: bool) -> Vec<String> {
        let direction = |part: &Part| match part.descending != backward {
            true => format!("{} DESC", part.column),
            false => part.column.clone(),
        };
        self.parts.iter().map(direction).collect()
    }
}

impl Part {
    fn sql(&self) -> String {
        let prefix = match self.prefix {
            true => format!("({PREFIX})"),
            false => String::new(),
        };
        let direction = if self.descending { " DESC" } else { "" };
        format!("{}{prefix}{direction}", self.column)
    }
}

impl Table {
    /// Creates a random table.
    pub fn random(name: String, avoided: Avoided, rng: &mut Rng) -> Table {
        let mut table = Table {
            name,
            avoided,
            columns: Vec::new(),
            indexes: Vec::new(),
            order_unknown: false,
        };
        let key = rng.weighted(&[30, 20, 30, 20]);
        if key < 2 {
            table.columns.push(Column {
                name: "id".to_string(),
                kind: int(*rng.pick(&[2, 4, 8]), rng.percent(50)),
                collation: None,
                nullable: false,
                auto_increment: key == 0 && !avoided.numbers,
                default: None,
                generated: None,
            });
            let part = Part {
                column: "id".to_string(),
                prefix: false,
                descending: rng.percent(10),
            };
            table.indexes.push(Index {
                name: "PRIMARY".to_string(),
                unique: true,
                parts: vec![part],
            });
        }
        for number in 0..rng.range(3..8) {
            table
                .columns
                .push(Column::random(format!("c{number}"), rng));
        }
        if key == 2 {
            let mut parts = table.random_parts(rng);
            table.columns.iter_mut().for_each(|column| {
                let is_part = parts.iter().any(|part| part.column == column.name);
                column.nullable &= !is_part;
            });
            parts
                .iter_mut()
                .for_each(|part| part.descending = rng.percent(15));
            if !parts.is_empty() {
                table.indexes.push(Index {
                    name: "PRIMARY".to_string(),
                    unique: true,
                    parts,
                });
            }
        }
        for number in 0..rng.below(3) {
            let of = table.plain_columns();
            let source = rng.pick(&of).to_owned().clone();
            let column = Column::generated_from(format!("g{number}"), &source, rng);
            table.columns.push(column);
        }
        for number in 0..rng.below(5) {
            let index = table.random_index(format!("i{number}"), rng);
            // Without prefixes, a table of texts alone has no index.
            if !index.parts.is_empty() {
                table.indexes.push(index);
            }
        }
        table
    }

    /// Returns the columns that statements may write. The AUTO_INCREMENT column is not one.
    pub fn plain_columns(&self) -> Vec<&Column> {
        let is_plain = |column: &&Column| column.generated.is_none() && !column.auto_increment;
        self.columns.iter().filter(is_plain).collect()
    }

    /// Creates a random index over the columns that there are.
    pub fn random_index(&self, name: String, rng: &mut Rng) -> Index {
        let parts = self.random_parts(rng);
        let is_plain = |part: &Part| self.column(&part.column).generated.is_none();
        Index {
            unique: rng.percent(30) && parts.iter().all(is_plain),
            name,
            parts,
        }
    }

    fn random_parts(&self, rng: &mut Rng) -> Vec<Part> {
        let fits = |column: &&Column| !(self.avoided.prefixes && column.kind.needs_prefix());
        let mut columns: Vec<&Column> = self.columns.iter().filter(fits).collect();
        rng.shuffle(&mut columns);
        let count = rng.range(1..INDEX_PARTS_MAX + 1);
        let part = |column: &&Column| Part {
            column: column.name.clone(),
            prefix: column.kind.needs_prefix()
                || column.kind.may_have_prefix(PREFIX) && !self.avoided.prefixes && rng.percent(20),
            descending: rng.percent(20),
        };
        columns.iter().take(count).map(part).collect()
    }

    /// Returns a column.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn column(&self, name: &str) -> &Column {
        let found = self.columns.iter().find(|column| column.name == name);
        found.expect("a column of the table")
    }

    /// Returns true if a unique index has the column.
    pub fn is_in_unique(&self, name: &str) -> bool {
        let has = |index: &Index| index.unique && index.parts.iter().any(|p| p.column == name);
        self.indexes.iter().any(has)
    }

    /// Returns true if an index or a generated column uses the column.
    pub fn is_used(&self, name: &str) -> bool {
        let in_index = |index: &Index| index.parts.iter().any(|part| part.column == name);
        let in_text = |column: &Column| {
            let text = column.generated.as_ref().map(|(text, _)| text.as_str());
            text.is_some_and(|text| {
                text.split(|c: char| !c.is_alphanumeric())
                    .any(|w| w == name)
            })
        };
        self.indexes.iter().any(in_index) || self.columns.iter().any(in_text)
    }

    /// Returns columns that identify a row, if some unique index has neither NULL nor prefixes.
    pub fn row_key(&self) -> Option<Vec<String>> {
        let never_null = |part: &Part| !self.column(&part.column).nullable;
        let is_key =
            |index: &&Index| index.unique && index.is_whole() && index.parts.iter().all(never_null);
        let index = self.indexes.iter().find(is_key)?;
        Some(index.parts.iter().map(|part| part.column.clone()).collect())
    }

    /// Returns the number of unique indexes.
    pub fn unique_count(&self) -> usize {
        self.indexes.iter().filter(|index| index.unique).count()
    }

    /// Returns the CREATE TABLE statement. The engine is the default one of the session.
    pub fn sql(&self) -> String {
        let columns = self.columns.iter().map(Column::sql);
        let indexes = self.indexes.iter().map(Index::sql);
        let lines: Vec<String> = columns.chain(indexes).collect();
        format!("CREATE TABLE {} ({})", self.name, lines.join(", "))
    }
}
