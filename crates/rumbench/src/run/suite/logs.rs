//! Log of a server in a failed trial: kept when the trial's data is removed.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use rumbench_engines::SERVER_LOG;

use super::super::progress::say;
use crate::report::marks;
use crate::store::result::TrialResult;

/// Folder next to the result.
const FOLDER: &str = "logs";
/// Maximum kept bytes of a log, from its end: a server that logs each refused statement fills a
/// device.
const BYTES_MAX: u64 = 16 << 20;

/// Moves the server's log from a trial's `directory` to the result folder, if the trial failed, and
/// records its path. It is moved rather than copied, because the device may be full. If the data is
/// kept, the log stays in place. A failure is reported but not fatal.
pub(super) fn keep(directory: &Path, out: &Path, keeps_data: bool, trial: &mut TrialResult) {
    // Some marks are derived from the measurements.
    marks::judge(trial);
    let log = directory.join(SERVER_LOG);
    let Some(name) = directory.file_name().filter(|_| log.exists()) else {
        return;
    };
    if !marks::failed(trial) {
        return;
    }
    let kept = if keeps_data {
        log
    } else {
        let kept = out.join(FOLDER).join(name).with_added_extension("log");
        if let Err(error) = take(&log, &kept) {
            return say(&format!("warning: cannot keep {}: {error}", kept.display()));
        }
        kept
    };
    say(&format!("the log of its server: {}", kept.display()));
    let place = kept.strip_prefix(out).unwrap_or(&kept);
    let place = place.display().to_string();
    trial.configuration.insert("server_log".to_string(), place);
}

/// Renames a log and truncates it to its last [`BYTES_MAX`] bytes.
fn take(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::rename(from, to)?;
    let mut log = File::open(to)?;
    let length = log.metadata()?.len();
    if length > BYTES_MAX {
        let mut end = Vec::new();
        log.seek(SeekFrom::Start(length - BYTES_MAX))?;
        log.take(BYTES_MAX).read_to_end(&mut end)?;
        fs::write(to, end)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Returns the recorded path and the kept length of the log, for a trial in `data/001-x` with a
    /// log of this many bytes.
    fn kept(bytes: u64, mark: Option<&str>, keeps_data: bool) -> (Option<String>, Option<u64>) {
        let out = tempfile::tempdir().expect("folder");
        let directory = out.path().join("data").join("001-x");
        fs::create_dir_all(&directory).expect("folder");
        let log = File::create(directory.join(SERVER_LOG)).expect("log");
        log.set_len(bytes).expect("length");
        let mut trial = sample::suite().trials[0].clone();
        trial.marks.clear();
        mark.into_iter().for_each(|mark| trial.mark(mark));
        keep(&directory, out.path(), keeps_data, &mut trial);
        let noted = trial.configuration.get("server_log").cloned();
        let length = noted.as_ref().map(|place| out.path().join(place));
        let length = length.and_then(|log| fs::metadata(log).ok());
        (noted, length.map(|metadata| metadata.len()))
    }

    #[test]
    fn the_end_of_the_log_of_a_failed_trial_is_kept() {
        assert_eq!(kept(10, None, false), (None, None));
        let place = || Some("logs/001-x.log".to_string());
        assert_eq!(kept(10, Some("failed (x)"), false), (place(), Some(10)));
        let long = kept(BYTES_MAX + 10, Some("stuck (x)"), false);
        assert_eq!(long, (place(), Some(BYTES_MAX)));
        let data = Some("data/001-x/server.log".to_string());
        assert_eq!(kept(10, Some("failed (x)"), true), (data, Some(10)));
    }

    #[test]
    fn operations_that_failed_are_a_reason_too() {
        let out = tempfile::tempdir().expect("folder");
        let directory = out.path().join("data");
        fs::create_dir_all(&directory).expect("folder");
        fs::write(directory.join(SERVER_LOG), "refused").expect("log");
        let mut trial = sample::suite().trials[0].clone();
        trial.marks.clear();
        trial.phases[0].errors = 1;
        keep(&directory, out.path(), false, &mut trial);
        assert!(trial.configuration.contains_key("server_log"));
    }
}
