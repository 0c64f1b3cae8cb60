//! Segment files: their names, their header, and their creation, which makes a segment whole before
//! it holds a record.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, frame_bytes};
use super::{FORMAT_VERSION, RecordKind, SegmentEnd, hard_io, open_settled};
use crate::base::SegmentId;
use crate::base::checksum::{checksum, place_seed};
use crate::base::coding::Decoder;
use crate::error::{Error, Result};
use crate::vfs::{Lifetime, Vfs, VfsFile};

/// Size of a segment on a device that has no room for a whole one, or is nearly full.
pub const SHORT_SEGMENT_BYTES: u64 = 256 << 10;

/// First bytes of a segment. On disk; never changes.
const MAGIC: [u8; 8] = *b"alluvwal";

/// Bytes before the first frame. On disk; never changes.
pub(super) const SEGMENT_HEADER_BYTES: u64 = 80;

/// The bytes that the header's checksum covers. On disk; never changes, also in later versions.
const COVERED_BYTES: usize = 72;

/// Features that a reader of the segment must know. On disk. Bit 0: packed commits; bit 1: range
/// deletes in commits.
/// Every segment written here says both.
const MUST_KNOW: u32 = 0b11;

/// Bit 2: the segment may hold records of prepared transactions.
const PREPARED: u32 = 1 << 2;

/// Bit 3: the previous segment was not known to be durable when this one was begun. A power loss
/// may have cut it, and then this segment does not count.
const UNSYNCED: u32 = 1 << 3;

/// Features known to this build.
const KNOWN: u32 = MUST_KNOW | PREPARED | UNSYNCED;

/// Payload of the sync mark that a close writes before it truncates the unused end of a segment. On
/// disk; never changes.
pub(super) const CUT_MARK: &[u8] = b"cut";

/// Returns the path of a segment.
pub fn segment_path(dir: &Path, segment: SegmentId) -> PathBuf {
    dir.join(segment.to_string())
}

/// Returns the segment with this file name, or `None` if the name is not a segment's.
pub fn parse_segment_name(name: &str) -> Option<SegmentId> {
    let segment = SegmentId(name.strip_suffix(".wal")?.parse().ok()?);
    (segment.to_string() == name).then_some(segment)
}

/// Returns the seed of the checksums of a segment's frames; each frame adds its offset.
pub(super) fn segment_uid(database_uid: u64, segment: SegmentId) -> u64 {
    checksum(&segment.0.to_le_bytes(), database_uid)
}

/// Header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) database_uid: u64,
    pub(super) segment: SegmentId,
    /// The file's length at creation. A shorter file has lost its end, unless it ends with a cut
    /// mark.
    pub(super) allocated_bytes: u64,
    /// End of the previous segment, if there is one.
    pub(super) previous: Option<SegmentEnd>,
    /// True if it may hold records of prepared transactions, which older builds would skip.
    pub(super) prepared: bool,
    /// True if it was begun before the previous one was durable to its end.
    pub(super) unsynced: bool,
}

impl SegmentHeader {
    /// Returns the header's bytes and its checksum, which starts the chain of this segment's
    /// frames.
    fn encode(&self) -> (Vec<u8>, u64) {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let mut features = MUST_KNOW;
        features |= if self.prepared { PREPARED } else { 0 };
        features |= if self.unsynced { UNSYNCED } else { 0 };
        out.extend_from_slice(&features.to_le_bytes());
        // Features that a reader may ignore, and spare bytes.
        out.extend_from_slice(&[0; 8]);
        let (segment, offset, chain) = match self.previous {
            Some(end) => (end.segment.0, end.offset, end.chain),
            None => (0, 0, 0),
        };
        let fields = [
            self.database_uid,
            self.segment.0,
            self.allocated_bytes,
            segment,
            offset,
            chain,
        ];
        for field in fields {
            out.extend_from_slice(&field.to_le_bytes());
        }
        debug_assert_eq!(out.len(), COVERED_BYTES);
        let sum = checksum(&out, self.segment.0);
        out.extend_from_slice(&sum.to_le_bytes());
        (out, sum)
    }

    /// Returns the header in `bytes` and its checksum; `Ok(None)` if the checksum does not match.
    fn decode(bytes: &[u8], segment: SegmentId, path: &Path) -> Result<Option<(Self, u64)>> {
        let Some(raw) = RawHeader::parse(bytes, segment) else {
            return Ok(None);
        };
        if raw.magic != MAGIC {
            let what = "magic of a log segment";
            return Err(Error::corruption(path, 0, what, "alluvwal", "other bytes"));
        }
        if raw.version > FORMAT_VERSION || raw.must_know & !KNOWN != 0 {
            return Err(Error::NewerFormat {
                path: path.to_path_buf(),
                found: raw.version.max(FORMAT_VERSION + 1),
                supported: FORMAT_VERSION,
            });
        }
        let [database_uid, id, allocated_bytes, previous, offset, chain] = raw.fields;
        if id != segment.0 {
            let what = "segment number";
            return Err(Error::corruption(path, 32, what, segment.0, id));
        }
        let header = SegmentHeader {
            database_uid,
            segment,
            allocated_bytes,
            previous: (previous != 0).then_some(SegmentEnd {
                segment: SegmentId(previous),
                offset,
                chain,
            }),
            prepared: raw.must_know & PREPARED != 0,
            unsynced: raw.must_know & UNSYNCED != 0,
        };
        Ok(Some((header, raw.sum)))
    }
}

/// Header fields with a valid checksum, not yet interpreted.
struct RawHeader {
    magic: [u8; 8],
    version: u32,
    must_know: u32,
    fields: [u64; 6],
    sum: u64,
}

impl RawHeader {
    fn parse(bytes: &[u8], segment: SegmentId) -> Option<RawHeader> {
        let mut d = Decoder::new(bytes);
        let magic = d.take(8)?.try_into().ok()?;
        let version = d.u32()?;
        let must_know = d.u32()?;
        let _may_ignore_and_room = d.u64()?;
        let mut fields = [0; 6];
        for field in &mut fields {
            *field = d.u64()?;
        }
        let sum = d.u64()?;
        let valid = checksum(bytes.get(..COVERED_BYTES)?, segment.0) == sum;
        valid.then_some(RawHeader {
            magic,
            version,
            must_know,
            fields,
            sum,
        })
    }
}

/// Segment opened for reading, with its header if that is valid.
#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) id: SegmentId,
    pub(super) file: Arc<dyn VfsFile>,
    /// The header and its checksum.
    pub(super) header: Option<(SegmentHeader, u64)>,
    /// Bytes by which the file is shorter than its header says; 0 if a close has truncated it.
    lost_bytes: u64,
}

impl OpenSegment {
    /// Opens a segment of this database and reads its header.
    pub(super) fn open(
        vfs: &dyn Vfs,
        dir: &Path,
        id: SegmentId,
        database_uid: u64,
    ) -> Result<OpenSegment> {
        let path = segment_path(dir, id);
        let (file, len) = open_settled(vfs, &path)?;
        if len > 0 && len < SEGMENT_HEADER_BYTES {
            let what = "length of a log segment";
            let least = format!("at least {SEGMENT_HEADER_BYTES}");
            return Err(Error::corruption(&path, 0, what, least, len));
        }
        OpenSegment::read_header(file, len, id, database_uid)
    }

    /// Opens a segment like [`OpenSegment::open`] while the log is written: it syncs nothing, and a
    /// file that is just being created has no header yet.
    pub(super) fn open_live(
        vfs: &dyn Vfs,
        dir: &Path,
        id: SegmentId,
        database_uid: u64,
    ) -> Result<OpenSegment> {
        let path = segment_path(dir, id);
        let file = vfs
            .open_read(&path)
            .map_err(|error| Error::io("open", &path, error))?;
        let len = file
            .len()
            .map_err(|error| Error::io("measure", &path, error))?;
        OpenSegment::read_header(file, len, id, database_uid)
    }

    fn read_header(
        file: Arc<dyn VfsFile>,
        len: u64,
        id: SegmentId,
        database_uid: u64,
    ) -> Result<OpenSegment> {
        let path = file.path().to_path_buf();
        let mut segment = OpenSegment {
            id,
            file,
            header: None,
            lost_bytes: 0,
        };
        if len < SEGMENT_HEADER_BYTES {
            // Creation stopped between the name and the allocation, or is still under way.
            return Ok(segment);
        }
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        segment
            .file
            .read_at(&mut bytes, 0)
            .map_err(|error| Error::io("read", &path, error))?;
        segment.header = SegmentHeader::decode(&bytes, id, &path)?;
        if let Some((header, _)) = segment.header {
            check_identity(&header, database_uid, &path)?;
            let lost_bytes = header.allocated_bytes.saturating_sub(len);
            if lost_bytes > 0 && !ends_with_cut_mark(&*segment.file, len, id, database_uid)? {
                segment.lost_bytes = lost_bytes;
            }
        }
        Ok(segment)
    }

    /// Returns the error of a segment that must have a header and has none.
    pub(super) fn without_header(&self) -> Error {
        let what = "header of a log segment";
        Error::corruption(self.file.path(), 0, what, "a valid header", "none")
    }

    /// Checks that the file still has the length given at its creation, or at a close.
    pub(super) fn check_length(&self) -> Result<()> {
        match self.header {
            Some((header, _)) if self.lost_bytes > 0 => {
                let allocated = header.allocated_bytes;
                let found = allocated - self.lost_bytes;
                let what = "length of a log segment";
                let path = self.file.path();
                Err(Error::corruption(path, found, what, allocated, found))
            }
            _ => Ok(()),
        }
    }
}

fn check_identity(header: &SegmentHeader, database_uid: u64, path: &Path) -> Result<()> {
    if header.database_uid != database_uid {
        return Err(Error::corruption(
            path,
            24,
            "database of a log segment",
            format!("{database_uid:016x}"),
            format!("{:016x}", header.database_uid),
        ));
    }
    Ok(())
}

/// Creates a segment and returns the file and its header's checksum; nothing of it is durable on
/// return. On a full device the segment is short, with at least `least` bytes, and `header` is
/// changed to say so.
///
/// # Errors
///
/// [`Error::NoSpace`] before anything was written, if there is no room: the half-made file is
/// removed if possible, and its number must not be used again. All other errors are final.
pub(super) fn create_segment(
    vfs: &dyn Vfs,
    dir: &Path,
    header: &mut SegmentHeader,
    least: u64,
) -> Result<(Arc<dyn VfsFile>, u64)> {
    let wanted = header.allocated_bytes;
    let (file, allocated) = create_room(vfs, dir, header.segment, wanted, least)?;
    header.allocated_bytes = allocated;
    let sum = begin_segment(&*file, header)?;
    Ok((file, sum))
}

/// Creates the file of a segment and allocates at least `least` bytes; nothing of it is durable
/// yet. Returns the file and its length.
///
/// # Errors
///
/// Nothing happened: the half-made file is removed if possible. Its number must not be used again.
pub(super) fn create_room(
    vfs: &dyn Vfs,
    dir: &Path,
    segment: SegmentId,
    bytes: u64,
    least: u64,
) -> Result<(Arc<dyn VfsFile>, u64)> {
    let path = segment_path(dir, segment);
    let file = vfs
        .create(&path)
        .map_err(|error| Error::io("create", &path, error))?;
    file.expect_lifetime(Lifetime::Short);
    let allocate = |bytes: u64| {
        let allocated = file.allocate(bytes).map(|()| bytes);
        allocated.map_err(|error| Error::io("allocate", &path, error))
    };
    let mut allocated = allocate(bytes);
    for fewer in [SHORT_SEGMENT_BYTES, least] {
        if matches!(allocated, Err(Error::NoSpace { .. })) && (least..bytes).contains(&fewer) {
            allocated = allocate(fewer);
        }
    }
    match allocated {
        Ok(allocated) => Ok((file, allocated)),
        Err(error) => {
            // An empty or headerless leftover is harmless: replay takes it for an unfinished
            // creation.
            let _ = vfs.remove(&path);
            Err(error)
        }
    }
}

/// Returns true if the last frame of a file is a cut mark. A close writes and syncs the mark before
/// it truncates the file after it. Nothing is written to such a segment any more, so a file that
/// has lost its end anywhere else does not end like this.
fn ends_with_cut_mark(
    file: &dyn VfsFile,
    len: u64,
    id: SegmentId,
    database_uid: u64,
) -> Result<bool> {
    let mut frame = vec![0; frame_bytes(CUT_MARK.len())];
    let Some(offset) = len.checked_sub(frame.len() as u64) else {
        return Ok(false);
    };
    file.read_at(&mut frame, offset)
        .map_err(|error| Error::io("read", file.path(), error))?;
    let uid = segment_uid(database_uid, id);
    let Some((header, sum)) = FrameHeader::parse(&frame, uid, offset) else {
        return Ok(false);
    };
    let is_whole = checksum(&frame[8..], place_seed(uid, offset)) == sum;
    let is_mark = header.kind == RecordKind::SyncMark as u8
        && header.payload_bytes as usize == CUT_MARK.len()
        && frame[FRAME_HEADER_BYTES..].starts_with(CUT_MARK);
    Ok(is_whole && is_mark)
}

/// Writes the header of a segment, to be synced with its first records. Returns its checksum.
///
/// # Errors
///
/// Final: part of the header may be on the device.
pub(super) fn begin_segment(file: &dyn VfsFile, header: &SegmentHeader) -> Result<u64> {
    let (bytes, sum) = header.encode();
    file.write_at(&bytes, 0)
        .map_err(|error| hard_io("write the header of", file.path(), error))?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    #[test]
    fn only_canonical_names_are_segments() {
        assert_eq!(parse_segment_name("000017.wal"), Some(SegmentId(17)));
        assert_eq!(parse_segment_name("1234567.wal"), Some(SegmentId(1234567)));
        for name in ["17.wal", "+00017.wal", "0000017.wal", "000017.sst", ".wal"] {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_header_survives_its_encoding_and_no_flip_in_it_does() {
        let path = Path::new("000009.wal");
        let header = SegmentHeader {
            database_uid: 77,
            segment: SegmentId(9),
            allocated_bytes: 4096,
            previous: Some(SegmentEnd {
                segment: SegmentId(8),
                offset: 640,
                chain: 5,
            }),
            prepared: true,
            unsynced: true,
        };
        let (bytes, sum) = header.encode();
        let decode = |bytes: &[u8]| SegmentHeader::decode(bytes, SegmentId(9), path).unwrap();
        assert_eq!(decode(&bytes), Some((header, sum)));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let header = SegmentHeader {
            database_uid: 77,
            segment: SegmentId(9),
            allocated_bytes: 4096,
            previous: None,
            prepared: false,
            unsynced: false,
        };
        let (mut bytes, _) = header.encode();
        // The version, and an unknown feature bit.
        for (place, more) in [(8, 1), (12, 16)] {
            bytes[place] += more;
            let sum = checksum(&bytes[..COVERED_BYTES], 9);
            bytes[COVERED_BYTES..].copy_from_slice(&sum.to_le_bytes());
            let result = SegmentHeader::decode(&bytes, SegmentId(9), Path::new("x"));
            assert!(
                matches!(result, Err(Error::NewerFormat { found: 2, .. })),
                "{result:?}"
            );
            bytes[place] -= more;
        }
    }

    /// Each input gets a matching checksum.
    #[test]
    fn fuzz_headers_are_refused_or_round_trip() {
        let header = |previous| SegmentHeader {
            database_uid: 77,
            segment: SegmentId(9),
            allocated_bytes: 4096,
            previous,
            prepared: previous.is_some(),
            unsynced: false,
        };
        let end = SegmentEnd {
            segment: SegmentId(8),
            offset: 640,
            chain: 5,
        };
        let samples = [header(None), header(Some(end))].map(|header| header.encode().0);
        fuzz_decoder("headers of log segments", &samples, 8, |bytes| {
            let mut bytes = bytes.to_vec();
            if let Some((covered, sum)) = bytes.split_at_mut_checked(COVERED_BYTES)
                && let Some(sum) = sum.get_mut(..8)
            {
                sum.copy_from_slice(&checksum(covered, 9).to_le_bytes());
            }
            let decode = |bytes: &[u8]| SegmentHeader::decode(bytes, SegmentId(9), Path::new("x"));
            if let Ok(Some((read, _))) = decode(&bytes) {
                let (again, sum) = read.encode();
                assert_eq!(decode(&again).unwrap(), Some((read, sum)));
            }
        });
    }
}
