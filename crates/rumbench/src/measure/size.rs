//! Allocated bytes of a data directory and free bytes of its file system.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rumbench_core::engine::Engine;

/// Allocated bytes of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allocated {
    /// Bytes of the files that the engine reports as data.
    pub data: u64,
    /// Bytes of everything, directories included.
    pub directory: u64,
    /// Number of files found.
    pub files: u64,
}

/// Returns the space that an engine uses: as reported by an external engine, otherwise the size of
/// its directory.
pub fn of_engine(engine: &dyn Engine, directory: &Path, is_data: bool) -> Allocated {
    if engine.external().is_some() {
        let stored = engine.stored_bytes().unwrap_or(0);
        return Allocated {
            data: stored,
            directory: stored,
            // The engine is queried as rarely as a directory with many files is walked.
            files: u64::MAX,
        };
    }
    allocated(directory, &|name| is_data && engine.is_data_file(name))
}

/// Returns the allocated bytes of a directory. Files that vanish during the walk (compaction) are
/// skipped.
pub fn allocated(directory: &Path, is_data: &dyn Fn(&str) -> bool) -> Allocated {
    let mut sum = Allocated::default();
    let mut pending = vec![directory.to_path_buf()];
    // Terminates because symbolic links are not followed.
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

/// Returns the bytes that an unprivileged process may still allocate on the file system of a
/// directory.
///
/// # Errors
/// When the file system cannot be queried.
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
