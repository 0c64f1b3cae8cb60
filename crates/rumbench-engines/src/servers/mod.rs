//! Databases that run as servers: found, initialized, started privately, stopped, and driven with
//! SQL.
//!
//! Reading order: `packages` (locates the binaries), `run_folder`, `program` and `process` (a
//! private child process that leaves no files), `endpoint` and `external` (running servers),
//! `own_lines` (a user's additions to a configuration), `session` (a connection with prepared
//! statements), `sql`, `query_sql`, `table_statements`, `tables` and `table_queries` (table
//! workloads), `link_sql`, `link_list`, `links` and `link_operations` (LinkBench), `check`
//! (compares indexes with rows), then the servers themselves: `postgresql`, `mariadb`. A server
//! listens on a Unix socket only, in a folder that no other user can enter. System services are
//! never touched.

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

/// Folder of the server's own files, inside the trial's folder.
const DATA_FOLDER: &str = "server";
/// Server log, inside the trial's folder.
const LOG_FILE: &str = crate::adapter::SERVER_LOG;

/// Running server, as the workload stores see it.
trait Server: Send + Sync + 'static {
    /// Connection to this server.
    type Session: Session + 'static;

    /// Opens a new connection.
    fn connect(&self) -> Result<Self::Session>;

    /// Returns the server's SQL dialect.
    fn dialect(&self) -> Dialect;

    /// Collects statistics on a table, so that the planner knows the distribution of its values.
    fn analyze(&self, session: &mut Self::Session, table: &str) -> Result<()>;

    /// Runs the maintenance of the published runs after a load of LinkBench's `table`; at least
    /// [`Server::analyze`].
    fn tidy(&self, session: &mut Self::Session, table: &str) -> Result<()> {
        self.analyze(session, table)
    }
}

/// Absolute paths of a trial's folder, data folder, and log.
struct Places {
    trial: PathBuf,
    data: PathBuf,
    log: PathBuf,
}

impl Places {
    /// Creates the data folder if needed; the flag is true if it already existed.
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

/// Creates the tables of a workload if they do not exist.
fn create_tables<S: Session>(session: &mut S, dialect: Dialect, schema: Schema) -> Result<()> {
    let tables = match schema {
        Schema::LinkBench => link_sql::create_tables(dialect),
        Schema::Tables(schema) => {
            if schema.is_key_value() {
                return Err(no_key_value());
            }
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
    };
    tables
        .iter()
        .try_for_each(|text| session.query(text).map(drop))
}

/// Refuses a workload without an SQL form.
fn check_schema(config: &OpenConfig) -> Result<()> {
    match config.schema {
        Schema::Tables(schema) if schema.is_key_value() => Err(no_key_value()),
        Schema::LinkBench | Schema::Tables(_) => Ok(()),
    }
}

fn no_key_value() -> EngineError {
    EngineError::Unsupported(
        "kv-sequence is not for servers: it asks for keys and values, which a server has no form of".to_string(),
    )
}

/// Converts rows of name and number to counters; keeps only the `wanted` names.
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

    /// Small trial in a folder.
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
