//! Power losses: the child is killed with a library preloaded that kept a journal of its changes, and what it had not
//! synced is taken back before the database is opened again.
//!
//! What a power loss may leave, by the model used here: of each file the state at its last sync, and of every 512-byte
//! sector written since any later state, each sector on its own; a size as of any moment since; of the changes of names
//! all up to some moment, not before the last one that a sync covered. A sync of a directory covers all changes of names
//! before it, a sync of a file those of its own names and all before them, because file systems with a journal keep
//! their order; a stricter one would lose more. [`fate`] decides what is lost, [`restore`] takes it back.

mod fate;
mod restore;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rumbench_core::undo::Record;
use serde::Serialize;

use fate::Fate;

/// The library's file name.
const LIBRARY: &str = "librumbench_powercut.so";

/// How to cut the power of a child process.
#[derive(Debug, Clone)]
pub struct PowerCut {
    library: PathBuf,
    /// The directory watched, without symbolic links.
    root: PathBuf,
    journal: PathBuf,
    kept: PathBuf,
}

/// What the power losses of a test took back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Bytes that the engine wrote, as the library saw them.
    pub bytes_seen: u64,
    /// Bytes that the kernel counted and the library did not see, reports to the laboratory excluded.
    pub bytes_unseen: u64,
    /// Writes of which at least one sector was taken back.
    pub writes: u64,
    /// Changes of names taken back.
    pub names: u64,
    /// Files that were changed in ways the library cannot see.
    pub unseen_files: Vec<String>,
}

impl Lost {
    /// Adds what another power loss took.
    pub fn add(&mut self, other: Lost) {
        self.bytes_seen += other.bytes_seen;
        self.bytes_unseen += other.bytes_unseen;
        self.writes += other.writes;
        self.names += other.names;
        self.unseen_files.extend(other.unseen_files);
        self.unseen_files.sort();
        self.unseen_files.dedup();
    }
}

impl PowerCut {
    /// For a database in `directory`, which exists; the journal is kept beside it.
    ///
    /// # Errors
    /// When the library is not beside this program, or the directory cannot be used.
    pub fn new(directory: &Path) -> Result<PowerCut> {
        let program = std::env::current_exe().context("cannot find the own binary")?;
        let library = program.with_file_name(LIBRARY);
        if !library.is_file() {
            bail!(
                "power losses need {}, which is not there: build it with cargo build -p rumbench-powercut, in the profile of this program",
                library.display()
            );
        }
        let root = directory
            .canonicalize()
            .with_context(|| format!("cannot find {}", directory.display()))?;
        let cut = PowerCut {
            library,
            journal: root.with_extension("journal"),
            kept: root.with_extension("kept"),
            root,
        };
        cut.clear()?;
        Ok(cut)
    }

    /// What the child's environment needs.
    pub fn environment(&self) -> [(&'static str, OsString); 4] {
        let path = |path: &Path| path.as_os_str().to_os_string();
        [
            ("LD_PRELOAD", path(&self.library)),
            ("RUMBENCH_POWERCUT_ROOT", path(&self.root)),
            ("RUMBENCH_POWERCUT_JOURNAL", path(&self.journal)),
            ("RUMBENCH_POWERCUT_KEPT", path(&self.kept)),
        ]
    }

    /// The directory that the child must use.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Takes back, after the end of the child, what a power loss takes. `written` is what the kernel counted, without
    /// what the child told the laboratory.
    ///
    /// # Errors
    /// When files cannot be read or written: the directory is then in no defined state.
    pub fn strike(&self, seed: u64, written: u64) -> Result<Lost> {
        let journal = fs::read(&self.journal).with_context(|| {
            format!("the preloaded library wrote no {}", self.journal.display())
        })?;
        let records = Record::all(&journal);
        let mut lost = restore::restore(
            &records,
            &Fate::new(&records, seed),
            &[&self.root, &self.kept],
        )?;
        lost.bytes_unseen = written.saturating_sub(lost.bytes_seen + journal.len() as u64);
        self.clear()?;
        Ok(lost)
    }

    /// What the machine had in memory goes, what was kept for undoing too.
    fn clear(&self) -> Result<()> {
        let _ = fs::remove_file(&self.journal);
        let _ = fs::remove_dir_all(&self.kept);
        fs::create_dir_all(&self.kept)
            .with_context(|| format!("cannot create {}", self.kept.display()))
    }

    /// Removes what is beside the database.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.journal);
        let _ = fs::remove_dir_all(&self.kept);
    }
}
