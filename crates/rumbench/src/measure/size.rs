//! Allocated bytes of a data directory and free bytes of its file system.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rumbench_core::engine::Engine;

/// Allocated bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allocated {
    /// Files for which the engine says that they hold data.
    pub data: u64,
    /// Everything, directories included.
    pub directory: u64,
    /// Files seen.
    pub files: u64,
}

/// What an engine takes: by its own account where its files are elsewhere, else by its directory.
pub fn of_engine(engine: &dyn Engine, directory: &Path, is_data: bool) -> Allocated {
    if engine.external().is_some() {
        let stored = engine.stored_bytes().unwrap_or(0);
        return Allocated {
            data: stored,
            directory: stored,
            // Asked as seldom as a directory with many files is walked.
            files: u64::MAX,
        };
    }
    allocated(directory, &|name| is_data && engine.is_data_file(name))
}

/// Walks a directory. Files that vanish meanwhile (compaction) are skipped.
pub fn allocated(directory: &Path, is_data: &dyn Fn(&str) -> bool) -> Allocated {
    let mut sum = Allocated::default();
    let mut pending = vec![directory.to_path_buf()];
    // Ends because symbolic links are not followed.
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let bytes = metadata.blocks().saturating_mul(512);
            sum.directory += bytes;
            if metadata.is_dir() {
                pending.push(entry.path());
            } else {
                sum.files += 1;
                if is_data(&entry.file_name().to_string_lossy()) {
                    sum.data += bytes;
                }
            }
        }
    }
    sum
}

/// Bytes that an unprivileged process may still allocate on the file system of a directory.
///
/// # Errors
/// When the directory cannot be asked.
pub fn free_bytes(directory: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(directory)
        .with_context(|| format!("cannot read the free space of {}", directory.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_count_for_the_directory_but_not_for_the_data() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/1.sst"), vec![1; 8192]).unwrap();
        fs::write(dir.path().join("2.wal"), vec![1; 8192]).unwrap();
        let size = allocated(dir.path(), &|name| name.ends_with(".sst"));
        assert_eq!(size.files, 2);
        assert!(size.directory >= size.data, "{size:?}");
    }
}
