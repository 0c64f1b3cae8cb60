//! Keys of a custom workload on the command line: one table for parsing, printing and explaining
//! them.

use super::config::Config;
use crate::settings::{
    Setting, choose, decimal, name_of, number, operations_of, seconds_of, setting, whole,
};
use crate::trial::PhaseEnd;

const YES_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];

/// All keys, in the guide's order.
#[rustfmt::skip] // One key a line.
pub const SETTINGS: &[Setting<Config>] = &[
    setting("rows", "rows of the table, instead of the file's; for a file of one table",
        |c| c.rows.map(|rows| rows.to_string()),
        |c, value| whole(value, 1, 1 << 35).map(|x| c.rows = Some(x))),
    number!("scale", "factor on the rows of all tables", c => c.scale, decimal(1e-9, 1e9)),
    setting("max_rows", "rows of each table at most",
        |c| c.max_rows.map(|rows| rows.to_string()),
        |c, value| whole(value, 1, 1 << 35).map(|x| c.max_rows = Some(x))),
    setting("clients", "clients of all phases, instead of the file's",
        |c| c.clients.map(|clients| clients.to_string()),
        |c, value| whole(value, 1, 1024).map(|x| c.clients = Some(x as u32))),
    setting("seconds", "length of each phase of kind run in seconds, instead of the file's ends",
        |c| seconds_of(c.end),
        |c, value| decimal(value, 0.1, 1e7).map(|x| c.end = Some(PhaseEnd::Seconds(x)))),
    setting("requests", "operations of each phase of kind run over all clients, instead of the file's ends",
        |c| operations_of(c.end),
        |c, value| whole(value, 1, 1 << 60).map(|x| c.end = Some(PhaseEnd::Operations(x)))),
    number!("repeats", "how often the last phase of kind run is run, one after the other", c => c.repeats, whole(1, 1000)),
    setting("batch", "rows of one transaction of the load, instead of the file's",
        |c| c.batch.map(|rows| rows.to_string()),
        |c, value| whole(value, 1, 100_000).map(|x| c.batch = Some(x))),
    setting("rates", "whether the rates in the file count, or all phases run as fast as they can",
        |c| name_of(&YES_NO, &c.rates),
        |c, value| choose(value, &YES_NO).map(|x| c.rates = x)),
    number!("seed", "decides all rows and all operations", c => c.seed, whole(0, u64::MAX)),
];
