//! Setting keys of the Insert Benchmark: one table for reading, printing and explaining them.

use super::config::{Config, Form, SettleEnd, Spread};
use super::rows::IndexSet;
use super::steps::{Step, Writes};
use crate::settings::{
    Setting, choice, choose, decimal, name_of, number, operations_of, seconds_of, setting, whole,
};
use crate::trial::PhaseEnd;

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
