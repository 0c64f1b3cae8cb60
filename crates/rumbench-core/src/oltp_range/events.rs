//! Events of a test, as far as seed, step and client determine them.

use std::fmt;

use super::columns::{C, ID, K};
use super::config::Config;
use super::rows::{self, DRAWS};
use super::tests::Kind;
use crate::linkbench::distribution::Zipf;
use crate::random::Random;
use crate::tables::Fold;

/// Key of the random generators of events.
const EVENT_KEY: u64 = 0x6576_656e;
/// Point reads of a transaction.
const POINTS: u64 = 10;

/// Kind of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Reads rows; numbers: the ids.
    Points,
    /// Reads index entries, with or without their rows; numbers: values of k in order.
    PointsByK {
        /// True if the rows are read too.
        rows: bool,
    },
    /// Reads rows; numbers: the first id and the exclusive end.
    Range(Fold),
    /// Reads index entries, with or without their rows; numbers: the first k and the exclusive end.
    RangeByK {
        /// True if the rows are read too.
        rows: bool,
    },
    /// Reads a whole table; no numbers.
    Scan,
    /// Changes c; numbers: the id and a draw.
    SetC,
    /// Sets one new c in a list of rows; numbers: a draw, and the ids in order.
    SetCOfList,
    /// Adds one to k; number: the id.
    AddK,
    /// Deletes and inserts a row; numbers: the id and two draws.
    Replace,
    /// Deletes a row; number: the id.
    Delete,
    /// Inserts a row; numbers: two draws.
    Insert,
}

impl What {
    /// Returns true if the statement writes.
    pub fn writes(self) -> bool {
        matches!(
            self,
            What::SetC
                | What::SetCOfList
                | What::AddK
                | What::Replace
                | What::Delete
                | What::Insert
        )
    }
}

/// One statement of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// Kind of the statement.
    pub what: What,
    /// Number of the table, from 0.
    pub table: usize,
    /// Columns that a SQL server selects if a list or a range is a whole event; empty for all other
    /// statements.
    pub columns: &'static [usize],
    /// Start and end of its numbers in [`Event::numbers`].
    numbers: (usize, usize),
}

/// One event: its statements, the writing ones last. Clients reuse it for each event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Statements in the order of their execution.
    pub statements: Vec<Statement>,
    numbers: Vec<u64>,
}

impl Event {
    /// Returns the numbers of a statement.
    pub fn numbers(&self, statement: &Statement) -> &[u64] {
        let (from, to) = statement.numbers;
        &self.numbers[from..to]
    }

    fn clear(&mut self) {
        self.statements.clear();
        self.numbers.clear();
    }

    fn push(&mut self, what: What, table: usize, numbers: impl IntoIterator<Item = u64>) {
        let from = self.numbers.len();
        self.numbers.extend(numbers);
        self.statements.push(Statement {
            what,
            table,
            columns: &[],
            numbers: (from, self.numbers.len()),
        });
    }

    /// Sets the columns that a SQL server selects in the last statement.
    fn ask(&mut self, columns: &'static [usize]) {
        if let Some(statement) = self.statements.last_mut() {
            statement.columns = columns;
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for statement in &self.statements {
            let numbers = self.numbers(statement);
            let table = statement.table + 1;
            write!(f, "{:?} sbtest{table} {numbers:?}; ", statement.what)?;
        }
        Ok(())
    }
}

/// Returns the columns that a SQL server selects by the index of k.
fn by_k(rows: bool) -> &'static [usize] {
    if rows { &[K, C] } else { &[K] }
}

/// Events of one client in one step.
#[derive(Debug, Clone)]
pub struct Events {
    random: Random,
    config: Config,
    kind: Kind,
    range: u64,
    rows: u64,
    tables: u64,
    client: u64,
    /// Distribution of the ids of updates that prefer low ids.
    zipf: Option<Zipf>,
}

impl Events {
    /// Creates the events of a client; `step` is the place of the step in the trial's list.
    pub fn new(config: &Config, kind: Kind, range: u64, step: u64, client: u64) -> Events {
        Events {
            random: Random::keyed(config.seed, &[EVENT_KEY, step, client]),
            config: config.clone(),
            kind,
            range,
            rows: config.rows,
            tables: u64::from(config.tables),
            client,
            zipf: (kind == Kind::UpdateZipf).then(|| Zipf::new(config.rows, config.zipf_exponent)),
        }
    }

    fn table(&mut self) -> usize {
        self.random.below(self.tables) as usize
    }

    /// Draws an id of the load or a value of k: both are from 1 to the number of rows.
    fn id(&mut self) -> u64 {
        1 + self.random.below(self.rows)
    }

    fn draw(&mut self) -> u64 {
        self.random.below(DRAWS)
    }

    /// Replaces `event` by the next one.
    pub fn next(&mut self, event: &mut Event) {
        event.clear();
        match self.kind {
            Kind::PointQuery => self.points(event, 1),
            Kind::RandomPoints { columns } => {
                let table = self.table();
                let range = self.range;
                event.push(What::Points, table, (0..range).map(|_| self.id()));
                event.ask(columns);
            }
            Kind::HotPoints => {
                let first = 1 + (self.rows / 2).min(self.rows - self.range);
                let table = self.table();
                event.push(What::Points, table, first..first + self.range);
                event.ask(&[C]);
            }
            Kind::PointsByK { rows } => self.points_by_k(event, rows),
            // Both ends are included.
            Kind::Range { columns } => {
                self.range(event, What::Range(Fold::Rows), self.range + 1);
                event.ask(columns);
            }
            Kind::RangeByK { rows } => {
                self.range(event, What::RangeByK { rows }, self.range + 1);
                event.ask(by_k(rows));
            }
            Kind::Count => self.range(event, What::Range(Fold::Count), self.range),
            Kind::PointsAndRange(fold) => {
                self.points(event, POINTS);
                self.range(event, What::Range(fold), self.range);
            }
            Kind::ReadOnly => self.reads(event),
            Kind::Scan => {
                event.push(What::Scan, (self.client % self.tables) as usize, []);
                event.ask(&[ID]);
            }
            Kind::ReadWrite => {
                self.reads(event);
                self.writes(event);
            }
            Kind::WriteOnly => self.writes(event),
            Kind::UpdateInList => self.update_in_list(event),
            Kind::UpdateIndex => self.add(event),
            Kind::UpdateNonIndex => {
                let id = self.id();
                self.set(event, id);
            }
            Kind::UpdateOne => self.set(event, 1),
            Kind::UpdateZipf => {
                let p = self.random.unit();
                let id = 1 + self.zipf.map_or(0, |zipf| zipf.quantile(p));
                self.set(event, id);
            }
            Kind::Delete => {
                let (table, id) = (self.table(), self.id());
                event.push(What::Delete, table, [id]);
            }
            Kind::Insert => {
                let table = self.table();
                let draws = [self.draw(), self.draw()];
                event.push(What::Insert, table, draws);
            }
        }
    }

    /// Adds `count` statements of one row each, all on one table.
    fn points(&mut self, event: &mut Event, count: u64) {
        let table = self.table();
        for _ in 0..count {
            let id = self.id();
            event.push(What::Points, table, [id]);
        }
    }

    /// Adds a lookup of a list of values, sorted and without duplicates.
    fn points_by_k(&mut self, event: &mut Event, rows: bool) {
        let table = self.table();
        let from = event.numbers.len();
        let range = self.range;
        event.push(
            What::PointsByK { rows },
            table,
            (0..range).map(|_| self.id()),
        );
        event.numbers[from..].sort_unstable();
        event.numbers.dedup();
        if let Some(statement) = event.statements.last_mut() {
            statement.numbers.1 = event.numbers.len();
        }
        event.ask(by_k(rows));
    }

    fn range(&mut self, event: &mut Event, what: What, numbers: u64) {
        let (table, first) = (self.table(), self.id());
        event.push(what, table, [first, first + numbers]);
    }

    fn reads(&mut self, event: &mut Event) {
        self.points(event, POINTS);
        for fold in [Fold::Rows, Fold::Sum, Fold::Order, Fold::Distinct] {
            self.range(event, What::Range(fold), self.range);
        }
    }

    fn writes(&mut self, event: &mut Event) {
        self.add(event);
        let id = self.id();
        self.set(event, id);
        let (table, id) = (self.table(), self.id());
        let draws = [self.draw(), self.draw()];
        event.push(What::Replace, table, [id, draws[0], draws[1]]);
    }

    fn add(&mut self, event: &mut Event) {
        let (table, id) = (self.table(), self.id());
        event.push(What::AddK, table, [id]);
    }

    fn set(&mut self, event: &mut Event, id: u64) {
        let (table, draw) = (self.table(), self.draw());
        event.push(What::SetC, table, [id, draw]);
    }

    /// Adds an update of a list of ids, sorted and without duplicates: a list changes a row once,
    /// and an embedded engine that locks in this order cannot deadlock.
    fn update_in_list(&mut self, event: &mut Event) {
        let (table, draw) = (self.table(), self.draw());
        let ids = rows::listed(&self.config, table, draw);
        let mut ids: Vec<u64> = ids.take(self.range as usize).collect();
        ids.sort_unstable();
        ids.dedup();
        event.push(What::SetCOfList, table, [draw].into_iter().chain(ids));
    }
}
