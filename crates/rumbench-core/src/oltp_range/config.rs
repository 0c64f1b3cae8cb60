//! Configuration of one trial of OLTP ranges, and the table of its keys.

use super::tests::{ORDER, RANGE_MAX, Step, TestDef};
use crate::settings::{
    ConfigError, Setting, decimal, effective, number, operations_of, read, seconds_of, setting,
    whole,
};
use crate::trial::PhaseEnd;

/// Name of the workload in messages and results.
pub const WORKLOAD: &str = "oltp-range";

/// Configuration of a trial. `docs/guide/oltp-range.md` explains each key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Number of tables.
    pub tables: u32,
    /// Rows of each table after the load.
    pub rows: u64,
    /// Range of the tests that have one, unless the step gives it; `None`: the default of the test.
    pub range: Option<u64>,
    /// List of steps given by a setting; `None`: the published order.
    pub steps: Option<Vec<Step>>,
    /// Number of clients of the tests, and of the load (at most one per table).
    pub clients: u32,
    /// End of each test.
    pub end: PhaseEnd,
    /// Rows of one transaction of the load.
    pub load_batch: u64,
    /// Exponent of the Zipf distribution of the ids of `update-zipf`.
    pub zipf_exponent: f64,
    /// Seed of all rows and all events.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            tables: 1,
            rows: 1_000_000,
            range: None,
            steps: None,
            clients: 1,
            end: PhaseEnd::Seconds(60.0),
            load_batch: 100,
            zipf_exponent: 0.8,
            seed: 1,
        }
    }
}

/// All keys, in the order of the guide.
#[rustfmt::skip] // One key a line.
pub const SETTINGS: &[Setting<Config>] = &[
    number!("tables", "tables", c => c.tables, whole(1, 1024)),
    number!("rows", "rows of each table after the load", c => c.rows, whole(2, 1 << 31)),
    setting("range", "rows of a range, or ids of a list, of every test whose step gives none; if not given each test's own",
        |c| c.range.map(|range| range.to_string()),
        |c, value| whole(value, 1, RANGE_MAX).map(|x| c.range = Some(x))),
    setting("steps", "the list of steps, instead of the published order; NAME:R gives a range, warmup-NAME is not recorded",
        |c| Some(c.steps().iter().map(Step::to_string).collect::<Vec<_>>().join(",")),
        |c, value| steps_of(value).map(|steps| c.steps = Some(steps))),
    number!("clients", "clients; each runs one event after the other", c => c.clients, whole(1, 1024)),
    setting("seconds", "length of each test in seconds",
        |c| seconds_of(Some(c.end)),
        |c, value| decimal(value, 0.1, 1e7).map(|x| c.end = PhaseEnd::Seconds(x))),
    setting("operations", "events of each test over all clients, instead of seconds",
        |c| operations_of(Some(c.end)),
        |c, value| whole(value, 1, u64::MAX).map(|x| c.end = PhaseEnd::Operations(x))),
    number!("load_batch", "rows of one transaction of the load", c => c.load_batch, whole(1, 10_000)),
    number!("zipf_exponent", "exponent of the Zipf distribution of the ids of update-zipf", c => c.zipf_exponent, decimal(0.01, 0.99)),
    number!("seed", "decides all rows and all events", c => c.seed, whole(0, u64::MAX)),
];

fn steps_of(value: &str) -> Result<Vec<Step>, String> {
    value.split(',').map(str::trim).map(Step::named).collect()
}

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
        let steps = self.steps();
        if steps.iter().filter(|step| **step == Step::Load).count() != 1
            || steps.first() != Some(&Step::Load)
        {
            return Some("steps must begin with load and hold it once".to_owned());
        }
        let builds = steps.iter().position(|step| *step == Step::Index);
        for (place, step) in steps.iter().enumerate() {
            let Step::Test { test, range, .. } = step else {
                continue;
            };
            if test.name.ends_with("-si") && builds.is_none_or(|builds| builds > place) {
                return Some(format!(
                    "{step} needs the index: put index before it in steps"
                ));
            }
            if range.unwrap_or(0) > self.rows {
                return Some(format!(
                    "{step} is longer than a table of rows={}",
                    self.rows
                ));
            }
        }
        (self.range > Some(self.rows)).then(|| {
            format!(
                "range={} is longer than a table of rows={}",
                self.range.unwrap_or(0),
                self.rows
            )
        })
    }

    /// Returns every effective setting as text, in the order of the guide.
    pub fn settings(&self) -> Vec<(String, String)> {
        effective(SETTINGS, self)
    }

    /// Returns the steps in order. Steps of the published order with a range longer than a table
    /// are left out.
    pub fn steps(&self) -> Vec<Step> {
        let fits = |step: &Step| match step {
            Step::Test { range, .. } => range.unwrap_or(0) <= self.rows,
            _ => true,
        };
        match &self.steps {
            Some(steps) => steps.clone(),
            None => {
                let all = ORDER.iter().filter_map(|name| Step::named(name).ok());
                all.filter(fits).collect()
            }
        }
    }

    /// Returns the range of a step: its own, the configured one, or the test's, never longer than a
    /// table.
    pub fn range_of(&self, test: &TestDef, given: Option<u64>) -> u64 {
        let range = given.or(self.range.filter(|_| test.range > 0));
        range.unwrap_or(test.range).min(self.rows)
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn refusal(pairs: &[(&str, &str)]) -> String {
        let refused = Config::from_pairs(pairs.iter().copied());
        refused.unwrap_err().to_string()
    }

    #[test]
    fn printed_settings_read_back() {
        for pairs in [
            &[("operations", "10"), ("range", "50")][..],
            &[
                ("rows", "100"),
                ("steps", "load,read-only:7,warmup-scan,delete"),
            ],
        ] {
            let config = Config::from_pairs(pairs.iter().copied()).unwrap();
            let again = Config::from_pairs(config.settings()).unwrap();
            assert_eq!(again.settings(), config.settings());
        }
    }

    #[test]
    fn invalid_settings_are_rejected_with_a_reason() {
        assert!(refusal(&[("rows", "1")]).contains("from 2 to"));
        assert!(refusal(&[("steps", "scan")]).contains("begin with load"));
        assert!(refusal(&[("steps", "load,scan,load")]).contains("hold it once"));
        let index = refusal(&[("steps", "load,range-covered-si,index")]);
        assert!(index.contains("put index before it"), "{index}");
        let long = refusal(&[("rows", "99"), ("steps", "load,read-only:100")]);
        assert!(
            long.contains("read-only:100 is longer than a table"),
            "{long}"
        );
        assert!(refusal(&[("rows", "9"), ("range", "10")]).contains("range=10 is longer"));
        assert!(refusal(&[("seconds", "1"), ("operations", "1")]).contains("not both"));
        assert!(refusal(&[("steps", "load,scna")]).contains("did you mean `scan`?"));
    }

    #[test]
    fn a_step_says_its_range_or_has_that_of_the_settings_or_of_the_test() {
        let config = Config::from_pairs([("range", "50")]).unwrap();
        let test = |name| super::super::tests::find(name).unwrap();
        assert_eq!(config.range_of(test("read-only"), Some(7)), 7);
        assert_eq!(config.range_of(test("read-only"), None), 50);
        assert_eq!(config.range_of(test("scan"), None), 0);
        let config = Config::from_pairs([("rows", "500")]).unwrap();
        assert_eq!(config.range_of(test("read-only-sum"), None), 500);
        assert_eq!(config.range_of(test("hot-points"), None), 100);
    }
}
