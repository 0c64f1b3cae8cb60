//! Opens a database for a command, with error messages, exit codes and advice.

use std::path::Path;

use alluvium::vfs::{LockGuard, RealVfs, Vfs};
use alluvium::{Database, Error, Keyspace, Options};
use anyhow::Context;

/// Invalid command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// A database or file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CannotOpen(pub String);

/// Exit codes. The numbers are a contract with scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// The data is damaged or inconsistent.
    Wrong = 1,
    /// Invalid command line.
    Usage = 2,
    /// The database cannot be opened, the operating system reported an error, or the engine has a
    /// defect.
    CannotOpen = 3,
    /// The requested row does not exist.
    NoRow = 4,
}

/// Returns the exit code of a failure.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    if error.is::<Usage>() {
        return Exit::Usage;
    }
    match error.downcast_ref::<Error>() {
        Some(Error::Corruption { .. } | Error::DuplicateKey { .. }) => Exit::Wrong,
        Some(Error::InvalidArgument(_) | Error::ChangesLost { .. }) => Exit::Usage,
        _ => Exit::CannotOpen,
    }
}

/// Returns advice for a failure; `None` if there is none.
pub fn advice(error: &anyhow::Error) -> Option<&'static str> {
    Some(match error.downcast_ref::<Error>()? {
        Error::Corruption { .. } => {
            "restore a backup, or save what can be read with `alluvium repair DIR TARGET`"
        }
        Error::Locked { .. } => {
            "the program that uses it may make a checkpoint, which this tool can open meanwhile"
        }
        Error::NewerFormat { .. } => "nothing was changed",
        Error::Internal(_) => "the command line and the data are not to blame",
        _ => return None,
    })
}

/// Returns an error if the directory holds no database.
pub fn check_there(dir: &Path) -> anyhow::Result<()> {
    let missing = |what: &str| {
        let message = format!("{} {what}: give the directory of a database", dir.display());
        Err(CannotOpen(message).into())
    };
    if !dir.exists() {
        return missing("does not exist");
    }
    if !dir.is_dir() {
        return missing("is no directory");
    }
    if dir.join("CURRENT").exists() {
        return Ok(());
    }
    alluvium::internal::check_no_remains(&RealVfs::new(), dir)?;
    missing("holds no database")
}

/// Opens a database read-only; no byte of it changes.
pub fn open_to_read(dir: &Path) -> anyhow::Result<Database> {
    check_there(dir)?;
    open(dir, true)
}

/// Opens an existing database for writing.
pub fn open_to_write(dir: &Path) -> anyhow::Result<Database> {
    check_there(dir)?;
    open(dir, false)
}

fn open(dir: &Path, read_only: bool) -> anyhow::Result<Database> {
    let options = Options {
        read_only,
        create: false,
        // Change logs kept for the streams of a program are not this tool's to remove.
        change_log_bytes: u64::MAX,
        ..Options::default()
    };
    // The tool's own options are in range, so `InvalidArgument` refers to the directory.
    match Database::open(dir, options) {
        Err(Error::InvalidArgument(message)) => Err(CannotOpen(message).into()),
        opened => opened.with_context(|| format!("cannot open {}", dir.display())),
    }
}

/// Locks out writers while files are read without opening the database; `None` if there is no lock
/// file.
pub fn lock_to_read(dir: &Path) -> anyhow::Result<Option<LockGuard>> {
    check_there(dir)?;
    let path = dir.join("LOCK");
    match RealVfs::new().lock_shared(&path) {
        Ok(Ok(lock)) => Ok(Some(lock)),
        Ok(Err(holder)) => Err(Error::Locked {
            path: dir.to_path_buf(),
            holder,
        }
        .into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("lock", &path, error).into()),
    }
}

/// Returns the keyspace of this name; if there is none, the error suggests the most similar name.
pub fn keyspace(db: &Database, name: &str) -> anyhow::Result<Keyspace> {
    if let Some(keyspace) = db.existing_keyspace(name)? {
        return Ok(keyspace);
    }
    Err(Usage(unknown_keyspace(name, &db.keyspace_names()?)).into())
}

fn unknown_keyspace(name: &str, known: &[String]) -> String {
    // A suggestion below this similarity is more confusing than helpful.
    const LIKE: f64 = 0.7;
    let like = |known: &String| strsim::jaro_winkler(name, known);
    let nearest = known.iter().max_by(|a, b| like(a).total_cmp(&like(b)));
    let hint = match nearest.filter(|nearest| like(nearest) >= LIKE) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("there are: {}", known.join(", ")),
    };
    format!("no keyspace is named `{name}`; {hint}")
}
