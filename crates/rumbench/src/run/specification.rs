//! `DIR/suite.json`: the request for a suite and the build and machine that began it. It is written
//! before anything runs, so that a killed suite can be continued without its command line. Its lock
//! shows if the suite is still running.
//!
//! Trials of one table must come from one laboratory: a resume is refused if the build, the
//! machine, the hosts or the options files differ, and the error names every difference.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use super::plan::Suite;
use crate::catalog::usage;
use crate::measure::environment;

/// Schema version; raised when an older build would misunderstand the file.
const SCHEMA_VERSION: u32 = 1;
/// Facts of the machine that influence results and do not change by themselves.
const MACHINE: &[&str] = &["cpu", "cpus", "kernel", "file_system", "device"];
/// Maximum wait for the trial of a killed laboratory, which exits at once. After that the suite
/// counts as running.
const PATIENCE: Duration = Duration::from_secs(10);

type Facts = BTreeMap<String, String>;

/// Contents of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Specification {
    schema_version: u32,
    /// The request, without the result folder.
    pub suite: Suite,
    /// Facts of the laboratory's own build.
    build: Facts,
    /// Facts of the machine that began the suite.
    machine: Facts,
    /// Contents of the options files, by path.
    files: Facts,
}

/// Returns the path of the file in a result folder.
pub fn path_in(dir: &Path) -> PathBuf {
    dir.join("suite.json")
}

/// Lock on the folder of a running suite. The laboratory and its trials, which inherit it, hold it
/// until the last of them has ended.
pub struct Claim {
    _file: File,
}

impl Specification {
    /// Describes a suite that this build begins now.
    fn of(suite: &Suite) -> Result<Specification> {
        Ok(Specification {
            schema_version: SCHEMA_VERSION,
            suite: suite.clone(),
            build: build(suite)?,
            machine: machine(&suite.out),
            files: files(suite)?,
        })
    }

    /// Reads the file of a result folder.
    ///
    /// # Errors
    /// A usage error when the folder holds no suite; when the file is of a newer version.
    pub fn load(dir: &Path) -> Result<Specification> {
        let path = path_in(dir);
        if !path.exists() {
            return Err(usage(format!(
                "{} holds no suite that could be continued: there is no suite.json in it; name the --out DIR of a `rumbench run`",
                dir.display()
            )));
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut found: Specification = serde_json::from_str(&text)
            .with_context(|| format!("{} is not the specification of a suite", path.display()))?;
        if found.schema_version > SCHEMA_VERSION {
            bail!(
                "{} has schema version {}, this rumbench reads up to {SCHEMA_VERSION}",
                path.display(),
                found.schema_version
            );
        }
        found.suite.out = dir.to_path_buf();
        Ok(found)
    }

    /// Refuses to continue a suite that began with another build, machine or options file.
    ///
    /// # Errors
    /// A usage error that names every difference.
    pub fn check(&self) -> Result<()> {
        let now = Specification::of(&self.suite)?;
        let mut differences = different("build", &self.build, &now.build);
        differences.extend(different("machine", &self.machine, &now.machine));
        let changed = self
            .files
            .iter()
            .filter(|(path, text)| now.files.get(*path) != Some(text));
        differences.extend(changed.map(|(path, _)| format!("the options file {path} has changed")));
        if differences.is_empty() {
            return Ok(());
        }
        Err(usage(format!(
            "cannot continue {}: trials before and after would not compare:\n  {}\nContinue it where it began, or run it again into \
             another folder: {}",
            self.suite.out.display(),
            differences.join("\n  "),
            self.suite.command
        )))
    }
}

fn different(what: &str, then: &Facts, now: &Facts) -> Vec<String> {
    let mut names: Vec<&String> = then.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    let text =
        |facts: &Facts, name: &str| facts.get(name).cloned().unwrap_or("unknown".to_string());
    let names = names
        .into_iter()
        .filter(|name| then.get(*name) != now.get(*name));
    names
        .map(|name| {
            format!(
                "{what}: {name} was {}, is {}",
                text(then, name),
                text(now, name)
            )
        })
        .collect()
}

/// Returns version, commit, compiler and engines. Builds with uncommitted changes share a commit,
/// so for them the binary must be the same file.
fn build(suite: &Suite) -> Result<Facts> {
    let engines = rumbench_engines::engines()
        .iter()
        .filter(|entry| entry.is_available());
    let engines: Vec<&str> = engines.map(|entry| entry.name).collect();
    let facts = [
        ("rumbench_version", env!("CARGO_PKG_VERSION")),
        ("commit", env!("RUMBENCH_COMMIT")),
        ("compiler", env!("RUMBENCH_RUSTC")),
        ("compiler_flags", env!("RUMBENCH_FLAGS")),
        ("engines", &engines.join(" ")),
    ];
    let mut facts: Facts = facts
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .into();
    let own = std::env::current_exe().context("cannot find the own binary")?;
    let mut binaries = vec![(
        "binary".to_string(),
        own,
        env!("RUMBENCH_COMMIT").to_string(),
    )];
    for host in suite
        .engines()
        .iter()
        .filter_map(|choice| choice.host.as_ref())
    {
        binaries.push((
            format!("binary of host {}", host.path),
            PathBuf::from(&host.path),
            host.commit.clone(),
        ));
    }
    for (name, path, commit) in binaries {
        if commit == "unknown" || commit.contains("changes") {
            facts.insert(name, fingerprint(&path));
        }
    }
    Ok(facts)
}

/// Returns length and modification time of a file: enough to distinguish two builds of one commit.
fn fingerprint(path: &Path) -> String {
    let Ok(metadata) = fs::metadata(path) else {
        return "missing".to_string();
    };
    let modified = metadata.modified().ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!(
        "{} bytes, written at {} ns",
        metadata.len(),
        since.unwrap_or_default().as_nanos()
    )
}

fn machine(dir: &Path) -> Facts {
    let mut facts = environment::describe(dir);
    facts.retain(|name, _| MACHINE.contains(&name.as_str()));
    facts
}

/// Reads the options files of all engines at all points.
fn files(suite: &Suite) -> Result<Facts> {
    let mut found = Facts::new();
    for choice in suite.points.iter().flat_map(|point| &point.engines) {
        if let Some(path) = choice.settings.get("options_file") {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read the options file {path}"))?;
            found.insert(path.clone(), text);
        }
    }
    Ok(found)
}

/// Writes the file of a new suite and thereby claims the folder.
///
/// # Errors
/// When the folder already holds a suite or cannot be written.
pub fn begin(suite: &Suite) -> Result<Claim> {
    let path = path_in(&suite.out);
    let temporary = suite.out.join("suite.json.new");
    let text = serde_json::to_string_pretty(&Specification::of(suite)?)
        .context("cannot encode the specification")?;
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_data()?;
        // Unlike a rename, a hard link fails if another suite was faster.
        fs::hard_link(&temporary, &path)
    };
    let written = write();
    // The file keeps its final name. If writing failed, the error above is the one to report.
    let _ = fs::remove_file(&temporary);
    written.with_context(|| {
        let path = path.display();
        format!("cannot write {path}; choose another --out DIR")
    })?;
    claim(&suite.out)
}

/// Claims the folder of a suite that is not running; waits up to 10 s for the trial of a killed
/// laboratory to end.
///
/// # Errors
/// A usage error when the suite is still running.
pub fn claim(dir: &Path) -> Result<Claim> {
    let path = path_in(dir);
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(usage(format!(
                    "the suite in {} is still running; wait for its end, or stop it first",
                    dir.display()
                )));
            }
            // The file system has no locks: the user must make sure that the suite is not running.
            Err(TryLockError::Error(_)) => break,
        }
    }
    // The lock belongs to the open file, which trials inherit: it ends with the last of them.
    fcntl_setfd(&file, FdFlags::empty())
        .context("cannot hand the lock of the suite to its trials")?;
    Ok(Claim { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::tests::suite;

    #[test]
    fn a_specification_is_read_back_and_its_own_build_may_continue() {
        let dir = tempfile::tempdir().unwrap();
        let suite = suite(dir.path());
        let claim = begin(&suite).unwrap();
        let found = Specification::load(dir.path()).unwrap();
        assert_eq!(format!("{:?}", found.suite), format!("{suite:?}"));
        found.check().unwrap();
        assert!(begin(&suite).is_err(), "another suite has the folder");
        drop(claim);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn every_difference_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let options = dir.path().join("OPTIONS");
        fs::write(&options, "a=1").unwrap();
        let mut suite = suite(dir.path());
        let path = options.display().to_string();
        suite.points[0].engines[0]
            .settings
            .insert("options_file".to_string(), path.clone());
        drop(begin(&suite).unwrap());
        let mut found = Specification::load(dir.path()).unwrap();
        found.build.insert("commit".to_string(), "abc".to_string());
        found.machine.insert("cpus".to_string(), "999".to_string());
        fs::write(&options, "a=2").unwrap();
        let said = found.check().unwrap_err().to_string();
        for expected in [
            "build: commit was abc, is",
            "machine: cpus was 999, is",
            &path,
            &suite.command,
        ] {
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }

    #[test]
    fn a_folder_without_a_suite_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let said = Specification::load(dir.path()).unwrap_err().to_string();
        assert!(said.contains("no suite that could be continued"), "{said}");
    }
}
