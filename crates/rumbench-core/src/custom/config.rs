//! Configuration of one trial of a custom workload: its definition and the overrides of the command
//! line.

use super::definition::{Definition, DefinitionError, PhaseDef, PhaseKind};
use super::read;
use crate::settings::{
    ConfigError, Setting, apply, choose, decimal, effective, name_of, number, operations_of, owned,
    refuse_both, seconds_of, setting, whole,
};
use crate::trial::PhaseEnd;

/// Name of this kind of workload in messages about settings.
pub const WORKLOAD: &str = "own workload";

/// Definition and its overrides; `None` keeps the values of the file.
/// `docs/guide/own-workloads.md` explains each key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The definition as the file gives it.
    pub definition: Definition,
    /// Number of rows of the table; only for a file with one table.
    pub rows: Option<u64>,
    /// Factor on the rows of all tables.
    pub scale: f64,
    /// Maximum number of rows of each table.
    pub max_rows: Option<u64>,
    /// Clients of every phase of kind load or run.
    pub clients: Option<u32>,
    /// Length of every phase of kind run, in seconds or operations.
    pub end: Option<PhaseEnd>,
    /// Number of times that the last phase of kind run is run, at least 1.
    pub repeats: usize,
    /// Rows of one transaction of the load.
    pub batch: Option<u64>,
    /// True if the rates in the file apply; false if all phases run as fast as they can.
    pub rates: bool,
    /// Seed of all rows and all operations.
    pub seed: u64,
}

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

impl Config {
    /// Parses the text of a definition; messages call it `file`.
    ///
    /// # Errors
    /// The first mistake, with its line and the allowed values.
    pub fn read(file: &str, text: &str) -> Result<Config, DefinitionError> {
        Ok(Config {
            definition: read::definition(file, text)?,
            rows: None,
            scale: 1.0,
            max_rows: None,
            clients: None,
            end: None,
            repeats: 1,
            batch: None,
            rates: true,
            seed: 1,
        })
    }

    /// Applies settings of the command line; the last of a repeated key counts.
    ///
    /// # Errors
    /// An unknown key, a value that is not allowed (with the allowed ones), two mutually
    /// exclusive keys, or `rows` for a file with several tables.
    pub fn with_settings<K, V>(
        mut self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Config, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let pairs = owned(pairs);
        for (key, value) in &pairs {
            apply(WORKLOAD, SETTINGS, &mut self, key, value)?;
        }
        refuse_both(
            WORKLOAD,
            &pairs,
            &[("seconds", "requests"), ("rows", "scale")],
        )?;
        if self.rows.is_some() && self.definition.tables.len() > 1 {
            return Err(ConfigError::Combination {
                workload: WORKLOAD,
                reason: "rows is for a file of one table; give scale".to_owned(),
            });
        }
        Ok(self)
    }

    /// Returns every effective setting as text, and `rows.NAME` for each table.
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut settings = effective(SETTINGS, self);
        let effective = self.effective();
        for table in &effective.tables {
            settings.push((format!("rows.{}", table.name), table.rows.to_string()));
        }
        settings
    }

    /// Returns the definition with all overrides applied.
    pub fn effective(&self) -> Definition {
        let mut definition = self.definition.clone();
        for table in &mut definition.tables {
            let scaled = (table.rows as f64 * self.scale).round() as u64;
            let rows = self.rows.unwrap_or(if self.scale == 1.0 {
                table.rows
            } else {
                scaled
            });
            table.rows = rows.min(self.max_rows.unwrap_or(u64::MAX)).max(1);
        }
        for phase in &mut definition.phases {
            match &mut phase.kind {
                PhaseKind::Load { batch, clients } => {
                    *batch = self.batch.unwrap_or(*batch);
                    *clients = self.clients.unwrap_or(*clients);
                }
                PhaseKind::Run(run) => {
                    run.clients = self.clients.unwrap_or(run.clients);
                    run.end = self.end.unwrap_or(run.end);
                    run.pace = run.pace.filter(|_| self.rates);
                }
                PhaseKind::Index | PhaseKind::Settle => {}
            }
        }
        self.repeat_last_run(&mut definition.phases);
        definition
    }

    /// Inserts the second and later runs after the last phase of kind run, as `NAME#2` and so on.
    /// Names in a file cannot contain `#`.
    fn repeat_last_run(&self, phases: &mut Vec<PhaseDef>) {
        let Some(last) = last_run(phases) else {
            return;
        };
        let repeated = phases[last].clone();
        let behind = (2..=self.repeats).map(|number| PhaseDef {
            name: format!("{}#{number}", repeated.name),
            kind: repeated.kind.clone(),
        });
        phases.splice(last + 1..last + 1, behind);
    }

    /// Returns the name of the last phase of kind run, to which `repeats` applies. `None` if there
    /// is no phase of kind run.
    pub fn last_run(&self) -> Option<&str> {
        let phases = &self.definition.phases;
        last_run(phases).map(|place| phases[place].name.as_str())
    }
}

/// Returns the index of the last phase of kind run.
fn last_run(phases: &[PhaseDef]) -> Option<usize> {
    let is_run = |phase: &PhaseDef| matches!(phase.kind, PhaseKind::Run(_));
    phases.iter().rposition(is_run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom::presets;

    fn config(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let text = presets::find("ycsb-a").unwrap().text;
        let config = Config::read("ycsb-a", text).unwrap();
        config.with_settings(pairs.iter().copied())
    }

    #[test]
    fn settings_override_what_the_file_says() {
        let pairs = [
            ("rows", "5000"),
            ("clients", "3"),
            ("requests", "70"),
            ("batch", "10"),
        ];
        let definition = config(&pairs).unwrap().effective();
        assert_eq!(definition.tables[0].rows, 5000);
        let PhaseKind::Load { batch, clients } = definition.phases[0].kind else {
            panic!("no load");
        };
        assert_eq!((batch, clients), (10, 3));
        let runs = definition
            .phases
            .iter()
            .filter_map(|phase| match &phase.kind {
                PhaseKind::Run(run) => Some((run.clients, run.end)),
                _ => None,
            });
        assert_eq!(runs.collect::<Vec<_>>(), [(3, PhaseEnd::Operations(70))]);
        let repeated = config(&[("repeats", "3")]).unwrap();
        let phases = repeated.effective().phases.into_iter();
        let names: Vec<String> = phases.map(|phase| phase.name).collect();
        let run = repeated.last_run().unwrap();
        let expected = [1, 2, 3].map(|number| match number {
            1 => run.to_owned(),
            _ => format!("{run}#{number}"),
        });
        assert_eq!(names[names.len() - 3..], expected, "{names:?}");
        let scaled = config(&[("scale", "0.5"), ("max_rows", "400")]).unwrap();
        assert_eq!(scaled.effective().tables[0].rows, 400);
    }

    #[test]
    fn invalid_settings_are_rejected_with_a_reason() {
        let refusal = |pairs: &[(&str, &str)]| config(pairs).unwrap_err().to_string();
        assert!(refusal(&[("repeats", "0")]).contains("from 1 to 1000"));
        assert!(refusal(&[("rows", "0")]).contains("from 1 to"));
        assert!(refusal(&[("rows", "5"), ("scale", "2")]).contains("not both"));
        assert!(refusal(&[("seconds", "5"), ("requests", "2")]).contains("not both"));
        assert_eq!(refusal(&[("row", "5")]), "unknown own workload setting row");
    }
}
