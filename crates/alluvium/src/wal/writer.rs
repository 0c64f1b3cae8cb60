//! Appending to the log: records are framed in memory and reach the file in one write per group.
//!
//! A group never straddles two segments. If it does not fit, the next segment gets a header, and
//! the group is written there, without waiting for the device. The header says if the previous
//! segment was durable. A [`WalSync`] syncs the older segments first, so no record can say of
//! itself that it is durable while an older one is not.
//!
//! The next segment's file is created ahead of time from the plan that [`WalWriter::plan_next`]
//! returns. If none is ready, the roll creates it. Frames are sealed at the write, not at the
//! append, because their checksums depend on their place.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, frame_bytes, seal};
use super::prepare::{IDLE_AFTER, PreparedSegment, SegmentPlan, Stock};
use super::room::{SEGMENT_BYTES_MIN, allocation, first_segment_bytes};
use super::segment::{
    CUT_MARK, SEGMENT_HEADER_BYTES, SHORT_SEGMENT_BYTES, SegmentHeader, begin_segment,
    create_segment, segment_uid,
};
use super::sync::{LateSync, Names, Turn, WalSync};
use super::{RecordKind, SegmentEnd, WalPosition, hard_io, sync_dir};
use crate::base::{SEQNO_MAX, SegmentId, SeqNo};
use crate::error::{Error, Result};
use crate::sync::time::Instant;
use crate::vfs::{Vfs, VfsFile};

mod reserve;

/// The largest payload of a record. The caller refuses larger commits.
pub const PAYLOAD_BYTES_MAX: usize = u32::MAX as usize - 64;

/// Fewer bytes at the end of a segment are not worth the sync of a mark.
const CUT_BYTES_MIN: u64 = 16 << 10;

/// Limit on segments waiting to be synced. At the limit a roll waits for the device: the records
/// that a power loss may take must not grow without bound where the device is slower than the
/// writers.
const UNSYNCED_SEGMENTS_MAX: usize = 8;

/// A segment with less than one part in this many written is mostly empty.
const SPARSE_PART: u64 = 4;

/// The segment of an idle database is this many times smaller. Its half is usually enough for the
/// next file to be prepared meanwhile, if writes return.
const IDLE_PART: u64 = 8;

/// The buffer is shrunk to this size after a larger group.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

/// The only writer of a log.
#[derive(Debug)]
pub struct WalWriter {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    database_uid: u64,
    segment_bytes: u64,
    /// Id of the next segment to create. A number is tried only once.
    next_segment: u64,
    segment: Segment,
    /// Older segments that are not known to be durable to their end, oldest first.
    unsynced: Vec<(SegmentId, Arc<dyn VfsFile>)>,
    /// Newest segment with a name that is not known to be durable.
    unnamed: Option<SegmentId>,
    stock: Stock,
    /// New segments are short: see [`WalWriter::use_short_segments`].
    short: bool,
    /// Bytes of the device that new segments leave free: see [`WalWriter::leave_free`].
    leaves: u64,
    /// The end of the log in [`WalWriter::take_surplus`], and when it was first seen there.
    seen: Option<(WalPosition, Instant)>,
    /// Frames not yet written, with blank headers.
    buffer: Vec<u8>,
    pending: Vec<Pending>,
    /// True if `pending` holds a record of a prepared transaction.
    pending_prepared: bool,
    /// Bytes of the segment that stay free after each write: see [`WalWriter::reserve`].
    reserve: u64,
    /// The same for the writes so far.
    reserve_before: u64,
    last_seqno: SeqNo,
    /// The first failed write or sync, shared with every [`WalSync`]. Set once; nothing is written
    /// afterwards.
    failure: Arc<OnceLock<Error>>,
    /// Shared with every [`WalSync`]: one sync at a time.
    turn: Arc<Turn>,
}

/// The segment being written.
#[derive(Debug)]
struct Segment {
    id: SegmentId,
    file: Arc<dyn VfsFile>,
    uid: u64,
    allocated_bytes: u64,
    /// Offset after the last record.
    end: u64,
    /// The checksum of the last record, or of the header.
    chain: u64,
    /// Offset up to which the segment is known to be durable.
    durable: u64,
    /// The durable mark that the last record carries.
    marked: u64,
    /// True if its header allows records of prepared transactions.
    prepared: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    payload_bytes: u32,
    kind: RecordKind,
    seqno: SeqNo,
}

impl WalWriter {
    /// Starts a log, or continues one in a new segment. `first` is a number that no file has ever
    /// had, `previous` is the end returned by replay. `prepared` is true if there are unresolved
    /// prepared transactions: their records may be written again. On return the segment is durable.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if there is no room for the segment: nothing happened. [`Error::Io`]
    /// otherwise.
    ///
    /// # Panics
    ///
    /// If `first` is 0 or not above `previous`.
    pub fn create(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        database_uid: u64,
        first: SegmentId,
        previous: Option<SegmentEnd>,
        prepared: bool,
        segment_bytes: u64,
    ) -> Result<WalWriter> {
        assert!(first.0 > previous.map_or(0, |end| end.segment.0));
        let mut header = SegmentHeader {
            database_uid,
            segment: first,
            allocated_bytes: allocation(first_segment_bytes(&*vfs, dir, segment_bytes), 0),
            previous,
            prepared,
            unsynced: false,
        };
        let least = allocation(segment_bytes.min(SEGMENT_BYTES_MIN), 0);
        let (file, chain) = create_segment(&*vfs, dir, &mut header, least)?;
        file.sync()
            .map_err(|error| hard_io("sync", file.path(), error))?;
        sync_dir(&*vfs, dir)?;
        let segment = Segment {
            durable: SEGMENT_HEADER_BYTES,
            marked: SEGMENT_HEADER_BYTES,
            ..Segment::new(&header, file, chain)
        };
        Ok(WalWriter {
            vfs,
            dir: dir.to_path_buf(),
            database_uid,
            segment_bytes,
            next_segment: first.0 + 1,
            segment,
            unsynced: Vec::new(),
            unnamed: None,
            stock: Stock::default(),
            short: false,
            leaves: 0,
            seen: None,
            buffer: Vec::new(),
            pending: Vec::new(),
            pending_prepared: false,
            reserve: 0,
            reserve_before: 0,
            last_seqno: 0,
            failure: Arc::default(),
            turn: Arc::default(),
        })
    }

    /// Adds a record to the next group. No I/O.
    ///
    /// # Panics
    ///
    /// If the payload is larger than [`PAYLOAD_BYTES_MAX`], or the kind is
    /// [`RecordKind::SyncMark`].
    pub fn append(&mut self, seqno: SeqNo, kind: RecordKind, payload: &[u8]) {
        assert!(kind != RecordKind::SyncMark);
        self.push(seqno, kind, payload);
    }

    fn push(&mut self, seqno: SeqNo, kind: RecordKind, payload: &[u8]) {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX && seqno <= SEQNO_MAX);
        let end = self.buffer.len() + frame_bytes(payload.len());
        self.buffer
            .resize(self.buffer.len() + FRAME_HEADER_BYTES, 0);
        self.buffer.extend_from_slice(payload);
        self.buffer.resize(end, 0);
        self.pending_prepared |= kind.is_of_prepared();
        self.pending.push(Pending {
            payload_bytes: payload.len() as u32,
            kind,
            seqno,
        });
    }

    /// Returns the number of bytes appended and not yet written.
    pub fn pending_bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Writes everything appended to the file in one write, and returns the position after it. From
    /// here on the records survive the death of the process; they survive a power loss once the
    /// segment is synced.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if a new segment was needed and found no room: nothing was written, and
    /// the appended records stay for another try or for [`WalWriter::discard`]. [`Error::Io`] is
    /// final: all later calls repeat it.
    pub fn write(&mut self) -> Result<WalPosition> {
        self.check()?;
        if self.buffer.is_empty() {
            return Ok(self.position());
        }
        if self.needs_segment() {
            match self.roll() {
                Err(error) if error.may_be_retried() && self.may_stay() => {}
                rolled => rolled?,
            }
        }
        let chain = self.seal_group();
        let segment = &mut self.segment;
        if let Err(error) = segment.file.write_at(&self.buffer, segment.end) {
            let error = hard_io("write", segment.file.path(), error);
            return Err(self.failure.get_or_init(|| error).clone());
        }
        segment.end += self.buffer.len() as u64;
        segment.chain = chain;
        segment.marked = segment.durable;
        self.reserve_before = self.reserve;
        if let Some(last) = self.pending.last() {
            self.last_seqno = last.seqno;
        }
        self.discard();
        Ok(self.position())
    }

    /// Drops the records appended since the last successful write, and takes back a change of the
    /// reserve since then. The caller must do this before
    /// it fails a commit for lack of space; otherwise the record would be written with the next
    /// group.
    pub fn discard(&mut self) {
        self.reserve = self.reserve_before;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        self.pending.clear();
        self.pending_prepared = false;
    }

    /// Fills in the headers of the group for the place where it is about to be written. Returns the
    /// last checksum.
    fn seal_group(&mut self) -> u64 {
        let segment = &self.segment;
        let mut chain = segment.chain;
        let mut start = 0;
        for record in &self.pending {
            let end = start + frame_bytes(record.payload_bytes as usize);
            let header = FrameHeader {
                payload_bytes: record.payload_bytes,
                kind: record.kind as u8,
                seqno: record.seqno,
                chain,
                durable: segment.durable,
            };
            let offset = segment.end + start as u64;
            chain = seal(&mut self.buffer[start..end], header, segment.uid, offset);
            start = end;
        }
        chain
    }

    /// Returns a handle that makes everything written so far durable, without holding the writer.
    /// To make a write durable, take the handle after the write.
    pub fn syncer(&self) -> WalSync {
        let older = self.unsynced.iter();
        WalSync {
            older: older.map(|(_, file)| Arc::clone(file)).collect(),
            file: Arc::clone(&self.segment.file),
            names: self.names(),
            failure: Arc::clone(&self.failure),
            turn: Arc::clone(&self.turn),
        }
    }

    /// Returns the directory if a segment's name is not known to be durable.
    fn names(&self) -> Option<Names> {
        self.unnamed.map(|_| Names {
            vfs: Arc::clone(&self.vfs),
            dir: self.dir.clone(),
        })
    }

    /// Returns a handle like [`WalWriter::syncer`] that the caller may keep for long. It holds no
    /// file that the writer has dropped, so it does not keep the space of a removed segment.
    pub fn late_syncer(&self) -> LateSync {
        let files = self.unsynced.iter().map(|(_, file)| file);
        LateSync {
            files: files
                .chain([&self.segment.file])
                .map(Arc::downgrade)
                .collect(),
            names: self.names(),
            failure: Arc::clone(&self.failure),
            turn: Arc::clone(&self.turn),
        }
    }

    /// Notes that everything before `position` is on the device; later records say so.
    pub fn note_durable(&mut self, position: WalPosition) {
        // For the position's own segment only the offset counts: records may have followed before
        // the roll.
        self.unsynced.retain(|(id, _)| *id >= position.segment);
        self.unnamed = self.unnamed.filter(|id| *id > position.segment);
        if position.segment == self.segment.id {
            assert!(position.offset <= self.segment.end);
            self.segment.durable = self.segment.durable.max(position.offset);
        }
    }

    /// Writes a small record that carries the newest durable mark, if no written record carries it
    /// yet. Without one, damage to the last synced group cannot be distinguished from a torn tail.
    /// Needs no sync; called at close and when commits pause. Appended records are written first.
    ///
    /// # Errors
    ///
    /// As [`WalWriter::write`].
    pub fn mark_synced(&mut self) -> Result<WalPosition> {
        self.write()?;
        let segment = &self.segment;
        let room = segment.allocated_bytes - segment.end;
        // If the segment is full, the next one's header says the same.
        let needed = self.reserve + frame_bytes(0) as u64;
        if segment.durable > segment.marked && room >= needed {
            self.push(self.last_seqno, RecordKind::SyncMark, &[]);
            self.write()?;
        }
        Ok(self.position())
    }

    /// Marks the end of a closing log and truncates the file there. If some records are not durable
    /// yet, or the unused end is small, it only calls [`WalWriter::mark_synced`]. `newest` is the
    /// number of the newest commit. Nothing may be written afterwards.
    ///
    /// The mark carries the newest durable mark, as that of [`WalWriter::mark_synced`] does, and is
    /// synced before the file is truncated. So a crash at any point leaves the file whole, or
    /// truncated after a synced mark. Nothing is lost by an error: the file keeps its length.
    pub fn cut_tail(&mut self, newest: SeqNo) -> Result<()> {
        self.check()?;
        self.reserve(0);
        let mark_bytes = frame_bytes(CUT_MARK.len()) as u64;
        let room = self.segment.allocated_bytes - self.segment.end;
        let is_durable = self.buffer.is_empty() && self.segment.durable == self.segment.end;
        if room < mark_bytes + CUT_BYTES_MIN || !is_durable {
            return self.mark_synced().map(drop);
        }
        self.push(newest, RecordKind::SyncMark, CUT_MARK);
        self.write()?;
        let (file, end) = (&self.segment.file, self.segment.end);
        file.sync()
            .map_err(|error| hard_io("sync", file.path(), error))?;
        file.truncate(end)
            .map_err(|error| hard_io("cut", file.path(), error))
    }

    /// Returns the position after the last written record.
    pub fn position(&self) -> WalPosition {
        WalPosition {
            segment: self.segment.id,
            offset: self.segment.end,
        }
    }

    /// Returns the newest sequence number written; 0 before the first record.
    pub fn last_written(&self) -> SeqNo {
        self.last_seqno
    }

    /// Moves to a new segment unless the current one is still empty, and returns the segment being
    /// written. Every record written from now on is in it or in a later one, every earlier record
    /// is in an older one.
    ///
    /// # Errors
    ///
    /// As [`WalWriter::write`].
    pub fn rotate(&mut self) -> Result<SegmentId> {
        self.check()?;
        if self.segment.end > SEGMENT_HEADER_BYTES {
            // On a full device the flush after it releases the segments before.
            self.roll_to(self.segment_bytes, SEGMENT_BYTES_MIN)?;
        }
        Ok(self.segment.id)
    }

    /// Returns true if [`WalWriter::rotate_to_idle`] makes the log smaller.
    pub fn is_larger_than_idle(&self) -> bool {
        let is_used = self.segment.end > SEGMENT_HEADER_BYTES;
        // The prepares that a seal carries over take as much as the reserve for their decisions.
        let idle_bytes = allocation(self.idle_bytes() + 2 * self.reserve, 0);
        is_used && self.segment.allocated_bytes > idle_bytes
    }

    /// Does the same as [`WalWriter::rotate`], for a time without writes: the new segment is small,
    /// and the prepared files are removed, before it is created, so that it finds room.
    pub fn rotate_to_idle(&mut self) -> Result<SegmentId> {
        self.check()?;
        self.stock
            .shrink(0)
            .into_iter()
            .for_each(PreparedSegment::remove);
        if self.segment.end > SEGMENT_HEADER_BYTES {
            self.roll_to(self.idle_bytes(), SHORT_SEGMENT_BYTES)?;
            // The rate of the rolls says nothing about those after this time.
            drop(self.stock.shrink(0));
        }
        Ok(self.segment.id)
    }

    fn idle_bytes(&self) -> u64 {
        let short_bytes = self.segment_bytes.min(SHORT_SEGMENT_BYTES);
        (self.segment_bytes / IDLE_PART).max(short_bytes)
    }

    /// Returns a plan for a file that a later roll needs; `None` if enough files are ready or
    /// planned. The caller creates the file without holding the writer, then passes it to
    /// [`WalWriter::offer`].
    pub fn plan_next(&mut self) -> Option<SegmentPlan> {
        if !self.stock.wants_more() || self.check().is_err() {
            return None;
        }
        self.stock.plan();
        let segment = SegmentId(self.next_segment);
        self.next_segment += 1;
        Some(SegmentPlan {
            vfs: Arc::clone(&self.vfs),
            dir: self.dir.clone(),
            segment,
            bytes: self.allocation(self.segment_bytes),
            leaves: self.leaves,
            failure: Arc::clone(&self.failure),
        })
    }

    /// Makes new segments short from the start if `short` is true, because the room for whole ones
    /// is needed elsewhere. Otherwise they are short only if a whole one finds no room.
    pub fn use_short_segments(&mut self, short: bool) {
        self.short = short;
    }

    /// Allows files of several segments to be kept ready if `ample` is true: the device has much
    /// free space.
    pub fn set_ample_space(&mut self, ample: bool) {
        self.stock.set_ample(ample);
    }

    /// Returns true if a segment must be prepared: the only one is needed soon, or rolls come so
    /// fast that several must be ready.
    pub fn wants_plan(&self, soon: bool) -> bool {
        self.stock.wants_more() && (soon || self.is_half_full() || self.stock.wants_several())
    }

    /// Returns true if at least half of the segment is filled.
    fn is_half_full(&self) -> bool {
        self.segment.end >= self.segment.allocated_bytes.saturating_sub(self.reserve) / 2
    }

    /// Takes the result of a plan. Returns a file that came too late, for the caller to remove.
    pub fn offer(&mut self, prepared: Option<PreparedSegment>) -> Option<PreparedSegment> {
        self.stock.offer(prepared, self.segment.id)
    }

    /// Takes out the prepared files that the current roll rate does not need, for the caller to
    /// remove. If nothing has been written for a second, one file stays if a roll is likely `soon`
    /// or half of the segment is filled, otherwise none.
    pub fn take_surplus(&mut self, soon: bool) -> Vec<PreparedSegment> {
        self.surplus_at(Instant::now(), soon)
    }

    pub(super) fn surplus_at(&mut self, now: Instant, soon: bool) -> Vec<PreparedSegment> {
        let position = self.position();
        let same = self.seen.filter(|(seen, _)| *seen == position);
        let (_, since) = *self.seen.insert(same.unwrap_or((position, now)));
        if now.saturating_duration_since(since) >= IDLE_AFTER {
            self.stock.shrink(usize::from(soon || self.is_half_full()))
        } else {
            self.stock.surplus(now)
        }
    }

    /// Takes out all prepared files, for the caller to remove: nothing more will be written.
    pub fn take_prepared(&mut self) -> Vec<PreparedSegment> {
        self.stock.close()
    }

    /// Begins the next segment: a whole one, or a short one where the device has little room.
    fn roll(&mut self) -> Result<()> {
        self.roll_to(self.segment_bytes, SHORT_SEGMENT_BYTES)
    }

    /// Begins the next segment: of this size, a short one, or, if the device has no room for that,
    /// one for at least `least_bytes`. Its header and the tail of the old one
    /// reach the device in any order. After a power loss, a reader learns from the header that the
    /// old segment may be cut. It trusts the new one only if a record in it or in a later one was
    /// written after both were synced.
    fn roll_to(&mut self, segment_bytes: u64, least_bytes: u64) -> Result<()> {
        if self.unsynced.len() >= UNSYNCED_SEGMENTS_MAX {
            self.syncer().sync()?;
            self.note_durable(self.position());
        }
        let unsynced = !self.unsynced.is_empty() || self.segment.durable < self.segment.end;
        let short_bytes = self.segment_bytes.min(SHORT_SEGMENT_BYTES);
        let short = self.allocation(short_bytes);
        let least = self.allocation(short_bytes.min(least_bytes));
        let needed = if self.short {
            short
        } else {
            self.allocation(segment_bytes)
        };
        let sparse = self.segment.end < self.segment.allocated_bytes / SPARSE_PART;
        let least_ready = needed.min(self.least_ready());
        let prepared = self.stock.take(least_ready, Instant::now(), sparse);
        let mut header = SegmentHeader {
            database_uid: self.database_uid,
            segment: SegmentId(self.next_segment),
            allocated_bytes: needed,
            previous: Some(SegmentEnd {
                segment: self.segment.id,
                offset: self.segment.end,
                chain: self.segment.chain,
            }),
            // Set from the first such record on: a prepare may wait for its commit in any later
            // segment.
            prepared: self.segment.prepared || self.pending_prepared,
            unsynced,
        };
        let created = prepared.is_none();
        let begun = match prepared {
            Some(prepared) => {
                (header.segment, header.allocated_bytes) = (prepared.segment, prepared.bytes);
                begin_segment(&*prepared.file, &header).map(|sum| (prepared.file, sum))
            }
            None => {
                header.allocated_bytes = self.affordable(needed, short, least)?;
                self.next_segment += 1;
                create_segment(&*self.vfs, &self.dir, &mut header, least)
            }
        };
        match begun {
            Ok((file, chain)) => {
                if created {
                    self.unnamed = Some(header.segment);
                }
                let next = Segment::new(&header, file, chain);
                let old = std::mem::replace(&mut self.segment, next);
                if unsynced {
                    self.unsynced.push((old.id, old.file));
                }
                Ok(())
            }
            Err(error) if error.may_be_retried() => Err(error),
            Err(error) => Err(self.failure.get_or_init(|| error).clone()),
        }
    }

    fn check(&self) -> Result<()> {
        self.failure
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl Segment {
    /// Creates the state of a segment of which nothing is known to be durable.
    fn new(header: &SegmentHeader, file: Arc<dyn VfsFile>, chain: u64) -> Segment {
        Segment {
            id: header.segment,
            file,
            uid: segment_uid(header.database_uid, header.segment),
            allocated_bytes: header.allocated_bytes,
            end: SEGMENT_HEADER_BYTES,
            chain,
            durable: 0,
            marked: 0,
            prepared: header.prepared,
        }
    }
}
