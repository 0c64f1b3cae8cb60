//! Reads a damaged log as far as possible, for a repair: from the oldest needed segment forward, up
//! to the first place where a record or a segment is missing. Nothing after it is read, because no
//! commit may be skipped.

use std::collections::BTreeMap;
use std::path::Path;

use super::frame::FrameReader;
use super::replay::{check_unfinished, first_unproven, list_segments, may_have_been_cut};
use super::segment::{OpenSegment, SEGMENT_HEADER_BYTES, segment_path, segment_uid};
use super::{RecordKind, SegmentEnd};
use crate::base::{SegmentId, SeqNo};
use crate::error::{Error, Result};
use crate::vfs::Vfs;

/// Called with each record in log order.
type Visit<'a> = &'a mut dyn FnMut(SegmentId, SeqNo, RecordKind, &[u8]) -> Result<()>;

/// Visits the records that can be trusted. Returns the damage that stopped it before the end, if
/// any.
///
/// # Errors
///
/// The visitor's, and `Io` for the directory.
pub(crate) fn salvage(
    vfs: &dyn Vfs,
    dir: &Path,
    database_uid: u64,
    oldest_needed: SegmentId,
    visit: Visit<'_>,
) -> Result<Option<Error>> {
    let (segments, unopened) = open_from(vfs, dir, database_uid, oldest_needed)?;
    let unproven = first_unproven(&segments, oldest_needed, database_uid)?;
    // Ends after which the next segment may begin. There are several if the last segments may have
    // been cut off by an earlier open.
    let mut ends: Vec<SegmentEnd> = Vec::new();
    // Damage at the end of the last segment so far, if it is not the end of a log.
    let mut tail = None;
    for (id, segment) in segments {
        let unproven = unproven.is_some_and(|first| id >= first);
        let Some((header, sum)) = segment.header else {
            // Made ahead of time or cut off, as in a normal open.
            if !unproven && let Err(error) = check_unfinished(&segment, database_uid) {
                return Ok(Some(error));
            }
            continue;
        };
        let path = segment_path(dir, id);
        let whole = segment.check_length();
        let joined = if ends.is_empty() {
            oldest_needed.0 == 0 || id == oldest_needed
        } else {
            header.previous.is_some_and(|end| ends.contains(&end))
        };
        if unproven && (!joined || whole.is_err()) {
            // A power loss cut the log here, as in a normal open.
            break;
        }
        if let Err(error) = whole {
            return Ok(Some(error));
        }
        if !joined {
            let what = "place of a log segment in the chain";
            let error = Error::corruption(&path, 0, what, "the end of the one before", "another");
            return Ok(Some(error));
        }
        let uid = segment_uid(database_uid, id);
        let mut frames = FrameReader::new(&*segment.file, uid, SEGMENT_HEADER_BYTES, sum)?;
        if let Some(error) = visit_records(id, &path, &mut frames, visit)? {
            return Ok(Some(error));
        }
        if !may_have_been_cut(&segment, sum, database_uid)? {
            ends.clear();
        }
        ends.push(SegmentEnd {
            segment: id,
            offset: frames.offset(),
            chain: frames.chain(),
        });
        tail = frames.finish().err();
    }
    let tail = unopened.or(tail);
    if !ends.is_empty() || oldest_needed.0 == 0 {
        return Ok(tail);
    }
    let path = segment_path(dir, oldest_needed);
    let (what, expected) = ("needed log segment", "a valid segment");
    let error = Error::corruption(&path, 0, what, expected, "none");
    Ok(Some(error))
}

/// Opens the segments from the oldest needed one on, and stops at the first failure. Returns the
/// opened segments and the error.
fn open_from(
    vfs: &dyn Vfs,
    dir: &Path,
    database_uid: u64,
    oldest_needed: SegmentId,
) -> Result<(BTreeMap<SegmentId, OpenSegment>, Option<Error>)> {
    let mut segments = BTreeMap::new();
    for id in list_segments(vfs, dir)? {
        if id < oldest_needed {
            continue;
        }
        match OpenSegment::open(vfs, dir, id, database_uid) {
            Ok(segment) => segments.insert(id, segment),
            Err(error) => return Ok((segments, Some(error))),
        };
    }
    Ok((segments, None))
}

/// Visits the records of a segment. Returns the error of a record of unknown kind.
fn visit_records(
    id: SegmentId,
    path: &Path,
    frames: &mut FrameReader<'_>,
    visit: Visit<'_>,
) -> Result<Option<Error>> {
    while let Some(frame) = frames.next()? {
        match RecordKind::decode(frame.header.kind, path, frame.offset) {
            Ok(RecordKind::SyncMark) => {}
            Ok(kind) => visit(id, frame.header.seqno, kind, frame.payload)?,
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}
