//! The log of a server whose trial failed: it is kept when the trial's data goes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rumbench_engines::SERVER_LOG;

use super::super::progress::say;
use crate::store::result::TrialResult;

/// The folder beside the result.
const FOLDER: &str = "logs";
/// Bytes of a log that are kept, its last ones: a server that logs each refused statement fills a device.
const BYTES_MAX: u64 = 16 << 20;
/// Marks of trials whose log says why.
const FAILURES: [&str; 6] = [
    "child-died",
    "errors",
    "failed",
    "out-of-memory",
    "stuck",
    "wrong-answer",
];

/// Copies the log of the server in a trial's `directory` to the folder of the result, if the trial failed, and notes where it
/// is. What cannot be copied is said, not fatal.
pub(super) fn keep(directory: &Path, out: &Path, trial: &mut TrialResult) {
    let log = directory.join(SERVER_LOG);
    let failed = FAILURES.iter().any(|mark| trial.has_mark(mark));
    let Some(name) = directory.file_name().filter(|_| failed && log.exists()) else {
        return;
    };
    let kept = Path::new(FOLDER).join(PathBuf::from(name).with_added_extension("log"));
    match copy_end(&log, &out.join(&kept)) {
        Ok(()) => {
            let kept = kept.display().to_string();
            say(&format!(
                "the log of its server: {}",
                out.join(&kept).display()
            ));
            trial.configuration.insert("server_log".to_string(), kept);
        }
        Err(error) => say(&format!(
            "warning: cannot keep the server's log {}: {error}",
            log.display()
        )),
    }
}

fn copy_end(from: &Path, to: &Path) -> io::Result<()> {
    let mut log = File::open(from)?;
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(BYTES_MAX)))?;
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    io::copy(&mut log.take(BYTES_MAX), &mut File::create(to)?).map(drop)
}
