//! Copying and reading whole files of a store, with their checksums.

use std::path::Path;
use std::sync::Arc;

use super::listing::ListedFile;
use crate::base::checksum::{RunningChecksum, checksum};
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};

/// Bytes read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Copies a table into the store, durable except for its name, and returns its entry for the
/// listing.
pub(super) fn copy_between(
    from_vfs: &dyn Vfs,
    from: &Path,
    to_vfs: &dyn Vfs,
    to: &Path,
    name: String,
) -> Result<ListedFile> {
    let source = open(from_vfs, from)?;
    let bytes = length(&*source)?;
    // Left over from a copy that stopped.
    remove_if_there(to_vfs, to)?;
    let checksum = transfer(&*source, bytes, Some((to_vfs, to)))?;
    Ok(ListedFile {
        name,
        bytes,
        checksum,
    })
}

/// Reads a file of the store, compares it with its listing, and copies it to `to` if given. The
/// copy is durable except for its name.
pub(super) fn copy_checked(
    vfs: &dyn Vfs,
    path: &Path,
    listed: &ListedFile,
    to: Option<&Path>,
) -> Result<()> {
    let source = open(vfs, path)?;
    check_length(&*source, listed)?;
    let found = transfer(&*source, listed.bytes, to.map(|to| (vfs, to)))?;
    check_sum(path, listed, found)
}

/// Returns the bytes of a small file of the store, compared with its listing.
pub(super) fn read_checked(vfs: &dyn Vfs, path: &Path, listed: &ListedFile) -> Result<Vec<u8>> {
    check_length(&*open(vfs, path)?, listed)?;
    let bytes = read_all(vfs, path)?;
    check_sum(path, listed, checksum(&bytes, 0))?;
    Ok(bytes)
}

/// Returns the bytes of a small file.
pub(super) fn read_all(vfs: &dyn Vfs, path: &Path) -> Result<Vec<u8>> {
    let file = open(vfs, path)?;
    let mut bytes = vec![0; length(&*file)? as usize];
    file.read_at(&mut bytes, 0)
        .map_err(|e| Error::io("read", path, e))?;
    Ok(bytes)
}

/// Writes a new small file, durable except for its name.
pub(super) fn write_file(vfs: &dyn Vfs, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = vfs.create(path).map_err(|e| Error::io("create", path, e))?;
    file.allocate(bytes.len() as u64)
        .map_err(|e| Error::io("allocate", path, e))?;
    file.write_at(bytes, 0)
        .map_err(|e| Error::io("write", path, e))?;
    file.sync().map_err(|e| Error::io("sync", path, e))
}

pub(super) fn sync_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.sync_dir(dir)
        .map_err(|e| Error::io("sync directory", dir, e))
}

pub(super) fn remove_if_there(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    match vfs.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Reads `bytes` bytes of a file, writes them to a new file at `to` if given, and returns their
/// checksum.
fn transfer(source: &dyn VfsFile, bytes: u64, to: Option<(&dyn Vfs, &Path)>) -> Result<u64> {
    let target = match to {
        None => None,
        Some((vfs, path)) => {
            let file = vfs.create(path).map_err(|e| Error::io("create", path, e))?;
            file.allocate(bytes)
                .map_err(|e| Error::io("allocate", path, e))?;
            Some(file)
        }
    };
    let mut sum = RunningChecksum::default();
    let mut buffer = vec![0; bytes.min(PIECE_BYTES) as usize];
    let mut offset = 0;
    while offset < bytes {
        let piece = &mut buffer[..(bytes - offset).min(PIECE_BYTES) as usize];
        source
            .read_at(piece, offset)
            .map_err(|e| Error::io("read", source.path(), e))?;
        sum.add(piece);
        if let Some(target) = &target {
            target
                .write_at(piece, offset)
                .map_err(|e| Error::io("write", target.path(), e))?;
            target.start_writeback(offset, piece.len() as u64);
        }
        offset += piece.len() as u64;
    }
    if let Some(target) = &target {
        target
            .sync()
            .map_err(|e| Error::io("sync", target.path(), e))?;
    }
    Ok(sum.value())
}

fn open(vfs: &dyn Vfs, path: &Path) -> Result<Arc<dyn VfsFile>> {
    vfs.open_read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::corruption(path, 0, "file of a backup", "a file", "none")
        }
        _ => Error::io("open", path, e),
    })
}

fn length(file: &dyn VfsFile) -> Result<u64> {
    let len = file.len();
    len.map_err(|e| Error::io("measure", file.path(), e))
}

fn check_length(file: &dyn VfsFile, listed: &ListedFile) -> Result<()> {
    let found = length(file)?;
    if found == listed.bytes {
        return Ok(());
    }
    let what = "length of a file of a backup";
    Err(Error::corruption(file.path(), 0, what, listed.bytes, found))
}

fn check_sum(path: &Path, listed: &ListedFile, found: u64) -> Result<()> {
    if found == listed.checksum {
        return Ok(());
    }
    let [expected, found] = [listed.checksum, found].map(|sum| format!("{sum:016x}"));
    let what = "checksum of a file of a backup";
    Err(Error::corruption(path, 0, what, expected, found))
}
