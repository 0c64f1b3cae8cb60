//! Reads the edits of the current manifest one by one, to inspect the history of its state.

use std::path::Path;

use super::file::{HEADER_BYTES, KIND_EDIT, decode_header, file_uid};
use super::list;
use super::read::apply_frame;
use crate::error::{Error, Result};
use crate::version::current::{file_name, parse_name, read_pointer, read_start};
use crate::version::{ManifestState, VersionEdit};
use crate::vfs::Vfs;
use crate::wal::frame::FrameReader;
use crate::wal::open_settled;

/// Calls `visit` with the offset and the content of each edit, until `visit` returns `false`.
/// Returns the manifest's file name. The first damaged edit, or edit that contradicts earlier ones,
/// ends the reading. If `CURRENT` is unreadable, the newest manifest is used. Both errors are
/// passed to `report`. Changes no file.
///
/// # Errors
///
/// [`Error::Corruption`] for the header, or for `CURRENT` if there is no manifest;
/// [`Error::NewerFormat`]; [`Error::Io`].
pub fn edits(
    vfs: &dyn Vfs,
    dir: &Path,
    visit: &mut dyn FnMut(u64, &VersionEdit) -> bool,
    report: &mut dyn FnMut(Error),
) -> Result<String> {
    let number = match read_pointer(vfs, dir) {
        Ok(number) => number,
        Err(error @ Error::NewerFormat { .. }) => return Err(error),
        Err(error) => {
            let names = list(vfs, dir)?;
            let newest = names.iter().filter_map(|name| parse_name(name)).max();
            let number = newest.ok_or_else(|| error.clone())?;
            report(error);
            number
        }
    };
    let name = file_name(number);
    let path = dir.join(&name);
    let (file, len) = open_settled(vfs, &path)?;
    let (uid, sum) = decode_header(&read_start(&*file, len, HEADER_BYTES)?, number, &path)?;
    let mut frames = FrameReader::new(&*file, file_uid(uid, number), HEADER_BYTES, sum)?;
    let mut state = ManifestState::default();
    while let Some(frame) = frames.next()? {
        if let Err(error) = apply_frame(&frame, &path, &mut state) {
            report(error);
            return Ok(name);
        }
        let edit = VersionEdit::decode(frame.payload);
        if let (KIND_EDIT, Ok(edit)) = (frame.header.kind, edit)
            && !visit(frame.offset, &edit)
        {
            return Ok(name);
        }
    }
    if let Err(error) = frames.finish() {
        report(error);
    }
    Ok(name)
}
