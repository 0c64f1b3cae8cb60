//! Checks the log of an open database, which is written and trimmed meanwhile.
//!
//! The check follows the headers from the newest segment back to the oldest needed one. The caller
//! gets the end of the newest segment from the writer: everything below it must be valid, and
//! everything above it is ignored. A segment that is trimmed while it is read is not damage.

use std::path::Path;

use super::frame::FrameReader;
use super::replay::check_unfinished;
use super::segment::{
    OpenSegment, SEGMENT_HEADER_BYTES, parse_segment_name, segment_path, segment_uid,
};
use super::{RecordKind, SegmentEnd, WalPosition};
use crate::base::{SegmentId, SeqNo};
use crate::error::{Error, Result};
use crate::vfs::Vfs;

/// Totals of a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scrubbed {
    pub segments: u64,
    pub records: u64,
    pub bytes: u64,
}

/// Callbacks from a scrub to its caller.
pub(crate) trait ScrubLog {
    /// Returns the oldest segment that is needed now. Never falls.
    fn oldest_needed(&self) -> SegmentId;
    /// Checks a record's payload; an error describes the damage.
    fn record(&mut self, seqno: SeqNo, kind: RecordKind, payload: &[u8]) -> Result<(), String>;
    /// Reports damage.
    fn report(&mut self, error: Error);
}

/// Expected end of a segment, as far as it is known.
struct Expected {
    offset: Option<u64>,
    chain: Option<u64>,
}

/// Reads the log from `end` back to the oldest needed segment, and continues in the next segment
/// after damage.
pub(crate) fn scrub(
    vfs: &dyn Vfs,
    dir: &Path,
    database_uid: u64,
    end: WalPosition,
    log: &mut dyn ScrubLog,
) -> Scrubbed {
    let mut done = Scrubbed::default();
    let mut id = end.segment;
    let mut expected = Expected {
        offset: Some(end.offset),
        chain: None,
    };
    // Ends: each round goes to a segment with a smaller number.
    while id >= log.oldest_needed() && id.0 > 0 {
        let previous = match scrub_segment(vfs, dir, database_uid, id, &expected, log, &mut done) {
            Ok(previous) => previous,
            // Trimmed while it was read.
            Err(_) if id < log.oldest_needed() => break,
            Err(error) => {
                // If no header has led here, the file may never have become a segment.
                let was_named = expected.offset.is_some();
                if was_named || !never_begun(vfs, dir, id, database_uid) {
                    log.report(error);
                }
                // Without a header to follow, go to the next older file.
                let below = newest_below(vfs, dir, id);
                below.map(|segment| (segment, None))
            }
        };
        let Some((segment, end)) = previous.filter(|(segment, _)| *segment < id) else {
            break;
        };
        id = segment;
        expected = Expected {
            offset: end.map(|end| end.offset),
            chain: end.map(|end| end.chain),
        };
    }
    done
}

type Previous = Option<(SegmentId, Option<SegmentEnd>)>;

/// Checks one segment and returns the end of the previous one, as given in its header. Reports
/// damage after the header.
fn scrub_segment(
    vfs: &dyn Vfs,
    dir: &Path,
    database_uid: u64,
    id: SegmentId,
    expected: &Expected,
    log: &mut dyn ScrubLog,
    done: &mut Scrubbed,
) -> Result<Previous> {
    let segment = OpenSegment::open(vfs, dir, id, database_uid)?;
    segment.check_length()?;
    let path = segment_path(dir, id);
    let Some((header, sum)) = segment.header else {
        return Err(segment.without_header());
    };
    done.segments += 1;
    let uid = segment_uid(database_uid, id);
    let mut frames = FrameReader::new(&*segment.file, uid, SEGMENT_HEADER_BYTES, sum)?;
    while expected.offset.is_none_or(|end| frames.offset() < end) {
        let Some(frame) = frames.next()? else { break };
        done.records += 1;
        let (offset, seqno) = (frame.offset, frame.header.seqno);
        let checked = match RecordKind::from_u8(frame.header.kind) {
            None => Err(format!("kind {}", frame.header.kind)),
            Some(RecordKind::SyncMark) => Ok(()),
            Some(kind) => log.record(seqno, kind, frame.payload),
        };
        if let Err(found) = checked {
            let what = "log record";
            let expected = "a known kind and a well-formed payload";
            log.report(Error::corruption(&path, offset, what, expected, found));
        }
    }
    done.bytes += frames.offset();
    let right_end = expected.offset.is_none_or(|end| end == frames.offset());
    let right_chain = expected.chain.is_none_or(|chain| chain == frames.chain());
    if !(right_end && right_chain) {
        let wanted = expected.offset.unwrap_or_default();
        let expected = format!("valid records up to offset {wanted}");
        let error = Error::corruption(
            &path,
            frames.offset(),
            "record",
            expected,
            "an invalid record",
        );
        if id >= log.oldest_needed() {
            log.report(error);
        }
    }
    Ok(header.previous.map(|end| (end.segment, Some(end))))
}

/// Returns true if a file is an unused leftover of preparing a segment: it has neither a header nor
/// a record, and may be removed at any time.
fn never_begun(vfs: &dyn Vfs, dir: &Path, id: SegmentId, database_uid: u64) -> bool {
    match OpenSegment::open(vfs, dir, id, database_uid) {
        Ok(segment) => segment.header.is_none() && check_unfinished(&segment, database_uid).is_ok(),
        Err(Error::Io { source, .. }) => source.kind() == std::io::ErrorKind::NotFound,
        Err(_) => false,
    }
}

fn newest_below(vfs: &dyn Vfs, dir: &Path, id: SegmentId) -> Option<SegmentId> {
    let names = vfs.list(dir).unwrap_or_default();
    let ids = names.iter().filter_map(|name| parse_segment_name(name));
    ids.filter(|&other| other < id).max()
}
