//! Reads the log back at open, and distinguishes a torn tail from damage.
//!
//! A segment is begun before the previous ones are durable. A segment is *proven* if its header
//! says that the previous one was durable, or if one of its records carries a nonzero durable mark:
//! older segments are synced first. From the newest proven segment, headers lead back to the oldest
//! segment that is still needed. Each names its predecessor and the offset of its end, and the
//! records must reach exactly that end: anything else is damage.
//!
//! After the newest proven segment a power loss may have taken anything away. There the log goes on
//! while each segment begins where the records of the previous one end. It ends at the first
//! invalid record. If a later record in the same segment says that this place was durable, the
//! record is damaged; otherwise this is a torn tail. Later segments are cut off with it.
//!
//! A file without a valid header was made ahead of time, or its header was lost in the same way. If
//! one of its records says that something was durable, the header was damaged.
//!
//! Segments without records at the end of the log are cut off too, unless the log begins there. A
//! caller that understands the records can cut off more ([`ReplayEnd::cut_behind`]). Every opening
//! starts a segment, so on a full device the segments of sessions without new records would take
//! the room that the next opening needs.

use std::collections::BTreeMap;
use std::path::Path;

use super::frame::{Frame, FrameReader};
use super::segment::{
    OpenSegment, SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_name, segment_path, segment_uid,
};
use super::{RecordKind, SegmentEnd, sync_dir};
use crate::base::{SegmentId, SeqNo};
use crate::error::{Error, Result};
use crate::vfs::Vfs;

/// Called with each record in log order.
type Visit<'a> = &'a mut dyn FnMut(SegmentId, SeqNo, RecordKind, &[u8]) -> Result<()>;

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayEnd {
    /// The largest seqno of any record; 0 if there is none.
    pub last_seqno: SeqNo,
    /// Number of records visited.
    pub records: u64,
    /// End of the valid log, an argument of [`super::WalWriter::create`]. `None` if there is no log
    /// yet.
    pub end: Option<SegmentEnd>,
    /// The segments that make up the log, oldest first.
    pub segments: Vec<SegmentId>,
    /// End of each of them.
    ends: Vec<SegmentEnd>,
    /// Bytes after the end in its segment that belong to no record: writes cut off by a crash. They
    /// are never read again.
    pub torn_tail_bytes: u64,
    /// Files after the end, oldest first: cut off with it, empty, or made ahead of time. See
    /// [`ReplayEnd::remove_cut`].
    pub cut: Vec<SegmentId>,
    /// The smallest number for a new segment: above every file that is there.
    pub next_segment: SegmentId,
}

impl ReplayEnd {
    /// Cuts off the segments after `newest`. The caller has found that their records repeat only
    /// what older segments say.
    pub fn cut_behind(&mut self, newest: SegmentId) {
        self.cut_while(|end| end.segment > newest);
    }

    /// Cuts off the newest segments while they are needless and an older one remains.
    fn cut_while(&mut self, is_needless: impl Fn(SegmentEnd) -> bool) {
        while let [.., previous, last] = self.ends[..]
            && is_needless(last)
        {
            self.ends.pop();
            self.segments.pop();
            self.cut.push(last.segment);
            self.end = Some(previous);
            self.torn_tail_bytes = 0;
        }
        self.cut.sort_unstable();
    }

    /// Removes the files after the end. The caller must do this before it begins a new segment,
    /// because that would prove them.
    ///
    /// They are removed one by one, newest first: any that a power loss leaves then begin where the
    /// log ends.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the remaining files can be removed by another call.
    pub fn remove_cut(&self, vfs: &dyn Vfs, dir: &Path) -> Result<()> {
        for &segment in self.cut.iter().rev() {
            let path = segment_path(dir, segment);
            vfs.remove(&path)
                .map_err(|error| Error::io("remove", &path, error))?;
            sync_dir(vfs, dir)?;
        }
        Ok(())
    }
}

/// Visits every record of the log from `oldest_needed` on, in order. Visited records are durable.
/// Changes no file.
///
/// `oldest_needed` comes from the manifest; 0 if the manifest names none, and then the log must
/// reach back to its beginning. An error from the visitor ends the replay and is returned.
///
/// # Errors
///
/// [`Error::Corruption`] if durable records are missing or invalid, or a needed segment is missing;
/// [`Error::NewerFormat`]; [`Error::Io`].
pub fn replay(
    vfs: &dyn Vfs,
    dir: &Path,
    database_uid: u64,
    oldest_needed: SegmentId,
    visit: Visit<'_>,
) -> Result<ReplayEnd> {
    let ids = list_segments(vfs, dir)?;
    let newest = ids.last().map_or(SegmentId(0), |&id| id);
    let mut end = ReplayEnd {
        last_seqno: 0,
        records: 0,
        end: None,
        segments: Vec::new(),
        ends: Vec::new(),
        torn_tail_bytes: 0,
        cut: Vec::new(),
        next_segment: SegmentId(newest.max(oldest_needed).0 + 1),
    };
    let mut found = BTreeMap::new();
    for id in ids.into_iter().filter(|&id| id >= oldest_needed) {
        found.insert(id, OpenSegment::open(vfs, dir, id, database_uid)?);
    }
    let unproven = match first_unproven(&found, oldest_needed, database_uid)? {
        Some(first) => found.split_off(&first),
        None => BTreeMap::new(),
    };
    let (chain, stale) = link(dir, oldest_needed, &found, database_uid)?;
    for (place, &linked) in chain.iter().enumerate() {
        let reader = SegmentReplay::new(linked, database_uid)?;
        match chain.get(place + 1) {
            Some((_, next, _)) => reader.visit_closed(next, visit, &mut end)?,
            None => reader.visit_open(visit, &mut end)?,
        }
        end.segments.push(linked.0.id);
    }
    go_on(unproven.values(), database_uid, visit, &mut end)?;
    let last = end.segments.last().copied();
    let behind = unproven.keys().filter(|&&id| Some(id) > last);
    end.cut = stale.into_iter().chain(behind.copied()).collect();
    end.cut_while(|at| at.offset == SEGMENT_HEADER_BYTES && at.segment > oldest_needed);
    Ok(end)
}

/// Returns the oldest of the segments after the newest proven one, if there are any. The oldest
/// needed one counts as proven: it was durable before the manifest named it.
pub(super) fn first_unproven(
    found: &BTreeMap<SegmentId, OpenSegment>,
    oldest_needed: SegmentId,
    database_uid: u64,
) -> Result<Option<SegmentId>> {
    let mut first = None;
    for (&id, segment) in found.iter().rev() {
        if id == oldest_needed || is_proven(segment, database_uid)? {
            break;
        }
        first = Some(id);
    }
    Ok(first)
}

fn is_proven(segment: &OpenSegment, database_uid: u64) -> Result<bool> {
    if segment.header.is_some_and(|(header, _)| !header.unsynced) {
        return Ok(true);
    }
    let uid = segment_uid(database_uid, segment.id);
    FrameReader::new(&*segment.file, uid, SEGMENT_HEADER_BYTES, 0)?.any_durable_follows()
}

/// Visits unproven segments while each continues at the end of the log.
fn go_on<'a>(
    unproven: impl Iterator<Item = &'a OpenSegment>,
    database_uid: u64,
    visit: Visit<'_>,
    end: &mut ReplayEnd,
) -> Result<()> {
    for segment in unproven {
        // A file that was made ahead of time may have been passed over.
        let Some((header, sum)) = segment.header else {
            continue;
        };
        // The length of a file that was made at a roll is as little durable as its records.
        let joins = header.previous.is_some() && header.previous == end.end;
        if !joins || segment.check_length().is_err() {
            break;
        }
        SegmentReplay::new((segment, header, sum), database_uid)?.visit_open(visit, end)?;
        end.segments.push(segment.id);
    }
    Ok(())
}

/// Lists the segments in a directory, oldest first.
pub(super) fn list_segments(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<SegmentId>> {
    let names = vfs
        .list(dir)
        .map_err(|error| Error::io("list", dir, error))?;
    let mut ids: Vec<SegmentId> = names
        .iter()
        .filter_map(|name| parse_segment_name(name))
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

type Linked<'a> = (&'a OpenSegment, SegmentHeader, u64);

/// Follows the headers back from the newest segment to the oldest needed one. Returns the log's
/// segments, oldest first, and the segments that an earlier recovery discarded. Those reappear if
/// the database is restored on top of an older copy.
fn link<'a>(
    dir: &Path,
    oldest_needed: SegmentId,
    found: &'a BTreeMap<SegmentId, OpenSegment>,
    database_uid: u64,
) -> Result<(Vec<Linked<'a>>, Vec<SegmentId>)> {
    let (mut chain, mut stale): (Vec<Linked<'a>>, _) = (Vec::new(), Vec::new());
    // The end of the segment that must come next, going back; `None` for the newest one, which may
    // be any.
    let mut wanted: Option<SegmentEnd> = None;
    for (&id, segment) in found.iter().rev() {
        match segment.header {
            None => check_unfinished(segment, database_uid)?,
            Some((header, sum)) if wanted.is_none_or(|wanted| wanted.segment == id) => {
                segment.check_length()?;
                wanted = header.previous;
                chain.push((segment, header, sum));
                if id == oldest_needed || wanted.is_none() {
                    break;
                }
            }
            Some((header, sum))
                if header.previous == wanted && may_have_been_cut(segment, sum, database_uid)? =>
            {
                stale.push(id);
            }
            Some(_) => return Err(broken_chain(dir, wanted.map(|end| end.segment), segment)),
        }
    }
    let reached = chain.last().map(|(segment, ..)| segment.id);
    let missing = match (reached, wanted) {
        _ if reached == Some(oldest_needed) => None,
        (_, Some(previous)) => Some(previous.segment.max(oldest_needed)),
        // The first segment ever written was reached, or there is no log.
        (_, None) => (oldest_needed.0 != 0).then_some(oldest_needed),
    };
    if let Some(missing) = missing {
        let path = segment_path(dir, missing);
        let what = "needed log segment";
        return Err(Error::corruption(&path, 0, what, "a valid segment", "none"));
    }
    chain.reverse();
    Ok((chain, stale))
}

/// Returns the error for `found`, which is not the expected segment. If the wanted one is newer, it
/// is missing or has lost its header, and the error blames it.
fn broken_chain(dir: &Path, wanted: Option<SegmentId>, found: &OpenSegment) -> Error {
    match wanted {
        Some(wanted) if wanted > found.id => {
            let path = segment_path(dir, wanted);
            let (expected, none) = ("a valid one, which the next segment names", "none");
            Error::corruption(&path, 0, "header of a log segment", expected, none)
        }
        _ => {
            let path = found.file.path();
            let what = "place of a log segment in the chain";
            let (wanted, found) = (name_of(wanted), name_of(Some(found.id)));
            Error::corruption(path, 0, what, wanted, found)
        }
    }
}

fn name_of(segment: Option<SegmentId>) -> String {
    segment.map_or_else(|| "none".to_owned(), |segment| segment.to_string())
}

/// Checks that a file without a valid header holds no records: then it is left over from an
/// unfinished creation.
pub(super) fn check_unfinished(segment: &OpenSegment, database_uid: u64) -> Result<()> {
    if holds_records(segment, database_uid)? {
        let path = segment.file.path();
        let what = "header of a log segment";
        return Err(Error::corruption(
            path,
            0,
            what,
            "a valid header before records",
            "an invalid one",
        ));
    }
    Ok(())
}

/// Returns true if a segment at the end of a log may have been cut off because it says nothing new:
/// it is empty, or holds only prepares.
pub(super) fn may_have_been_cut(
    segment: &OpenSegment,
    sum: u64,
    database_uid: u64,
) -> Result<bool> {
    let uid = segment_uid(database_uid, segment.id);
    let mut frames = FrameReader::new(&*segment.file, uid, SEGMENT_HEADER_BYTES, sum)?;
    while let Some(frame) = frames.next()? {
        let kind = RecordKind::from_u8(frame.header.kind);
        if !matches!(kind, Some(RecordKind::Prepare | RecordKind::SyncMark)) {
            return Ok(false);
        }
    }
    Ok(!frames.any_header_follows()?)
}

fn holds_records(segment: &OpenSegment, database_uid: u64) -> Result<bool> {
    let uid = segment_uid(database_uid, segment.id);
    FrameReader::new(&*segment.file, uid, SEGMENT_HEADER_BYTES, 0)?.any_header_follows()
}

/// Replay of one segment.
struct SegmentReplay<'a> {
    id: SegmentId,
    path: &'a Path,
    frames: FrameReader<'a>,
}

impl<'a> SegmentReplay<'a> {
    fn new((segment, _, sum): Linked<'a>, database_uid: u64) -> Result<SegmentReplay<'a>> {
        let uid = segment_uid(database_uid, segment.id);
        Ok(SegmentReplay {
            id: segment.id,
            path: segment.file.path(),
            frames: FrameReader::new(&*segment.file, uid, SEGMENT_HEADER_BYTES, sum)?,
        })
    }

    /// Visits a segment up to the end given by the header of a proven one.
    fn visit_closed(
        mut self,
        next: &SegmentHeader,
        visit: Visit<'_>,
        end: &mut ReplayEnd,
    ) -> Result<()> {
        let Some(expected) = next.previous else {
            return Ok(());
        };
        end.ends.push(expected);
        while self.frames.offset() < expected.offset {
            match self.frames.next()? {
                Some(frame) => visit_frame(self.id, self.path, &frame, visit, end)?,
                None => break,
            }
        }
        if (self.frames.offset(), self.frames.chain()) != (expected.offset, expected.chain) {
            return Err(Error::corruption(
                self.path,
                self.frames.offset(),
                "record",
                format!("valid records up to offset {}", expected.offset),
                "an invalid record",
            ));
        }
        Ok(())
    }

    /// Visits a segment in which the log may end.
    fn visit_open(mut self, visit: Visit<'_>, end: &mut ReplayEnd) -> Result<()> {
        while let Some(frame) = self.frames.next()? {
            visit_frame(self.id, self.path, &frame, visit, end)?;
        }
        let at = SegmentEnd {
            segment: self.id,
            offset: self.frames.offset(),
            chain: self.frames.chain(),
        };
        end.end = Some(at);
        end.ends.push(at);
        end.torn_tail_bytes = self.frames.finish()?;
        Ok(())
    }
}

fn visit_frame(
    id: SegmentId,
    path: &Path,
    frame: &Frame<'_>,
    visit: Visit<'_>,
    end: &mut ReplayEnd,
) -> Result<()> {
    let header = frame.header;
    let kind = RecordKind::decode(header.kind, path, frame.offset)?;
    if kind != RecordKind::SyncMark {
        visit(id, header.seqno, kind, frame.payload)?;
        end.records += 1;
    }
    end.last_seqno = end.last_seqno.max(header.seqno);
    Ok(())
}
