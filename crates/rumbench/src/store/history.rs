//! The results store: one SQLite file with a row for each phase of each trial, and the whole JSON
//! of each suite.
//!
//! It keeps the history of many suites; `DIR/result.json` remains authoritative. If a suite cannot
//! be added, `rumbench run` only prints a warning.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rusqlite::{Connection, params};

use super::result::SuiteResult;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS suites (
  id INTEGER PRIMARY KEY, started_at TEXT NOT NULL, directory TEXT NOT NULL UNIQUE, command TEXT NOT NULL,
  workload TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS phases (
  suite INTEGER NOT NULL REFERENCES suites(id), engine TEXT NOT NULL, repetition INTEGER NOT NULL, phase TEXT NOT NULL,
  operations INTEGER NOT NULL, seconds REAL NOT NULL, ops_per_s REAL, cpu_us_per_op REAL, kb_written_per_op REAL,
  data_bytes INTEGER, marks TEXT NOT NULL);
";

/// Returns `$RUMBENCH_STORE`, or a path in the user's data directory. `None` if there is no home.
pub fn default_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("RUMBENCH_STORE") {
        return Some(PathBuf::from(path));
    }
    let data = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share")))?;
    Some(data.join("rumbench").join("results.sqlite"))
}

fn open(path: &Path) -> Result<Connection> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let connection =
        Connection::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection
        .execute_batch(SCHEMA)
        .with_context(|| format!("{} is not a results store", path.display()))?;
    Ok(connection)
}

/// Adds a suite, or replaces the stored one of the same folder.
///
/// # Errors
/// Fails if the store cannot be opened or written.
pub fn add(path: &Path, directory: &Path, suite: &SuiteResult) -> Result<()> {
    let mut connection = open(path)?;
    let directory = std::path::absolute(directory)
        .unwrap_or_else(|_| directory.to_path_buf())
        .display()
        .to_string();
    let transaction = connection.transaction()?;
    transaction.execute(
        "DELETE FROM phases WHERE suite IN (SELECT id FROM suites WHERE directory = ?1)",
        [&directory],
    )?;
    transaction.execute("DELETE FROM suites WHERE directory = ?1", [&directory])?;
    transaction.execute(
        "INSERT INTO suites (started_at, directory, command, workload, json) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![suite.started_at, directory, suite.command, suite.workload, serde_json::to_string(suite)?],
    )?;
    let id = transaction.last_insert_rowid();
    for trial in &suite.trials {
        for phase in &trial.phases {
            transaction.execute(
                "INSERT INTO phases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    id,
                    trial.contestant(),
                    trial.repetition,
                    phase.name,
                    i64::try_from(phase.operations).unwrap_or(i64::MAX),
                    phase.seconds,
                    phase.ops_per_s,
                    phase.cpu_us_per_op.map(|cpu| cpu.total),
                    phase.kb_written_per_op,
                    phase
                        .size_bytes
                        .map(|size| i64::try_from(size.data).unwrap_or(i64::MAX)),
                    trial.marks.join("; "),
                ],
            )?;
        }
    }
    transaction.commit().context("cannot store the result")
}

/// One line of `rumbench results`.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredSuite {
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Workload name.
    pub workload: String,
    /// Engines in the order of their first trial.
    pub engines: String,
    /// Result folder.
    pub directory: String,
}

/// Returns at most 100 stored suites, newest first: all, or those with `of` in workload, engines or
/// folder.
///
/// # Errors
/// Fails if the store cannot be read. A missing store is an empty list.
pub fn list(path: &Path, of: Option<&str>) -> Result<Vec<StoredSuite>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let connection = open(path)?;
    let mut statement = connection.prepare(
        "SELECT * FROM (SELECT started_at, workload, directory,
           coalesce((SELECT group_concat(engine, ' ') FROM (SELECT DISTINCT engine FROM phases WHERE suite = id)), '') AS engines
         FROM suites ORDER BY id DESC)
         WHERE instr(workload || ' ' || engines || ' ' || directory, ?1) > 0 LIMIT 100",
    )?;
    let rows = statement.query_map([of.unwrap_or_default()], |row| {
        Ok(StoredSuite {
            started_at: row.get(0)?,
            workload: row.get(1)?,
            directory: row.get(2)?,
            engines: row.get(3)?,
        })
    })?;
    rows.collect::<Result<_, _>>()
        .context("cannot read the results store")
}

/// Returns the newest stored suite with this name: its folder as `list` prints it, or the last part
/// of it.
///
/// # Errors
/// Fails if the store cannot be read. Without a store or such a suite, the result is `None`.
pub fn find(path: &Path, name: &str) -> Result<Option<SuiteResult>> {
    if !path.exists() {
        return Ok(None);
    }
    let connection = open(path)?;
    let mut statement =
        connection.prepare("SELECT directory, json FROM suites ORDER BY id DESC")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next().context("cannot read the results store")? {
        let directory: String = row.get(0)?;
        let last = Path::new(&directory).file_name();
        if directory == name || last.is_some_and(|last| last == name) {
            let json: String = row.get(1)?;
            let suite = serde_json::from_str(&json)
                .with_context(|| format!("the stored result {directory} cannot be read"))?;
            return Ok(Some(suite));
        }
    }
    Ok(None)
}

/// Returns the newest suite of the same workload that started before this one and passes `is_like`,
/// and its folder.
///
/// # Errors
/// Fails if the store cannot be read. Without a store or such a suite, the result is `None`.
pub fn before(
    path: &Path,
    suite: &SuiteResult,
    is_like: impl Fn(&SuiteResult) -> bool,
) -> Result<Option<(String, SuiteResult)>> {
    if !path.exists() {
        return Ok(None);
    }
    let connection = open(path)?;
    let mut statement = connection.prepare(
        "SELECT directory, json FROM suites WHERE workload = ?1 AND started_at < ?2 ORDER BY started_at DESC",
    )?;
    let mut rows = statement.query([&suite.workload, &suite.started_at])?;
    while let Some(row) = rows.next().context("cannot read the results store")? {
        // A result that an older build stored in another format is skipped.
        if let Ok(found) = serde_json::from_str(&row.get::<_, String>(1)?)
            && is_like(&found)
        {
            return Ok(Some((row.get(0)?, found)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn stored_suite_is_listed_once_after_storing_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/results.sqlite");
        assert!(list(&path, None).unwrap().is_empty());
        let suite = sample::suite();
        add(&path, dir.path(), &suite).unwrap();
        add(&path, dir.path(), &suite).unwrap();
        let listed = list(&path, None).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].engines, "alluvium sqlite");
        let name = dir.path().file_name().unwrap().to_str().unwrap();
        for name in [name, &listed[0].directory] {
            let found = find(&path, name).unwrap().unwrap();
            assert_eq!(found.command, suite.command);
        }
        assert!(find(&path, "other").unwrap().is_none());
        assert_eq!(list(&path, Some("sqlite")).unwrap(), listed);
        assert!(list(&path, Some("lmdb")).unwrap().is_empty());
    }

    #[test]
    fn the_suite_before_is_the_newest_that_is_like_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.sqlite");
        let of = |started: &str, seed: u64| SuiteResult {
            started_at: started.to_string(),
            seed,
            ..sample::suite()
        };
        let newest = of("2026-04-01T00:00:00Z", 1);
        for (name, suite) in [
            ("a", of("2026-01-01T00:00:00Z", 1)),
            ("b", of("2026-02-01T00:00:00Z", 1)),
            ("c", of("2026-03-01T00:00:00Z", 2)),
            ("d", newest.clone()),
            ("e", of("2026-05-01T00:00:00Z", 1)),
        ] {
            add(&path, &dir.path().join(name), &suite).unwrap();
        }
        let before = |suite| before(&path, suite, |other| other.seed == 1).unwrap();
        let (directory, found) = before(&newest).unwrap();
        assert!(directory.ends_with("/b"), "{directory}");
        assert_eq!(found.started_at, "2026-02-01T00:00:00Z");
        assert!(before(&of("2026-01-01T00:00:00Z", 1)).is_none());
    }
}
