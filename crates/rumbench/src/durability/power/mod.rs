//! Power losses: the child runs with a preloaded library that keeps a journal of its changes. After
//! the kill, unsynced changes are undone before the database is opened again.
//!
//! Model of a power loss:
//! - Each 512-byte sector of a file is in its state at the last sync or in any later one,
//!   independently of other sectors.
//! - The size of a file is that of any moment since its last sync.
//! - Changes of names survive up to some moment, not before the last change covered by a sync.
//!
//! A sync of a directory covers all earlier changes of names. A sync of a file covers the changes
//! of its own names and all earlier ones, because journaling file systems keep their order; a
//! stricter model would lose more. [`fate`] decides the losses, [`restore`] applies them.

mod fate;
mod restore;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rumbench_core::undo::Record;

use fate::Fate;
pub use restore::Lost;

/// File name of the preloaded library.
const LIBRARY: &str = "librumbench_powercut.so";

/// Power loss of a child process: its library, the watched directory, and the journal.
#[derive(Debug, Clone)]
pub struct PowerCut {
    library: PathBuf,
    /// Watched directory, without symbolic links.
    root: PathBuf,
    journal: PathBuf,
    kept: PathBuf,
}

impl PowerCut {
    /// Prepares power losses of the database in the existing `directory`; the journal is next to
    /// it.
    ///
    /// # Errors
    /// Fails if the library is not next to this program, or if the directory cannot be used.
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

    /// Returns environment variables for the child.
    pub fn environment(&self) -> [(&'static str, OsString); 4] {
        let path = |path: &Path| path.as_os_str().to_os_string();
        [
            ("LD_PRELOAD", path(&self.library)),
            ("RUMBENCH_POWERCUT_ROOT", path(&self.root)),
            ("RUMBENCH_POWERCUT_JOURNAL", path(&self.journal)),
            ("RUMBENCH_POWERCUT_KEPT", path(&self.kept)),
        ]
    }

    /// Returns the directory that the child must use.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Undoes, after the end of the child, the changes lost in a power loss. `written` is the
    /// number of bytes that the kernel counted, without the child's reports to the laboratory.
    ///
    /// # Errors
    /// Fails if files cannot be read or written: the directory is then in no defined state.
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

    /// Removes the journal and the kept files, and creates an empty directory for kept files.
    fn clear(&self) -> Result<()> {
        let _ = fs::remove_file(&self.journal);
        let _ = fs::remove_dir_all(&self.kept);
        fs::create_dir_all(&self.kept)
            .with_context(|| format!("cannot create {}", self.kept.display()))
    }

    /// Removes the journal and the kept files.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.journal);
        let _ = fs::remove_dir_all(&self.kept);
    }
}
