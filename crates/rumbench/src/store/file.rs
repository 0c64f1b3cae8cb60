//! `result.json`: written completely and atomically, so that a killed laboratory leaves the
//! previous version.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::result::{SCHEMA_VERSION, SuiteResult};

/// Returns the path of a suite's result in its folder.
pub fn result_path(dir: &Path) -> PathBuf {
    dir.join("result.json")
}

/// Writes a value to `DIR/result.json`: creates a new file, syncs it and renames it.
///
/// # Errors
/// Fails if the folder cannot be written; the previous file is then untouched.
pub fn save(dir: &Path, value: &impl Serialize) -> Result<()> {
    let path = result_path(dir);
    let temporary = dir.join("result.json.new");
    let text = serde_json::to_string_pretty(value).context("cannot encode the result")?;
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_data()?;
        fs::rename(&temporary, &path)
    };
    write()
        .inspect_err(|_| {
            // Frees its bytes first on a full device. The error above is the one to report.
            let _ = fs::remove_file(&temporary);
        })
        .with_context(|| {
            let path = path.display();
            format!("cannot write {path}; free some space or choose another --out DIR")
        })
}

/// As [`load`]; `None` if there is no result yet.
///
/// # Errors
/// As [`load`].
pub fn load_if_there(dir: &Path) -> Result<Option<SuiteResult>> {
    let there = result_path(dir).exists();
    there.then(|| load(dir)).transpose()
}

/// Loads a suite's result.
///
/// # Errors
/// Fails if there is none, if it is not JSON of this schema, or if a newer rumbench wrote it.
pub fn load(dir: &Path) -> Result<SuiteResult> {
    let path = if dir.is_dir() {
        result_path(dir)
    } else {
        dir.to_path_buf()
    };
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {} (is this a result folder?)", path.display()))?;
    let result: SuiteResult = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a suite result", path.display()))?;
    if result.schema_version > SCHEMA_VERSION {
        bail!(
            "{} has schema version {}, this rumbench reads up to {SCHEMA_VERSION}",
            path.display(),
            result.schema_version
        );
    }
    Ok(result)
}

/// Creates the result folder and checks that it is writable and holds no other suite. Existing
/// data, kept or in use, would be overwritten and removed with the first trial.
///
/// # Errors
/// Fails if the folder cannot be created or written, or already holds a result or data.
pub fn prepare_directory(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)
        .with_context(|| format!("cannot create {}; choose another --out DIR", dir.display()))?;
    if result_path(dir).exists() {
        bail!(
            "{0} already holds the result of another suite; choose another --out DIR or remove it, or continue that one: rumbench resume {0}",
            dir.display()
        );
    }
    if dir.join("suite.json").exists() {
        bail!(
            "{0} already holds another suite that has no result yet; choose another --out DIR or continue that one: rumbench resume {0}",
            dir.display()
        );
    }
    let data = dir.join("data");
    if data.exists() {
        let mut entries = fs::read_dir(&data)
            .with_context(|| format!("cannot use {}; choose another --out DIR", data.display()))?;
        if entries.next().is_some() {
            bail!(
                "{} holds the data of other trials, which may be running; choose another --out DIR or remove it",
                data.display()
            );
        }
    }
    let probe = dir.join("result.json.new");
    File::create(&probe).with_context(|| format!("cannot write in {}", dir.display()))?;
    fs::remove_file(&probe).with_context(|| format!("cannot write in {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_with_a_result_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        prepare_directory(dir.path()).unwrap();
        save(dir.path(), &serde_json::json!({"a": 1})).unwrap();
        let error = prepare_directory(dir.path()).unwrap_err().to_string();
        assert!(error.contains("another suite"), "{error}");
    }

    #[test]
    fn directory_with_data_of_other_trials_is_refused_and_keeps_them() {
        let dir = tempfile::tempdir().unwrap();
        let trial = dir.path().join("data/001-null");
        fs::create_dir_all(&trial).unwrap();
        let error = prepare_directory(dir.path()).unwrap_err().to_string();
        assert!(error.contains("data of other trials"), "{error}");
        assert!(trial.exists());
        fs::remove_dir(&trial).unwrap();
        prepare_directory(dir.path()).unwrap();
        fs::remove_dir(dir.path().join("data")).unwrap();
        fs::write(dir.path().join("data"), "").unwrap();
        let error = prepare_directory(dir.path()).unwrap_err().to_string();
        assert!(error.contains("choose another --out"), "{error}");
    }

    #[test]
    fn save_replaces_the_previous_result_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), &serde_json::json!({"a": 1})).unwrap();
        save(dir.path(), &serde_json::json!({"a": 2})).unwrap();
        let text = fs::read_to_string(result_path(dir.path())).unwrap();
        assert!(text.contains("\"a\": 2"), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
