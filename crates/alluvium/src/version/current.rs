//! Pointer file `CURRENT`, which names the manifest in force, and the names of manifest files.
//!
//! `CURRENT` is one line of text: `alluvium`, the format version, the manifest's file name, and a
//! checksum of all that. It is never changed in place: its successor is written next to it, synced,
//! renamed over it, and the directory is synced.

use std::path::Path;

use crate::base::checksum::checksum;
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};
use crate::wal::{hard_io, open_settled};

/// Newest manifest format that this build reads, and the one it writes.
pub(super) const FORMAT_VERSION: u32 = 1;

/// Name of the pointer file.
pub(super) const CURRENT: &str = "CURRENT";
/// Name under which the next pointer file is prepared.
const CURRENT_TEMPORARY: &str = "CURRENT.tmp";

/// Returns the file name of the manifest with this number.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:06}.manifest")
}

/// Returns the number of the manifest with this file name; `None` for other names.
pub(super) fn parse_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".manifest")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// Returns the line in `CURRENT` that names a manifest. Its checksum keeps a rotten digit from
/// naming an older manifest.
pub(super) fn current_line(version: u32, number: u64) -> String {
    let mut line = format!("alluvium {version} {}", file_name(number));
    let sum = checksum(line.as_bytes(), 0);
    line.push_str(&format!(" {sum:016x}\n"));
    line
}

/// Makes `CURRENT` name the manifest with this number, durable on return.
///
/// # Errors
///
/// [`Error::NoSpace`] while the old pointer is still in force; anything else is final.
pub(super) fn switch_current(vfs: &dyn Vfs, dir: &Path, number: u64) -> Result<()> {
    let temporary = dir.join(CURRENT_TEMPORARY);
    let current = dir.join(CURRENT);
    // Left over from an interrupted switch.
    match vfs.remove(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &temporary, error));
        }
        _ => {}
    }
    let line = current_line(FORMAT_VERSION, number);
    let file = vfs
        .create(&temporary)
        .map_err(|error| Error::io("create", &temporary, error))?;
    // Allocated first: up to the rename, a full device leaves the old manifest in force.
    file.allocate(line.len() as u64)
        .map_err(|error| Error::io("allocate", &temporary, error))?;
    file.write_at(line.as_bytes(), 0)
        .map_err(|error| hard_io("write", &temporary, error))?;
    file.sync()
        .map_err(|error| hard_io("sync", &temporary, error))?;
    vfs.rename(&temporary, &current)
        .map_err(|error| hard_io("rename to", &current, error))?;
    sync_dir(vfs, dir)
}

/// Returns the number of the manifest that `CURRENT` names.
pub(super) fn read_pointer(vfs: &dyn Vfs, dir: &Path) -> Result<u64> {
    const LINE_BYTES_MAX: u64 = 200;
    let path = dir.join(CURRENT);
    let (file, len) = open_settled(vfs, &path)?;
    let bytes = read_start(&*file, len, LINE_BYTES_MAX)?;
    let named = (|| {
        let mut words = std::str::from_utf8(&bytes).ok()?.split(' ');
        words.next()?;
        let version: u32 = words.next()?.parse().ok()?;
        let number = parse_name(words.next()?)?;
        let exact = len == bytes.len() as u64 && current_line(version, number).as_bytes() == bytes;
        exact.then_some((version, number))
    })();
    match named {
        Some((version, _)) if version > FORMAT_VERSION => Err(newer(&path, version)),
        Some((_, number)) => Ok(number),
        None => {
            let what = "pointer to the manifest";
            let expected = "a file name with its checksum";
            Err(Error::corruption(&path, 0, what, expected, "other bytes"))
        }
    }
}

/// Makes the names in the database directory durable.
pub(super) fn sync_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.sync_dir(dir)
        .map_err(|error| hard_io("sync directory", dir, error))
}

/// Returns the error for a file of a later version.
pub(super) fn newer(path: &Path, found: u32) -> Error {
    Error::NewerFormat {
        path: path.to_path_buf(),
        found,
        supported: FORMAT_VERSION,
    }
}

/// Reads the first `most` bytes of a file, or all of a shorter one.
pub(super) fn read_start(file: &dyn VfsFile, len: u64, most: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len.min(most) as usize];
    file.read_at(&mut bytes, 0)
        .map_err(|error| Error::io("read", file.path(), error))?;
    Ok(bytes)
}
