//! Folders and files of a trial with a private server.

use std::path::{Path, PathBuf};

use rumbench_core::engine::{EngineError, Result};

use crate::adapter::SERVER_LOG;

/// Folder of the server's own files, inside the trial's folder.
pub(super) const DATA_FOLDER: &str = "server";

/// Absolute paths of a trial's folder, data folder, and log.
pub(super) struct Places {
    pub(super) trial: PathBuf,
    pub(super) data: PathBuf,
    pub(super) log: PathBuf,
}

impl Places {
    /// Creates the data folder if needed; the flag is true if it already existed.
    pub(super) fn prepare(trial: &Path) -> Result<(Places, bool)> {
        let failed = |error| EngineError::failed(format!("cannot find {}", trial.display()), error);
        let trial = std::fs::canonicalize(trial).map_err(failed)?;
        let places = Places {
            data: trial.join(DATA_FOLDER),
            log: trial.join(SERVER_LOG),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_folder_that_was_used_is_known() {
        let trial = tempfile::tempdir().unwrap();
        let (places, existed) = Places::prepare(trial.path()).unwrap();
        assert!(!existed && places.data.is_dir());
        assert!(Places::prepare(trial.path()).unwrap().1);
    }
}
