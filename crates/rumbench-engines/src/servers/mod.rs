//! Databases that are servers: found, initialised, started privately, stopped, and driven with SQL.
//!
//! Reading order: `packages` (where the binaries are), `run_folder`, `program` and `process` (a private child process that
//! leaves nothing behind), `endpoint` and `external` (servers that run already), `own_lines` (what a user adds to a
//! configuration), `session` (a connection with prepared statements), `sql`, `query_sql`, `table_statements`, `tables` and
//! `table_queries` (the workloads of tables), `link_sql`, `link_list`, `links` and `link_operations` (LinkBench), `check` (do
//! indexes agree with rows?), then the servers themselves: `postgresql`, `mariadb`. A server listens on a Unix socket only, in
//! a folder that nobody else can enter; services of the system are never touched.

mod check;
mod endpoint;
mod external;
mod link_list;
mod link_operations;
mod link_sql;
mod links;
mod log;
#[cfg(feature = "mariadb")]
pub(crate) mod mariadb;
mod own_lines;
mod packages;
#[cfg(feature = "postgresql")]
pub(crate) mod postgresql;
mod process;
mod program;
mod query_sql;
mod run_folder;
mod session;
mod sql;
mod table_queries;
mod table_statements;
mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rumbench_core::engine::{Counter, EngineError, OpenConfig, Result, Schema};

pub(crate) use run_folder::{name_data, remove_left_overs};
use session::Session;
use sql::Dialect;

/// The folder of the server's own files in the trial's.
const DATA_FOLDER: &str = "server";
/// The file in the trial's folder that the server logs to.
const LOG_FILE: &str = crate::SERVER_LOG;

/// A running server, as the stores of the workloads see it.
trait Server: Send + Sync + 'static {
    /// Its connections.
    type Session: Session + 'static;

    /// A new connection.
    fn connect(&self) -> Result<Self::Session>;

    /// Its SQL.
    fn dialect(&self) -> Dialect;

    /// Has the server look at a table, so that it knows how its values are distributed.
    fn analyze(&self, session: &mut Self::Session, table: &str) -> Result<()>;

    /// Has the server do behind a load of LinkBench's `table` what the published runs had it do: looks at the table, at least.
    fn tidy(&self, session: &mut Self::Session, table: &str) -> Result<()> {
        self.analyze(session, table)
    }
}

/// Folder, data folder and log of a trial, as absolute paths.
struct Places {
    trial: PathBuf,
    data: PathBuf,
    log: PathBuf,
}

impl Places {
    /// Makes the data folder; also says whether it had been there already.
    fn prepare(trial: &Path) -> Result<(Places, bool)> {
        let failed = |error| EngineError::failed(format!("cannot find {}", trial.display()), error);
        let trial = std::fs::canonicalize(trial).map_err(failed)?;
        let places = Places {
            data: trial.join(DATA_FOLDER),
            log: trial.join(LOG_FILE),
            trial,
        };
        let exists = places.data.exists();
        if !exists {
            std::fs::create_dir(&places.data).map_err(|error| {
                EngineError::failed(format!("cannot create {}", places.data.display()), error)
            })?;
        }
        Ok((places, exists))
    }
}

/// Creates the tables of a workload where there are none.
fn create_tables<S: Session>(session: &mut S, dialect: Dialect, schema: Schema) -> Result<()> {
    let tables = match schema {
        Schema::LinkBench => link_sql::create_tables(dialect),
        Schema::Tables(schema) => {
            session.query(sql::CREATE_CATALOG)?;
            match session
                .query(sql::READ_CATALOG)?
                .first()
                .and_then(|row| row.first())
            {
                Some(found) => schema.compare(found)?,
                None => drop(session.query(&sql::write_catalog(&schema.describe()))?),
            }
            sql::create_tables(dialect, schema)
        }
        Schema::KvSequence => return Err(no_key_value()),
    };
    tables
        .iter()
        .try_for_each(|text| session.query(text).map(drop))
}

/// Refuses a workload that has no SQL form.
fn check_schema(config: &OpenConfig) -> Result<()> {
    match config.schema {
        Schema::KvSequence => Err(no_key_value()),
        Schema::LinkBench | Schema::Tables(_) => Ok(()),
    }
}

fn no_key_value() -> EngineError {
    EngineError::Unsupported(
        "kv-sequence is not for servers: it asks for keys and values, which a server has no form of".to_string(),
    )
}

/// Rows of a name and a number as counters, those with these names only.
fn counters(rows: &[Vec<String>], wanted: &[(&str, &str)]) -> Vec<Counter> {
    let found: BTreeMap<String, f64> = rows
        .iter()
        .filter_map(|row| {
            let (name, value) = (row.first()?, row.get(1)?);
            Some((name.to_ascii_lowercase(), value.parse().ok()?))
        })
        .collect();
    let counter = |(theirs, ours): &(&str, &str)| {
        let value = *found.get(*theirs)?;
        Some(Counter {
            name: (*ours).to_string(),
            value,
        })
    };
    wanted.iter().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use rumbench_core::engine::Durability;

    use super::*;

    /// A small trial in a folder.
    pub(super) fn config(dir: &Path, durability: Durability) -> OpenConfig {
        OpenConfig {
            dir: dir.to_path_buf(),
            schema: Schema::LinkBench,
            variant: None,
            cache_bytes: 64 << 20,
            durability,
            clients: 2,
            settings: BTreeMap::new(),
        }
    }

    #[test]
    fn counters_are_those_that_were_asked_for_and_that_are_numbers() {
        let rows = [["Reads", "5"], ["State", "good"], ["Other", "1"]];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.map(str::to_string).to_vec())
            .collect();
        let found = counters(
            &rows,
            &[
                ("reads", "page_reads"),
                ("state", "state"),
                ("none", "none"),
            ],
        );
        let found: Vec<(String, f64)> = found.into_iter().map(|c| (c.name, c.value)).collect();
        assert_eq!(found, [("page_reads".to_string(), 5.0)]);
    }

    #[test]
    fn a_trial_folder_that_was_used_is_known() {
        let trial = tempfile::tempdir().unwrap();
        let (places, existed) = Places::prepare(trial.path()).unwrap();
        assert!(!existed && places.data.is_dir());
        assert!(Places::prepare(trial.path()).unwrap().1);
    }
}
