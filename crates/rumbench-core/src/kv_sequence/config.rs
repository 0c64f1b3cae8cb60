//! Configuration of one kv-sequence trial, parsed from `key=value` settings.

use super::steps::{self, Action, End, StepDef};
use super::value;
use crate::names::unknown;
use crate::settings::{
    ConfigError, Setting, choice, choose, decimal, effective, name_of, number, operations_of, read,
    seconds_of, setting, whole,
};
use crate::trial::PhaseEnd;

/// Name of the workload in messages and results.
pub const WORKLOAD: &str = "kv-sequence";

/// A named list of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The list of December 2023.
    Y2023,
    /// The list of 2025, without the read-only steps.
    Y2025,
    /// The micro-benchmarks.
    Micro,
}

/// Cache that holds the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cached {
    /// Any: the settings give the number of keys and the cache size.
    AsGiven,
    /// The engine's own cache.
    Engine,
    /// The kernel's page cache; the engine's own is small.
    Os,
    /// Neither: the table is five times as large as memory.
    No,
}

/// Configuration of a kv-sequence trial. `docs/guide/kv-sequence.md` explains each key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Rows of the table.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Fraction of its size that a value can be compressed to.
    pub compression_ratio: f64,
    /// Named list of steps, used if `steps` is not given.
    pub form: Form,
    /// Explicit list of steps.
    pub steps: Option<Vec<&'static StepDef>>,
    /// Clients of most steps.
    pub clients: u32,
    /// End of each timed step.
    pub end: PhaseEnd,
    /// Rows of one commit of a load; `None`: the default of the step.
    pub load_rows: Option<u64>,
    /// True if the load runs in the trial's durability class. Otherwise it runs in class `none`,
    /// and the database is reopened after it.
    pub load_logged: bool,
    /// True if the database is reopened before each step except the first one and settles.
    pub reopen: bool,
    /// Rate of the background writer, in MiB of keys and values per second.
    pub writer_mib_per_s: f64,
    /// Cache that holds the table; unless `AsGiven`, it decides keys and cache size (see
    /// [`sized`]).
    pub cached: Cached,
    /// Memory from which `cached` computes sizes; `None`: that of the machine.
    pub memory_bytes: Option<u64>,
    /// Seed of all rows and all operations.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            keys: 1_000_000,
            key_bytes: 20,
            value_bytes: 400,
            compression_ratio: 0.5,
            form: Form::Y2023,
            steps: None,
            clients: 1,
            end: PhaseEnd::Seconds(60.0),
            load_rows: None,
            load_logged: true,
            reopen: false,
            writer_mib_per_s: 2.0,
            cached: Cached::AsGiven,
            memory_bytes: None,
            seed: 1,
        }
    }
}

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

impl Config {
    /// Parses settings; the last of a repeated key counts.
    ///
    /// # Errors
    /// An unknown key, a value that is not allowed (with the allowed ones), or values that exclude
    /// each other.
    pub fn from_pairs<K, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Result<Config, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        read(WORKLOAD, SETTINGS, pairs, Config::refusal)
    }

    /// Returns a message unless the first step is a load and no later step is one: the database is
    /// empty at the start, and rows are new only once.
    fn refusal(&self) -> Option<String> {
        let loads = |step: &&StepDef| step.action == Action::Load;
        let steps = self.steps();
        if steps.first().is_some_and(loads) && !steps.iter().skip(1).any(loads) {
            return None;
        }
        Some("steps must begin with fillseq or load and hold no other of them".to_owned())
    }

    /// Returns every effective setting as text, in the guide's order.
    pub fn settings(&self) -> Vec<(String, String)> {
        effective(SETTINGS, self)
    }

    /// Returns the steps in order, without settles that the workload adds itself.
    pub fn steps(&self) -> Vec<&'static StepDef> {
        let named = |names: &[&str]| names.iter().filter_map(|name| steps::find(name)).collect();
        match (&self.steps, self.form) {
            (Some(steps), _) => steps.clone(),
            (None, Form::Y2023) => named(steps::FORM_2023),
            (None, Form::Y2025) => named(steps::FORM_2025),
            (None, Form::Micro) => named(steps::FORM_MICRO),
        }
    }

    /// Returns the end of a step.
    pub fn end_of(&self, step: &StepDef) -> PhaseEnd {
        match (step.end, self.end) {
            (End::Work, _) => PhaseEnd::Work,
            (End::Timed, end) => end,
            (End::AtMost(most), PhaseEnd::Seconds(seconds)) => {
                PhaseEnd::Seconds(seconds.min(f64::from(most)))
            }
            (End::AtMost(_), end) => end,
            (End::Keys(each), _) => PhaseEnd::Operations((self.keys / each).max(1)),
        }
    }

    /// Returns the rows of one commit of a load.
    pub fn load_rows_of(&self, step: &StepDef) -> u64 {
        let usual = if step.name == "fillseq" { 1 } else { 1000 };
        self.load_rows.unwrap_or(usual)
    }

    /// Returns the bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }

    /// Returns the writes per second of the background writer.
    pub fn writer_per_second(&self) -> f64 {
        self.writer_mib_per_s * f64::from(1 << 20) / self.row_bytes() as f64
    }
}

/// Returns the number of keys and `cache_bytes` for a machine with this memory, in the proportions
/// of the published configurations. A table in either cache has half of the memory's size, any
/// other five times. The engine's cache has 5/8 of it, or 1/16 if the kernel's cache is to hold the
/// table. `None` for [`Cached::AsGiven`].
pub fn sized(cached: Cached, memory_bytes: u64, row_bytes: u64) -> Option<(u64, u64)> {
    let (table, cache) = match cached {
        Cached::AsGiven => return None,
        Cached::Engine => (memory_bytes / 2, memory_bytes / 8 * 5),
        Cached::Os => (memory_bytes / 2, memory_bytes / 16),
        Cached::No => (memory_bytes * 5, memory_bytes / 8 * 5),
    };
    Some(((table / row_bytes).max(1), cache))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pairs: &[(&str, &str)]) -> String {
        Config::from_pairs(pairs.iter().copied())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn printed_settings_read_back() {
        for form in ["2023", "2025", "micro"] {
            let config = Config::from_pairs([("form", form), ("operations", "10")]).unwrap();
            let read_back = Config::from_pairs(config.settings()).unwrap();
            assert_eq!(read_back.settings(), config.settings());
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_is_allowed() {
        assert_eq!(refusal(&[("key", "5")]), "unknown kv-sequence setting key");
        assert!(refusal(&[("key_bytes", "7")]).contains("from 8 to 256"));
        assert!(refusal(&[("steps", "load,gett")]).contains("did you mean `get`?"));
        assert!(refusal(&[("steps", "get")]).contains("must begin with fillseq or load"));
        assert!(refusal(&[("steps", "load,get,load")]).contains("no other"));
        assert!(refusal(&[("seconds", "1"), ("operations", "1")]).contains("not both"));
    }

    #[test]
    fn steps_end_as_the_posts_say() {
        let config = Config::from_pairs([("seconds", "1800"), ("keys", "1000")]).unwrap();
        let end = |name| config.end_of(steps::find(name).unwrap());
        assert_eq!(end("fillseq"), PhaseEnd::Work);
        assert_eq!(end("revrange"), PhaseEnd::Seconds(300.0));
        assert_eq!(end("readrandom"), PhaseEnd::Seconds(1800.0));
        assert_eq!(end("overwritesome"), PhaseEnd::Operations(100));
        assert_eq!(config.writer_per_second().round(), 4993.0);
    }

    #[test]
    fn sizes_follow_memory() {
        const GIB: u64 = 1 << 30;
        assert_eq!(sized(Cached::AsGiven, 16 * GIB, 420), None);
        let (keys, cache) = sized(Cached::Engine, 16 * GIB, 420).unwrap();
        assert_eq!((keys / 1_000_000, cache), (20, 10 * GIB));
        assert_eq!(sized(Cached::Os, 16 * GIB, 420), Some((keys, GIB)));
        let (keys, _) = sized(Cached::No, 16 * GIB, 420).unwrap();
        assert_eq!(keys / 1_000_000, 204);
    }
}
