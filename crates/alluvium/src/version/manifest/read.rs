//! Reads a manifest file: the one in force, or the readable part of a damaged one.

use std::path::Path;

use super::file::{
    ALLOCATION_UNIT_BYTES, HEADER_BYTES, KIND_EDIT, KIND_MARK, decode_header, file_uid,
};
use crate::error::{Error, Result};
use crate::version::current::{FORMAT_VERSION, file_name, newer, read_pointer, read_start};
use crate::version::edit::{EditError, VersionEdit};
use crate::version::state::ManifestState;
use crate::vfs::Vfs;
use crate::wal::frame::{Frame, FrameReader};
use crate::wal::open_settled;

/// Contents of a manifest file.
#[derive(Debug)]
pub(super) struct Contents {
    pub number: u64,
    pub uid: u64,
    pub state: ManifestState,
}

pub(super) fn read_current(vfs: &dyn Vfs, dir: &Path) -> Result<Contents> {
    let number = read_pointer(vfs, dir)?;
    let path = dir.join(file_name(number));
    let (file, len) = open_settled(vfs, &path)?;
    if len == 0 || !len.is_multiple_of(ALLOCATION_UNIT_BYTES) {
        let what = "length of the manifest";
        let expected = format!("a multiple of {ALLOCATION_UNIT_BYTES}");
        return Err(Error::corruption(&path, len, what, expected, len));
    }
    let (uid, sum) = decode_header(&read_start(&*file, len, HEADER_BYTES)?, number, &path)?;
    let mut frames = FrameReader::new(&*file, file_uid(uid, number), HEADER_BYTES, sum)?;
    let mut state = ManifestState::default();
    while let Some(frame) = frames.next()? {
        apply_frame(&frame, &path, &mut state)?;
    }
    if frames.offset() == HEADER_BYTES {
        // The whole state was durable before CURRENT named the file.
        return Err(no_first_edit(&path));
    }
    // The rest may be an edit that a crash cut off and that was never acknowledged.
    frames.finish()?;
    Ok(Contents { number, uid, state })
}

/// Returns the uid and the state up to the first edit that is not valid or does not fit.
pub fn salvage_file(
    vfs: &dyn Vfs,
    dir: &Path,
    number: u64,
    report: &mut dyn FnMut(Error),
) -> Result<(u64, ManifestState)> {
    let path = dir.join(file_name(number));
    let (file, len) = open_settled(vfs, &path)?;
    let (uid, sum) = decode_header(&read_start(&*file, len, HEADER_BYTES)?, number, &path)?;
    let mut frames = FrameReader::new(&*file, file_uid(uid, number), HEADER_BYTES, sum)?;
    let mut state = None;
    while let Some(frame) = frames.next()? {
        let mut next = state.clone().unwrap_or_default();
        if let Err(error) = apply_frame(&frame, &path, &mut next) {
            report(error);
            break;
        }
        state = Some(next);
    }
    let Some(state) = state else {
        return Err(no_first_edit(&path));
    };
    if let Err(error) = frames.finish() {
        report(error);
    }
    Ok((uid, state))
}

fn no_first_edit(path: &Path) -> Error {
    let what = "first edit of the manifest";
    Error::corruption(path, HEADER_BYTES, what, "a valid edit", "none")
}

pub(super) fn apply_frame(frame: &Frame<'_>, path: &Path, state: &mut ManifestState) -> Result<()> {
    let damage = |expected: &str, found: String| {
        Error::corruption(path, frame.offset, "edit", expected, found)
    };
    match frame.header.kind {
        KIND_MARK => Ok(()),
        KIND_EDIT => {
            let edit = VersionEdit::decode(frame.payload).map_err(|error| match error {
                EditError::UnknownField(_) => newer(path, FORMAT_VERSION + 1),
                EditError::Malformed(what) => damage("well-formed fields", what.to_owned()),
            })?;
            state
                .apply(&edit)
                .map_err(|error| damage(error.expected, error.found))
        }
        other => Err(damage("an edit or a mark", format!("kind {other}"))),
    }
}
