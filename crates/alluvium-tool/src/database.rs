//! Opening a database for a command, and what to say and do where that fails.

use std::path::Path;

use alluvium::vfs::{LockGuard, RealVfs, Vfs};
use alluvium::{Database, Error, Keyspace, Options};
use anyhow::Context;

/// The command line cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Something cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CannotOpen(pub String);

/// The numbers are a contract with scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All well.
    Done = 0,
    /// Something is wrong with the data.
    Wrong = 1,
    /// The command line cannot be followed.
    Usage = 2,
    /// The database cannot be opened, the system refused something, or the engine has a defect.
    CannotOpen = 3,
    /// There is no such row.
    NoRow = 4,
}

/// The exit code of a failure.
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

/// What to do about a failure, where that is known.
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

/// Refuses a directory that holds no database.
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
    alluvium::version::check_no_remains(&RealVfs::new(), dir)?;
    missing("holds no database")
}

/// Opens a database for reading: not a byte of it changes.
pub fn open_to_read(dir: &Path) -> anyhow::Result<Database> {
    check_there(dir)?;
    open(dir, true)
}

/// Opens a database that is there for writing.
pub fn open_to_write(dir: &Path) -> anyhow::Result<Database> {
    check_there(dir)?;
    open(dir, false)
}

fn open(dir: &Path, read_only: bool) -> anyhow::Result<Database> {
    let options = Options {
        read_only,
        create: false,
        // What a program keeps for its streams of changes is not this tool's to remove.
        change_log_bytes: u64::MAX,
        ..Options::default()
    };
    // The tool's own options are in range, so what it refuses is the directory.
    match Database::open(dir, options) {
        Err(Error::InvalidArgument(message)) => Err(CannotOpen(message).into()),
        opened => opened.with_context(|| format!("cannot open {}", dir.display())),
    }
}

/// Keeps writers away while files are read without opening the database; none where there is no lock file.
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

/// The keyspace of this name; the nearest one is offered where there is none.
pub fn keyspace(db: &Database, name: &str) -> anyhow::Result<Keyspace> {
    if let Some(keyspace) = db.existing_keyspace(name)? {
        return Ok(keyspace);
    }
    Err(Usage(unknown_keyspace(name, &db.keyspace_names()?)).into())
}

fn unknown_keyspace(name: &str, known: &[String]) -> String {
    // Below this similarity a suggestion only confuses.
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
