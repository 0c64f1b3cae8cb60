//! Keys of kv-sequence: one table for parsing, printing and explaining them.

use super::config::{Cached, Config, Form};
use super::steps::{self, StepDef};
use super::value;
use crate::names::unknown;
use crate::settings::{
    Setting, choice, choose, decimal, name_of, number, operations_of, seconds_of, setting, whole,
};
use crate::trial::PhaseEnd;

/// All keys, in the guide's order.
#[rustfmt::skip] // One key a line.
pub const SETTINGS: &[Setting<Config>] = &[
    number!("keys", "rows of the table", c => c.keys, whole(1, 1 << 40)),
    number!("key_bytes", "bytes of a key: its number and a filler", c => c.key_bytes, whole(8, 256)),
    number!("value_bytes", "bytes of a value", c => c.value_bytes, whole(value::VALUE_BYTES_MIN, 1 << 20)),
    number!("compression_ratio", "share of its size that a value can be compressed to", c => c.compression_ratio, decimal(0.01, 1.0)),
    choice!("form", "the list of steps: that of the posts of 2023 or 2025, or the micro-benchmarks", c => c.form,
        [("2023", Form::Y2023), ("2025", Form::Y2025), ("micro", Form::Micro)]),
    setting("steps", "the list of steps, instead of a form's",
        |c| Some(c.steps().iter().map(|step| step.name).collect::<Vec<_>>().join(",")),
        |c, value| steps_of(value).map(|steps| c.steps = Some(steps))),
    number!("clients", "clients of all steps but loads and revrange", c => c.clients, whole(1, 4096)),
    setting("seconds", "length of each timed step in seconds",
        |c| seconds_of(Some(c.end)),
        |c, value| decimal(value, 1e-3, 1e9).map(|x| c.end = PhaseEnd::Seconds(x))),
    setting("operations", "operations of each timed step over all clients",
        |c| operations_of(Some(c.end)),
        |c, value| whole(value, 1, u64::MAX).map(|x| c.end = PhaseEnd::Operations(x))),
    setting("load_rows", "rows of one commit of the load; if not given 1 in fillseq and 1000 in load",
        |c| c.load_rows.map(|rows| rows.to_string()),
        |c, value| whole(value, 1, 1 << 20).map(|x| c.load_rows = Some(x))),
    choice!("load_log", "whether the load is of the trial's durability class; if not, it is of class none, and the database is opened again after it", c => c.load_logged,
        [("yes", true), ("no", false)]),
    choice!("reopen", "whether the database is closed and opened again before each step, so that its cache is cold", c => c.reopen,
        [("no", false), ("yes", true)]),
    number!("writer_mib_per_s", "MiB of keys and values per second of the background writer", c => c.writer_mib_per_s, decimal(1e-3, 1e5)),
    choice!("cached", "what holds the table: the engine's cache, the kernel's page cache or neither; chooses keys and cache_bytes where they are not given", c => c.cached,
        [("as-given", Cached::AsGiven), ("engine", Cached::Engine), ("os", Cached::Os), ("no", Cached::No)]),
    setting("memory_bytes", "memory that cached counts with; if not given that of the machine",
        |c| c.memory_bytes.map(|bytes| bytes.to_string()),
        |c, value| whole(value, 1 << 20, 1 << 50).map(|x| c.memory_bytes = Some(x))),
    number!("seed", "decides all rows and all operations", c => c.seed, whole(0, u64::MAX)),
];

fn steps_of(value: &str) -> Result<Vec<&'static StepDef>, String> {
    let known: Vec<&str> = steps::STEPS.iter().map(|step| step.name).collect();
    let step = |name: &str| steps::find(name).ok_or_else(|| unknown("step", name, &known));
    value.split(',').map(str::trim).map(step).collect()
}
