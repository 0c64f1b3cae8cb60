//! Configuration of one Insert Benchmark trial, read from `key=value` settings.

use std::time::Duration;

use super::steps::{Action, Step, Writes};
use crate::settings::{
    ConfigError, Setting, choice, choose, decimal, effective, name_of, number, operations_of, read,
    seconds_of, setting, whole,
};
use crate::trial::PhaseEnd;

/// Name of the workload in messages and results.
pub const WORKLOAD: &str = "insert-benchmark";
/// Rows that `l.x` inserts into each table before it builds the indexes.
pub const ROWS_L_X: u64 = 100;

/// Named list of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The ten steps of 2023 and later.
    Y2023,
    /// One stream of inserts into one table; its indexes exist from the start.
    Y2016,
}

/// Distribution of background inserts over a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Equal gaps.
    Even,
    /// All at the start of the second, as in the reference.
    Burst,
}

/// End condition of a settle step that other steps follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleEnd {
    /// Ends when the engine has no backlog.
    Backlog,
    /// As `Backlog`, but not before the reference's wait is over.
    Reference,
}

/// Set of columns of the indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexSet {
    /// Columns until December 2023; prices depend on the customer.
    Y2016,
    /// Columns as described by the post of December 2023.
    Post2023,
    /// Columns of the code since then.
    Code2023,
}

/// Configuration of an Insert Benchmark trial. `docs/guide/insert-benchmark.md` explains each key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Rows that the load inserts into each table.
    pub rows: u64,
    /// Rows that `l.i1` inserts into each table; `None`: four fifths of `rows`.
    pub rows_l_i1: Option<u64>,
    /// Rows that `l.i2` inserts into each table; `None`: a fifth of `rows`.
    pub rows_l_i2: Option<u64>,
    /// Number of tables; `None`: as many as clients.
    pub tables: Option<u32>,
    /// Number of clients. Each has separate connections for inserts, deletes and queries.
    pub clients: u32,
    /// Form that gives the list of steps if `steps` is `None`.
    pub form: Form,
    /// List of steps given by a setting.
    pub steps: Option<Vec<Step>>,
    /// Columns of the indexes; `None`: as the form.
    pub index_set: Option<IndexSet>,
    /// Number of indexes, counted from the first of the set.
    pub indexes: usize,
    /// End of each query step.
    pub end: PhaseEnd,
    /// Distribution of background inserts over a second.
    pub spread: Spread,
    /// End condition of a settle step that other steps follow.
    pub settle: SettleEnd,
    /// Rows of one transaction in `l.i0` and `l.x`.
    pub load_batch: u64,
    /// Rows of one transaction in `l.i1` and of background inserts.
    pub batch: u64,
    /// Rows of one transaction in `l.i2`.
    pub small_batch: u64,
    /// Rows of one range query, and keys of one query by primary key.
    pub query_rows: usize,
    /// Delete statements between two reads of the lowest key; 0: only the first statement reads it.
    pub resync: u64,
    /// Number of distinct cash registers.
    pub cash_registers: u32,
    /// Number of distinct products.
    pub products: u32,
    /// Number of distinct customers.
    pub customers: u32,
    /// Exclusive upper bound of prices.
    pub max_price: u32,
    /// Shortest text of a row in characters.
    pub data_min: u64,
    /// Longest text of a row in characters.
    pub data_max: u64,
    /// Share of the text that is random bytes before encoding, in percent.
    pub data_random_percent: u64,
    /// Rows of a table that share a second of `dateandtime`.
    pub rows_per_second: u64,
    /// Seed of all rows and all operations.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            rows: 1_000_000,
            rows_l_i1: None,
            rows_l_i2: None,
            tables: None,
            clients: 1,
            form: Form::Y2023,
            steps: None,
            index_set: None,
            indexes: 3,
            end: PhaseEnd::Seconds(60.0),
            spread: Spread::Even,
            settle: SettleEnd::Backlog,
            load_batch: 100,
            batch: 50,
            small_batch: 5,
            query_rows: 10,
            resync: 1000,
            cash_registers: 1000,
            products: 10_000,
            customers: 100_000,
            max_price: 500,
            data_min: 10,
            data_max: 20,
            data_random_percent: 50,
            rows_per_second: 1000,
            seed: 1,
        }
    }
}

const INDEX_SETS: [(&str, IndexSet); 3] = [
    ("2016", IndexSet::Y2016),
    ("2023-post", IndexSet::Post2023),
    ("2023", IndexSet::Code2023),
];

/// All keys, in the order of the guide.
#[rustfmt::skip] // One key a line.
pub const SETTINGS: &[Setting<Config>] = &[
    number!("rows", "rows that l.i0 loads into each table", c => c.rows, whole(1, 1 << 40)),
    setting("rows_l_i1", "rows that l.i1 inserts into each table and deletes; if not given 4/5 of rows",
        |c| Some(c.rows_of(Writes::First).to_string()),
        |c, value| whole(value, 1, 1 << 40).map(|x| c.rows_l_i1 = Some(x))),
    setting("rows_l_i2", "rows that l.i2 inserts into each table and deletes; if not given 1/5 of rows",
        |c| Some(c.rows_of(Writes::Second).to_string()),
        |c, value| whole(value, 1, 1 << 40).map(|x| c.rows_l_i2 = Some(x))),
    setting("tables", "tables; if not given one for each client",
        |c| Some(c.tables().to_string()),
        |c, value| whole(value, 1, 1024).map(|x| c.tables = Some(x as u32))),
    number!("clients", "clients; each inserts, deletes and queries on a thread for each", c => c.clients, whole(1, 1024)),
    choice!("form", "the ten steps of 2023, or one stream of inserts into a table with its indexes as in 2016", c => c.form,
        [("2023", Form::Y2023), ("2016", Form::Y2016)]),
    setting("steps", "the list of steps, instead of a form's",
        |c| Some(c.steps().iter().map(Step::to_string).collect::<Vec<_>>().join(",")),
        |c, value| steps_of(value).map(|steps| c.steps = Some(steps))),
    setting("index_set", "columns of the indexes: of 2016, of the text of December 2023 or of the code since then",
        |c| name_of(&INDEX_SETS, &c.index_set()),
        |c, value| choose(value, &INDEX_SETS).map(|x| c.index_set = Some(x))),
    number!("indexes", "secondary indexes, the first of the set", c => c.indexes, whole(0, 3)),
    setting("seconds", "length of each query step in seconds: its background inserts are seconds times the rate in its name",
        |c| seconds_of(Some(c.end)),
        |c, value| decimal(value, 0.1, 1e7).map(|x| c.end = PhaseEnd::Seconds(x))),
    setting("operations", "queries of each query step over all clients, instead of seconds",
        |c| operations_of(Some(c.end)),
        |c, value| whole(value, 1, u64::MAX).map(|x| c.end = PhaseEnd::Operations(x))),
    choice!("background", "background inserts in equal gaps or all at the start of a second", c => c.spread,
        [("even", Spread::Even), ("burst", Spread::Burst)]),
    choice!("settle", "a settle before other steps ends with the backlog, or not before min(1200, 60 + rows/1000000) seconds as the reference waits", c => c.settle,
        [("backlog", SettleEnd::Backlog), ("reference", SettleEnd::Reference)]),
    number!("load_batch", "rows of one transaction in l.i0", c => c.load_batch, whole(1, 10_000)),
    number!("batch", "rows of one transaction in l.i1 and during queries", c => c.batch, whole(1, 10_000)),
    number!("small_batch", "rows of one transaction in l.i2", c => c.small_batch, whole(1, 10_000)),
    number!("query_rows", "rows of one range query, and keys of one query by primary key", c => c.query_rows, whole(1, 10_000)),
    number!("resync", "delete statements between two reads of the lowest key; 0: only the first", c => c.resync, whole(0, 1 << 40)),
    number!("cash_registers", "distinct cash registers", c => c.cash_registers, whole(1, 1 << 31)),
    number!("products", "distinct products", c => c.products, whole(1, 1 << 31)),
    number!("customers", "distinct customers", c => c.customers, whole(1, 1 << 30)),
    number!("max_price", "prices are below this", c => c.max_price, whole(1, 1 << 30)),
    number!("data_min", "shortest text of a row in characters", c => c.data_min, whole(0, 1 << 20)),
    number!("data_max", "longest text of a row in characters", c => c.data_max, whole(0, 1 << 20)),
    number!("data_random_percent", "share of the text that is random bytes before their encoding, in percent", c => c.data_random_percent, whole(0, 100)),
    number!("rows_per_second", "rows of a table that share a second of dateandtime", c => c.rows_per_second, whole(1, 1 << 40)),
    number!("seed", "decides all rows and all operations", c => c.seed, whole(0, u64::MAX)),
];

fn steps_of(value: &str) -> Result<Vec<Step>, String> {
    value.split(',').map(str::trim).map(Step::named).collect()
}

const FORM_2023: [Action; 11] = [
    Action::Load,
    Action::Index,
    Action::Write(Writes::First),
    Action::Write(Writes::Second),
    Action::Settle,
    Action::Ranges(100),
    Action::Points(100),
    Action::Ranges(500),
    Action::Points(500),
    Action::Ranges(1000),
    Action::Points(1000),
];

impl Config {
    /// Reads settings; the last value of a repeated key counts.
    ///
    /// # Errors
    /// Fails on an unknown key, a forbidden value (the message names the allowed values), or
    /// settings that exclude each other.
    pub fn from_pairs<K, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Result<Config, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        read(WORKLOAD, SETTINGS, pairs, Config::refusal)
    }

    /// Returns the reason why these settings exclude each other, if they do.
    fn refusal(&self) -> Option<String> {
        let steps = &self.steps();
        let loads = |step: &&Step| step.0 == Action::Load;
        if !steps.first().is_some_and(|step| loads(&step)) || steps.iter().filter(loads).count() > 1
        {
            return Some("steps must begin with l.i0 and hold it once".to_owned());
        }
        let place = |wanted: fn(Action) -> bool| steps.iter().position(|step| wanted(step.0));
        let builds = place(|action| action == Action::Index);
        let ranges = place(|action| matches!(action, Action::Ranges(_)));
        if let Some(ranges) = ranges {
            let name = steps[ranges];
            if self.indexes == 0 {
                return Some(format!("{name} needs an index: indexes=0 leaves none"));
            }
            if !self.indexes_at_start() && builds.is_none_or(|builds| builds > ranges) {
                return Some(format!(
                    "{name} needs the indexes: put l.x before it in steps"
                ));
            }
        }
        if let Some(why) = self.refusal_of_builds(steps) {
            return Some(why);
        }
        if self.tables() > self.clients || !self.clients.is_multiple_of(self.tables()) {
            return Some(format!(
                "clients={} must be tables={} or a multiple of it",
                self.clients,
                self.tables()
            ));
        }
        if self.data_min > self.data_max {
            return Some("data_min must not be above data_max".to_owned());
        }
        None
    }

    /// Returns the reason why `steps` cannot build the indexes, if there is one. A step that builds
    /// nothing would report the rate of all its rows.
    fn refusal_of_builds(&self, steps: &[Step]) -> Option<String> {
        let builds = steps.iter().filter(|step| step.0 == Action::Index);
        match builds.count() {
            0 => None,
            _ if self.indexes_at_start() => Some(
                "l.x builds indexes, which form=2016 has from the start: leave it out".to_owned(),
            ),
            _ if self.indexes == 0 => {
                Some("l.x builds indexes, and indexes=0 has none: leave it out of steps".to_owned())
            }
            1 => None,
            _ => Some("steps hold l.x twice: there is nothing left to build".to_owned()),
        }
    }

    /// Returns every effective setting as text, in the order of the guide.
    pub fn settings(&self) -> Vec<(String, String)> {
        effective(SETTINGS, self)
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> Vec<Step> {
        match (&self.steps, self.form) {
            (Some(steps), _) => steps.clone(),
            (None, Form::Y2023) => FORM_2023.map(Step).to_vec(),
            (None, Form::Y2016) => vec![Step(Action::Load)],
        }
    }

    /// Returns the shortest duration of a settle step that other steps follow. For
    /// [`SettleEnd::Reference`] it is 60 s plus one for each million loaded rows, at most 1,200 s,
    /// as the scripts of the reference wait between `l.i2` and `qr100`.
    pub fn settle_at_least(&self) -> Duration {
        const ROWS_OF_A_SECOND: u64 = 1_000_000;
        let loaded = self.rows * u64::from(self.tables());
        match self.settle {
            SettleEnd::Backlog => Duration::ZERO,
            SettleEnd::Reference => Duration::from_secs((60 + loaded / ROWS_OF_A_SECOND).min(1200)),
        }
    }

    /// Returns the number of tables.
    pub fn tables(&self) -> u32 {
        self.tables.unwrap_or(self.clients)
    }

    /// Returns true if the indexes are built before the load.
    pub fn indexes_at_start(&self) -> bool {
        self.form == Form::Y2016
    }

    /// Returns the columns of the indexes.
    pub fn index_set(&self) -> IndexSet {
        self.index_set.unwrap_or(match self.form {
            Form::Y2023 => IndexSet::Code2023,
            Form::Y2016 => IndexSet::Y2016,
        })
    }

    /// Returns the rows that a write step inserts into each table, and deletes.
    pub fn rows_of(&self, writes: Writes) -> u64 {
        // The reference has Y = 4/5 W and Z = W - Y, W being `rows`; at least one row each.
        let first = (self.rows.saturating_mul(4) + 2) / 5;
        match writes {
            Writes::First => self.rows_l_i1.unwrap_or(first).max(1),
            Writes::Second => self.rows_l_i2.unwrap_or(self.rows - first).max(1),
        }
    }

    /// Returns the rows of one transaction of a write step.
    pub fn batch_of(&self, writes: Writes) -> u64 {
        match writes {
            Writes::First => self.batch,
            Writes::Second => self.small_batch,
        }
    }

    /// Returns the rows of one background transaction: at most the rows of one second.
    pub fn background_batch(&self, rate: u64) -> u64 {
        self.batch.min(rate)
    }

    /// Estimates the bytes of a row and its index entries, with the mean length of the text.
    pub fn row_bytes(&self) -> u64 {
        let entry = 8 + 3 * 4;
        8 + 5 * 4 + (self.data_min + self.data_max) / 2 + self.indexes as u64 * entry
    }
}
