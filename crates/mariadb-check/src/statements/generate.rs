//! Generator of statements. It knows the tables, so most statements succeed and find rows.

use alluvium_testkit::Rng;

use super::schema::{Avoided, Column, Index, Table};
use super::statement::{Change, Compare, Statement};
use super::types::Kind;
use super::{reads, writes};

/// Generator of the statements of one round, which begins without tables.
pub struct Generator {
    pub rng: Rng,
    avoided: Avoided,
    pub tables: Vec<Table>,
    next_name: usize,
    /// True after a BEGIN.
    is_open: bool,
    /// Savepoints that were set in the transaction.
    points: Vec<String>,
    /// Next AUTO_INCREMENT number after an ALTER TABLE.
    next_number: u64,
    /// Statements of the beginning that are not yet taken, last first.
    waiting: Vec<Statement>,
}

const TABLES: usize = 3;
/// More than the statements between two changes of a counter use.
const NUMBERS_APART: u64 = 300;
/// Modes in which values that do not fit are errors, and are changed.
///
/// NO_ZERO_DATE is none of them: an ALTER TABLE that copies rows refuses dates that are there, and
/// each engine copies in other cases.
const MODES: [&str; 3] = [
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
    "NO_ENGINE_SUBSTITUTION",
];

impl Generator {
    /// Creates the generator of a seed.
    pub fn new(seed: u64, avoided: Avoided) -> Generator {
        let mut rng = Rng::new(seed);
        let mode = MODES[rng.weighted(&[60, 15, 25])];
        let begin = format!("SET sql_mode = '{mode}'");
        let waiting = vec![Statement::new("SET", begin, Compare::Success)];
        Generator {
            rng,
            avoided,
            tables: Vec::new(),
            next_name: 0,
            is_open: false,
            points: Vec::new(),
            next_number: NUMBERS_APART,
            waiting,
        }
    }

    /// Returns the next statement.
    pub fn next(&mut self) -> Statement {
        if let Some(statement) = self.waiting.pop() {
            return statement;
        }
        if self.tables.len() < TABLES {
            return self.create();
        }
        match self.rng.weighted(&[36, 46, 12, 2, 1]) {
            0 => writes::random(&self.tables, &mut self.rng),
            1 => reads::random(&self.tables, &mut self.rng),
            2 => self.transaction(),
            3 => self.alter(),
            _ => self.rare(),
        }
    }

    /// Returns reads that compare all tables, each in every way that they are stored.
    pub fn whole(&self) -> Vec<Statement> {
        self.tables.iter().flat_map(reads::whole).collect()
    }

    /// Notes the success of a statement.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Create(table) => {
                // Rows right from the start, so that the first reads find some.
                let filling = (0..3).map(|_| writes::insert_many(&table, &mut self.rng));
                self.waiting = filling.collect();
                self.tables.push(table);
            }
            Change::Replace { name, table } => {
                let at = self.tables.iter().position(|known| known.name == name);
                self.tables[at.expect("a table of the generator")] = table;
            }
        }
    }

    /// Returns one of the tables.
    pub fn table(&mut self) -> Table {
        self.rng.pick(&self.tables).clone()
    }

    fn name(&mut self, letter: &str) -> String {
        self.next_name += 1;
        format!("{letter}{}", self.next_name)
    }

    fn create(&mut self) -> Statement {
        let name = self.name("t");
        let table = Table::random(name, self.avoided, &mut self.rng);
        let mut statement = Statement::new("CREATE TABLE", table.sql(), Compare::Success);
        for column in &table.columns {
            statement = column_marks(statement, column);
        }
        for index in &table.indexes {
            statement = index_marks(statement, index);
        }
        if table.indexes.iter().all(|index| index.name != "PRIMARY") {
            statement = statement.mark("table: without primary key");
        }
        statement.changing(Change::Create(table))
    }

    fn transaction(&mut self) -> Statement {
        let weights = match self.is_open {
            true => [5, 18, 12, 25, 30, 10],
            false => [90, 4, 4, 2, 4, 2],
        };
        let number = self.rng.below(3);
        let mut point = format!("s{number}");
        let chosen = self.rng.weighted(&weights);
        if chosen > 3 && !self.points.is_empty() && self.rng.percent(80) {
            point.clone_from(self.rng.pick(&self.points));
        }
        let (mark, sql) = match chosen {
            0 => ("BEGIN", "BEGIN".to_string()),
            1 => ("COMMIT", "COMMIT".to_string()),
            2 => ("ROLLBACK", "ROLLBACK".to_string()),
            3 => ("SAVEPOINT", format!("SAVEPOINT {point}")),
            4 => (
                "ROLLBACK TO SAVEPOINT",
                format!("ROLLBACK TO SAVEPOINT {point}"),
            ),
            _ => ("RELEASE SAVEPOINT", format!("RELEASE SAVEPOINT {point}")),
        };
        match chosen {
            0..3 => self.close(chosen == 0),
            3 if self.is_open => self.points.push(point),
            _ => {}
        }
        Statement::new(mark, sql, Compare::Exactly)
    }

    /// Notes the end of a transaction, and perhaps the begin of the next.
    fn close(&mut self, is_open: bool) {
        self.is_open = is_open;
        self.points.clear();
    }

    /// Sets the counter of a table after an ALTER TABLE. Numbers that a failed statement has
    /// reserved are free again in InnoDB then, but not in Alluvium.
    fn set_counter(&mut self, table: &Table) {
        if table.columns.iter().any(|column| column.auto_increment) {
            let sql = format!(
                "ALTER TABLE {} AUTO_INCREMENT = {}",
                table.name, self.next_number
            );
            self.next_number += NUMBERS_APART;
            let statement = Statement::new("AUTO_INCREMENT = N", sql, Compare::Success);
            self.waiting.push(statement);
        }
    }

    fn rare(&mut self) -> Statement {
        self.close(false);
        let table = self.table();
        let name = &table.name;
        match self.rng.weighted(&[20, 40, 20]) {
            0 => Statement::new(
                "TRUNCATE",
                format!("TRUNCATE TABLE {name}"),
                Compare::Success,
            ),
            1 => Statement::new("ANALYZE", format!("ANALYZE TABLE {name}"), Compare::Success),
            _ => {
                self.set_counter(&table);
                let sql = format!("ALTER TABLE {name} FORCE");
                Statement::new("ALTER TABLE FORCE", sql, Compare::Success)
            }
        }
    }

    fn alter(&mut self) -> Statement {
        self.close(false);
        let old = self.table();
        let mut table = old.clone();
        let (mark, action) = match self.rng.weighted(&[30, 20, 25, 15, 10, 10]) {
            0 => self.add_index(&mut table),
            1 => self.drop_index(&mut table),
            2 => self.add_column(&mut table),
            3 => self.drop_column(&mut table),
            4 => self.rename_column(&mut table),
            _ => {
                table.name = self.name("t");
                ("RENAME TABLE", format!("RENAME TO {}", table.name))
            }
        };
        let sql = format!("ALTER TABLE {} {action}", old.name);
        self.set_counter(&table);
        let change = Change::Replace {
            name: old.name,
            table,
        };
        Statement::new(mark, sql, Compare::Success).changing(change)
    }

    fn add_index(&mut self, table: &mut Table) -> (&'static str, String) {
        let name = self.name("i");
        let index = table.random_index(name, &mut self.rng);
        if index.parts.is_empty() {
            return self.add_column(table);
        }
        let action = format!("ADD {}", index.sql());
        table.order_unknown |= index.unique;
        table.indexes.push(index);
        ("ADD INDEX", action)
    }

    fn drop_index(&mut self, table: &mut Table) -> (&'static str, String) {
        let may_go = |index: &&Index| index.name != "PRIMARY";
        let names: Vec<String> = table
            .indexes
            .iter()
            .filter(may_go)
            .map(|index| index.name.clone())
            .collect();
        if names.is_empty() {
            return self.add_index(table);
        }
        let name = self.rng.pick(&names);
        table.indexes.retain(|index| index.name != *name);
        ("DROP INDEX", format!("DROP INDEX {name}"))
    }

    fn add_column(&mut self, table: &mut Table) -> (&'static str, String) {
        let mut column = Column::random(self.name("c"), &mut self.rng);
        // The implicit default is no document. Only a copy of the table finds that.
        column.nullable |= column.kind == Kind::Json;
        let at = self.rng.below(table.columns.len() + 1);
        let place = match at.checked_sub(1) {
            _ if self.rng.percent(50) => String::new(),
            None => " FIRST".to_string(),
            Some(before) => format!(" AFTER {}", table.columns[before].name),
        };
        let at = if place.is_empty() {
            table.columns.len()
        } else {
            at
        };
        let action = format!("ADD COLUMN {}{place}", column.sql());
        table.columns.insert(at, column);
        ("ADD COLUMN", action)
    }

    fn drop_column(&mut self, table: &mut Table) -> (&'static str, String) {
        let unused = |column: &&Column| !table.is_used(&column.name);
        let names: Vec<String> = table
            .columns
            .iter()
            .filter(unused)
            .map(|column| column.name.clone())
            .collect();
        // Writes need a plain column.
        if names.is_empty() || table.plain_columns().len() < 3 {
            return self.add_column(table);
        }
        let name = self.rng.pick(&names);
        table.columns.retain(|column| column.name != *name);
        ("DROP COLUMN", format!("DROP COLUMN {name}"))
    }

    fn rename_column(&mut self, table: &mut Table) -> (&'static str, String) {
        let old = self.rng.pick(&table.columns).name.clone();
        let new = self.name("r");
        let used = |column: &Column| {
            column
                .generated
                .as_ref()
                .is_some_and(|(t, _)| t.contains(&old))
        };
        if table.columns.iter().any(used) {
            return self.add_index(table);
        }
        for column in table.columns.iter_mut().filter(|column| column.name == old) {
            column.name.clone_from(&new);
        }
        for index in &mut table.indexes {
            for part in index.parts.iter_mut().filter(|part| part.column == old) {
                part.column.clone_from(&new);
            }
        }
        ("RENAME COLUMN", format!("RENAME COLUMN {old} TO {new}"))
    }
}

fn column_marks(statement: Statement, column: &Column) -> Statement {
    let sign = match column.kind {
        Kind::Int { unsigned: true, .. } => " UNSIGNED",
        _ => "",
    };
    let mut statement = statement.mark(format!("type: {}{sign}", column.kind.name()));
    if let Some(collation) = column.collation {
        statement = statement.mark(format!("collation: {}", collation.group));
    }
    if column.auto_increment {
        statement = statement.mark("column: AUTO_INCREMENT");
    }
    match column.generated {
        Some((_, true)) => statement.mark("column: STORED"),
        Some((_, false)) => statement.mark("column: VIRTUAL"),
        None => statement,
    }
}

fn index_marks(statement: Statement, index: &Index) -> Statement {
    let kind = match (index.name.as_str(), index.unique) {
        ("PRIMARY", _) => "primary",
        (_, true) => "unique",
        (_, false) => "secondary",
    };
    let mut statement = statement.mark(format!("index: {kind}"));
    if !index.is_whole() {
        statement = statement.mark("index: prefix");
    }
    if index.parts.iter().any(|part| part.descending) {
        statement = statement.mark("index: DESC");
    }
    match index.parts.len() {
        1 => statement,
        _ => statement.mark("index: several columns"),
    }
}
