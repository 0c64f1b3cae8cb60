//! Reading the log while it is written, forward from one of its sequence numbers: the basis of a
//! change stream.
//!
//! The reader asks for records up to a published number. All of them were written before it was
//! published. So a missing record is in a later segment, was removed with unneeded segments, or is
//! damaged. The header of the next segment says where the previous one ended, which decides between
//! these cases. Every frame is checked as in replay: checksum, place, predecessor. Nothing is
//! synced, and nothing is read after the number asked for.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameReader};
use super::replay::list_segments;
use super::segment::{OpenSegment, SEGMENT_HEADER_BYTES, SegmentHeader, segment_uid};
use super::{RecordKind, SegmentEnd};
use crate::base::{SegmentId, SeqNo};
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};

/// Bytes read from a segment at once. At the end of the log most of them are of no use.
const STEP_BYTES: usize = 128 << 10;

/// Limit on the payload bytes that one call returns, unless a single record is larger.
const BATCH_BYTES: usize = 1 << 20;

/// Identity of the log to read.
#[derive(Debug, Clone)]
pub(crate) struct LogPlace {
    pub vfs: Arc<dyn Vfs>,
    pub dir: PathBuf,
    pub database_uid: u64,
    /// Newest number when the database was opened. Every later one is in the log; an earlier one
    /// may belong to a session without a log.
    pub logged_from: SeqNo,
}

/// Reader that follows a live log.
#[derive(Debug)]
pub(crate) struct LogFollower {
    log: LogPlace,
    /// `None` if there is no log and there will be none.
    segment: Option<Following>,
    /// Number of the next record to return.
    next_seqno: SeqNo,
}

/// Segment being read, and the position in it.
#[derive(Debug)]
struct Following {
    id: SegmentId,
    file: Arc<dyn VfsFile>,
    offset: u64,
    chain: u64,
}

/// Record with its place in the log.
#[derive(Debug)]
pub(crate) struct FollowedRecord {
    pub segment: SegmentId,
    pub offset: u64,
    pub seqno: SeqNo,
    pub kind: RecordKind,
    pub payload: Vec<u8>,
}

impl LogFollower {
    /// Starts at the record with the number `from`. All retained records up to `published` are in
    /// the log.
    ///
    /// # Errors
    ///
    /// [`Error::ChangesLost`] if the log does not reach back to `from`; [`Error::Io`],
    /// [`Error::Corruption`].
    pub fn begin(log: LogPlace, from: SeqNo, published: SeqNo) -> Result<LogFollower> {
        let segments = list_segments(&*log.vfs, &log.dir)?;
        LogFollower::begin_in(log, &segments, from, published)
    }

    /// Starts like [`LogFollower::begin`], with a list of segments that may be out of date.
    fn begin_in(
        log: LogPlace,
        segments: &[SegmentId],
        from: SeqNo,
        published: SeqNo,
    ) -> Result<LogFollower> {
        let (mut oldest, mut segment, mut wanted) = (None, None, None::<SegmentEnd>);
        // Ends: each segment leads to an older one.
        for &id in segments.iter().rev() {
            // Removed meanwhile: an unneeded prepared file, or an old segment and then all older
            // ones too.
            let Some(open) = log.open(id)? else { continue };
            let Some((header, sum)) = open.header else {
                continue;
            };
            if wanted.is_some_and(|wanted| wanted.segment != id) {
                break;
            }
            let first = log.first_number(&open, sum)?;
            if first.is_none() && wanted.is_some_and(|end| end.offset > SEGMENT_HEADER_BYTES) {
                let (path, what) = (open.file.path(), "record");
                let (expected, found) = ("the first one of the segment", "an invalid record");
                let at = SEGMENT_HEADER_BYTES;
                return Err(Error::corruption(path, at, what, expected, found));
            }
            // An empty segment says nothing: its predecessor may be newer than `published`.
            oldest = first.or(oldest);
            segment = Some(Following {
                id,
                file: open.file,
                offset: SEGMENT_HEADER_BYTES,
                chain: sum,
            });
            wanted = header.previous;
            if oldest.is_some_and(|oldest| oldest <= from) || wanted.is_none() {
                break;
            }
        }
        let oldest = oldest.unwrap_or(published + 1);
        if oldest > from {
            return Err(Error::ChangesLost { from, oldest });
        }
        Ok(LogFollower {
            log,
            segment,
            next_seqno: from,
        })
    }

    /// Returns the oldest segment that is still needed.
    pub fn segment(&self) -> Option<SegmentId> {
        self.segment.as_ref().map(|segment| segment.id)
    }

    /// Returns the number of the next record to be returned.
    pub fn next_seqno(&self) -> SeqNo {
        self.next_seqno
    }

    /// Reads some of the records up to the published number `end` and appends them to `out`, in
    /// order and without a gap. Leaves out steps of prepared transactions that apply nothing.
    ///
    /// # Errors
    ///
    /// [`Error::ChangesLost`] if the segment with the next record is gone; [`Error::Corruption`],
    /// [`Error::Io`]. `out` holds the records read before the error.
    pub fn read(&mut self, end: SeqNo, out: &mut VecDeque<FollowedRecord>) -> Result<()> {
        // Ends: each round goes to a segment with a larger number.
        while self.next_seqno <= end && out.is_empty() {
            if !self.read_segment(end, out)? && self.next_seqno <= end {
                self.go_on(end)?;
            }
        }
        Ok(())
    }

    /// Reads in one segment. Returns true if it stopped although valid records follow.
    fn read_segment(&mut self, end: SeqNo, out: &mut VecDeque<FollowedRecord>) -> Result<bool> {
        let Some(segment) = &mut self.segment else {
            return Ok(false);
        };
        let (file, mut bytes) = (Arc::clone(&segment.file), 0);
        let uid = segment_uid(self.log.database_uid, segment.id);
        let mut frames = FrameReader::new(&*file, uid, segment.offset, segment.chain)?;
        frames.read_ahead(STEP_BYTES);
        while let Some(frame) = frames.next()? {
            let (offset, seqno) = (frame.offset, frame.header.seqno);
            if seqno > end || bytes > BATCH_BYTES {
                return Ok(true);
            }
            let kind = RecordKind::decode(frame.header.kind, file.path(), offset)?;
            // An older number: before the first one asked for, or a prepare that was written again.
            if kind != RecordKind::SyncMark && seqno >= self.next_seqno {
                if seqno > self.next_seqno {
                    let from = self.next_seqno;
                    return Err(Error::ChangesLost {
                        from,
                        oldest: seqno,
                    });
                }
                self.next_seqno = seqno + 1;
                if !matches!(kind, RecordKind::Prepare | RecordKind::Rollback) {
                    bytes += frame.payload.len();
                    out.push_back(FollowedRecord {
                        segment: segment.id,
                        offset,
                        seqno,
                        kind,
                        payload: frame.payload.to_vec(),
                    });
                }
            }
            (segment.offset, segment.chain) = (frames.offset(), frames.chain());
        }
        Ok(false)
    }

    /// Moves to the next segment, where the record with the next number must be.
    fn go_on(&mut self, end: SeqNo) -> Result<()> {
        let lost = |next_seqno| self.log.lost(next_seqno, end);
        let Some(at) = &self.segment else {
            return Err(lost(self.next_seqno));
        };
        let Some((segment, header, sum)) = self.log.segment_after(at.id)? else {
            // This is the newest segment. If this session has logged nothing yet, the number
            // belongs to a session without a log.
            if self.next_seqno <= self.log.logged_from && at.offset == SEGMENT_HEADER_BYTES {
                return Err(lost(self.next_seqno));
            }
            return Err(at.damaged(format!("valid records up to commit {end}")));
        };
        match header.previous {
            Some(previous) if previous == at.end() => {}
            Some(previous) if previous.segment == at.id => {
                return Err(at.damaged(format!("valid records up to offset {}", previous.offset)));
            }
            _ => return Err(lost(self.next_seqno)),
        }
        self.segment = Some(Following {
            id: segment.id,
            file: segment.file,
            offset: SEGMENT_HEADER_BYTES,
            chain: sum,
        });
        Ok(())
    }
}

impl Following {
    fn end(&self) -> SegmentEnd {
        SegmentEnd {
            segment: self.id,
            offset: self.offset,
            chain: self.chain,
        }
    }

    fn damaged(&self, expected: String) -> Error {
        let (path, what) = (self.file.path(), "record");
        Error::corruption(path, self.offset, what, expected, "an invalid record")
    }
}

impl LogPlace {
    /// Opens a segment in its current state; `None` if it was removed meanwhile. A file with a
    /// record and no header is damaged.
    fn open(&self, id: SegmentId) -> Result<Option<OpenSegment>> {
        let open = || OpenSegment::open_live(&*self.vfs, &self.dir, id, self.database_uid);
        let opened = open().and_then(|segment| match segment.header {
            None if self.first_frame(&segment)?.is_some() => {
                // The file may have become a segment between the two reads.
                let again = open()?;
                match again.header {
                    Some(_) => Ok(again),
                    None => Err(again.without_header()),
                }
            }
            _ => Ok(segment),
        });
        match opened {
            Ok(segment) => segment.check_length().map(|()| Some(segment)),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the next segment with a valid header; a file without one was made ahead of time.
    fn segment_after(&self, id: SegmentId) -> Result<Option<(OpenSegment, SegmentHeader, u64)>> {
        let ids = list_segments(&*self.vfs, &self.dir)?;
        for id in ids.into_iter().filter(|&other| other > id) {
            let open = self.open(id)?;
            if let Some(open) = open
                && let Some((header, sum)) = open.header
            {
                return Ok(Some((open, header, sum)));
            }
        }
        Ok(None)
    }

    /// Returns the first sequence number that a segment holds as a record of its own; `None` if
    /// empty.
    fn first_number(&self, segment: &OpenSegment, chain: u64) -> Result<Option<SeqNo>> {
        let first = self.first_frame(segment)?;
        let first = first.filter(|header| header.chain == chain);
        Ok(first.map(|header| match RecordKind::from_u8(header.kind) {
            // Neither has its own number: a prepare may be written again with that of the commit
            // before it.
            Some(RecordKind::Prepare | RecordKind::SyncMark) => header.seqno + 1,
            _ => header.seqno,
        }))
    }

    /// Returns the header of a segment's first record.
    fn first_frame(&self, segment: &OpenSegment) -> Result<Option<FrameHeader>> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        match segment.file.read_at(&mut bytes, SEGMENT_HEADER_BYTES) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(Error::io("read", segment.file.path(), error)),
        }
        let uid = segment_uid(self.database_uid, segment.id);
        let first = FrameHeader::parse(&bytes, uid, SEGMENT_HEADER_BYTES);
        Ok(first.map(|(header, _)| header))
    }

    /// Returns the error for a number that the log no longer holds.
    fn lost(&self, from: SeqNo, published: SeqNo) -> Error {
        match LogFollower::begin(self.clone(), 0, published) {
            Err(Error::ChangesLost { oldest, .. }) => Error::ChangesLost { from, oldest },
            Ok(_) => Error::ChangesLost { from, oldest: 0 },
            Err(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::db::{Database, Options};
    use crate::keyspace::KeyspaceOptions;
    use crate::vfs::MemVfs;

    #[test]
    fn a_prepared_segment_that_goes_while_the_log_is_looked_at_loses_no_change() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let dir = Path::new("db");
        let db = Database::open_on(Arc::clone(&vfs), dir, Options::default()).unwrap();
        let words = db.keyspace("words", KeyspaceOptions::default()).unwrap();
        words.put(b"a", b"1").unwrap();
        let shared = db.shared();
        let log = LogPlace {
            vfs: Arc::clone(&vfs),
            dir: shared.core.files.dir.clone(),
            database_uid: shared.uid,
            logged_from: shared.commits.env.progress.opened_at,
        };
        let mut segments = list_segments(&*vfs, dir).unwrap();
        let newest = segments.last().unwrap().0;
        segments.push(SegmentId(newest + 7));
        let visible = db.visible_seqno();
        let mut follower = LogFollower::begin_in(log, &segments, 1, visible).unwrap();
        let mut records = VecDeque::new();
        while follower.next_seqno() <= visible {
            follower.read(visible, &mut records).unwrap();
        }
        assert_eq!(records.front().map(|record| record.seqno), Some(1));
        assert_eq!(records.back().map(|record| record.seqno), Some(visible));
    }
}
