//! Frames: encoding of a log record or a manifest edit in its file. The reader finds the end of the
//! valid frames and decides if that end is natural.
//!
//! All offsets and checksums are those of the caller's file. [`seal`] and [`FrameHeader::parse`]
//! are the pure codec; the only I/O is in the window used by [`FrameReader`].

use crate::Error;
use crate::base::SEQNO_MAX;
use crate::base::checksum::{checksum, place_seed};
use crate::base::coding::Decoder;
use crate::error::Result;
use crate::vfs::VfsFile;

/// Bytes before the payload. On disk; never changes.
pub(crate) const FRAME_HEADER_BYTES: usize = 40;

/// Frames start at multiples of this. On disk; never changes.
pub(crate) const FRAME_ALIGN: usize = 8;

/// Returns the whole length of a frame with a payload of this length.
pub(crate) fn frame_bytes(payload_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(FRAME_ALIGN)
}

/// Header of a frame, without the two checksums of the frame itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The length of the payload.
    pub(crate) payload_bytes: u32,
    /// Type of the payload; never 0, so that zeros are not a frame.
    pub(crate) kind: u8,
    /// Sequence number of its commit, at most [`SEQNO_MAX`].
    pub(crate) seqno: u64,
    /// The predecessor's checksum.
    pub(crate) chain: u64,
    /// Offset up to which the file was known to be durable when the frame was written.
    pub(crate) durable: u64,
}

/// Completes a frame and returns its checksum. `frame` is room for a header, the payload, and zeros
/// up to [`frame_bytes`].
pub(crate) fn seal(frame: &mut [u8], header: FrameHeader, file_uid: u64, offset: u64) -> u64 {
    debug_assert_eq!(frame.len(), frame_bytes(header.payload_bytes as usize));
    debug_assert!(header.kind != 0 && header.seqno <= SEQNO_MAX && header.durable <= offset);
    let seed = place_seed(file_uid, offset);
    let kind_and_seqno = u64::from(header.kind) << 56 | header.seqno;
    frame[12..16].copy_from_slice(&header.payload_bytes.to_le_bytes());
    frame[16..24].copy_from_slice(&kind_and_seqno.to_le_bytes());
    frame[24..32].copy_from_slice(&header.chain.to_le_bytes());
    frame[32..40].copy_from_slice(&header.durable.to_le_bytes());
    let check = checksum(&frame[12..FRAME_HEADER_BYTES], seed) as u32;
    frame[8..12].copy_from_slice(&check.to_le_bytes());
    let sum = checksum(&frame[8..], seed);
    frame[..8].copy_from_slice(&sum.to_le_bytes());
    sum
}

impl FrameHeader {
    /// Returns the header in the first bytes of `bytes` and the frame's checksum, if the header is
    /// valid. The header has its own check, so its length can be trusted before the payload is
    /// read.
    pub(crate) fn parse(bytes: &[u8], file_uid: u64, offset: u64) -> Option<(FrameHeader, u64)> {
        let mut d = Decoder::new(bytes.get(..FRAME_HEADER_BYTES)?);
        let sum = d.u64()?;
        let check = d.u32()?;
        let rest = d.rest();
        let payload_bytes = d.u32()?;
        let kind_and_seqno = d.u64()?;
        let header = FrameHeader {
            payload_bytes,
            kind: (kind_and_seqno >> 56) as u8,
            seqno: kind_and_seqno & SEQNO_MAX,
            chain: d.u64()?,
            durable: d.u64()?,
        };
        let plausible = header.kind != 0 && header.durable <= offset;
        let valid = plausible && checksum(rest, place_seed(file_uid, offset)) as u32 == check;
        valid.then_some((header, sum))
    }
}

/// A valid frame.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) header: FrameHeader,
    pub(crate) offset: u64,
    pub(crate) payload: &'a [u8],
}

/// Reads the frames of a file in order, up to the first place without a valid one.
#[derive(Debug)]
pub(crate) struct FrameReader<'a> {
    window: Window<'a>,
    file_uid: u64,
    offset: u64,
    chain: u64,
}

impl<'a> FrameReader<'a> {
    /// Starts at `offset`; the first frame's predecessor has the checksum `chain`.
    pub(crate) fn new(
        file: &'a dyn VfsFile,
        file_uid: u64,
        offset: u64,
        chain: u64,
    ) -> Result<FrameReader<'a>> {
        Ok(FrameReader {
            window: Window::new(file)?,
            file_uid,
            offset,
            chain,
        })
    }

    /// Sets the number of bytes to read at once from now on.
    pub(crate) fn read_ahead(&mut self, bytes: usize) {
        self.window.step_bytes = bytes;
    }

    /// Returns the offset after the last frame read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the checksum of the last frame read.
    pub(crate) fn chain(&self) -> u64 {
        self.chain
    }

    /// Returns the next frame, or `None` if no valid one follows.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>> {
        let offset = self.offset;
        let Some(bytes) = self.window.get(offset, FRAME_HEADER_BYTES)? else {
            return Ok(None);
        };
        let Some((header, sum)) = FrameHeader::parse(bytes, self.file_uid, offset) else {
            return Ok(None);
        };
        let whole = frame_bytes(header.payload_bytes as usize);
        let Some(bytes) = self.window.get(offset, whole)? else {
            return Ok(None);
        };
        if checksum(&bytes[8..], place_seed(self.file_uid, offset)) != sum
            || header.chain != self.chain
        {
            return Ok(None);
        }
        self.offset += whole as u64;
        self.chain = sum;
        let end = FRAME_HEADER_BYTES + header.payload_bytes as usize;
        Ok(Some(Frame {
            header,
            offset,
            payload: &bytes[FRAME_HEADER_BYTES..end],
        }))
    }

    /// Decides if the valid frames end in a torn tail. If so, returns its length up to its last
    /// nonzero byte. If a later frame header says that this place was durable, durable bytes were
    /// lost: [`Error::Corruption`].
    pub(crate) fn finish(mut self) -> Result<u64> {
        let rest = self.window.survey(self.offset, self.file_uid)?;
        if rest.durable > self.offset {
            return Err(Error::corruption(
                self.window.file.path(),
                self.offset,
                "record",
                format!("valid records up to offset {}, known durable", rest.durable),
                "an invalid record",
            ));
        }
        Ok(rest.nonzero_end.saturating_sub(self.offset))
    }

    /// Returns true if any frame header from here on, in any chain, has a nonzero durable mark.
    pub(crate) fn any_durable_follows(mut self) -> Result<bool> {
        Ok(self.window.survey(self.offset, self.file_uid)?.durable > 0)
    }

    /// Returns true if there is any frame header from here on, in any chain.
    pub(crate) fn any_header_follows(mut self) -> Result<bool> {
        Ok(self.window.survey(self.offset, self.file_uid)?.headers > 0)
    }
}

/// Contents of the file after the last valid frame.
#[derive(Debug, Default)]
struct Survey {
    /// Places that hold a valid frame header.
    headers: u64,
    /// The largest durable mark among them.
    durable: u64,
    /// Offset after the last nonzero byte.
    nonzero_end: u64,
}

/// Part of a file in memory, read ahead in steps.
#[derive(Debug)]
struct Window<'a> {
    file: &'a dyn VfsFile,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
    step_bytes: usize,
}

impl<'a> Window<'a> {
    /// Bounds the memory of a replay, unless a single record is larger. The kernel reads this much
    /// ahead anyway. A buffer of 1 MiB, newly allocated for each segment, took a seventh of the
    /// time to open a small database.
    const STEP_BYTES: usize = 128 << 10;
    /// Zeros are skipped in pieces of this size: most of a young segment is zeros.
    const PIECE_BYTES: usize = 4096;

    fn new(file: &'a dyn VfsFile) -> Result<Window<'a>> {
        let len = file
            .len()
            .map_err(|error| Error::io("measure", file.path(), error))?;
        Ok(Window {
            file,
            len,
            start: 0,
            bytes: Vec::new(),
            step_bytes: Self::STEP_BYTES,
        })
    }

    /// Returns `count` bytes from `offset`, or `None` if the file ends before them.
    fn get(&mut self, offset: u64, count: usize) -> Result<Option<&[u8]>> {
        let left = self.len.saturating_sub(offset);
        if left < count as u64 {
            return Ok(None);
        }
        let loaded_end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + count as u64 > loaded_end {
            let want = left.min(count.max(self.step_bytes) as u64) as usize;
            // Taken first, because after a failed read the buffer must not look loaded.
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.resize(want, 0);
            self.file
                .read_at(&mut bytes, offset)
                .map_err(|error| Error::io("read", self.file.path(), error))?;
            self.start = offset;
            self.bytes = bytes;
        }
        let from = (offset - self.start) as usize;
        Ok(self.bytes.get(from..from + count))
    }

    /// Examines every aligned place from `offset` to the end of the file.
    fn survey(&mut self, offset: u64, file_uid: u64) -> Result<Survey> {
        const ZEROS: [u8; Window::PIECE_BYTES] = [0; Window::PIECE_BYTES];
        let mut survey = Survey::default();
        let mut at = offset;
        while at < self.len {
            let piece = (self.len - at).min(Self::PIECE_BYTES as u64) as usize;
            let Some(bytes) = self.get(at, piece)? else {
                break;
            };
            if bytes != &ZEROS[..piece] {
                if let Some(last) = bytes.iter().rposition(|&byte| byte != 0) {
                    survey.nonzero_end = at + last as u64 + 1;
                }
                self.survey_piece(at, piece, file_uid, &mut survey)?;
            }
            at += piece as u64;
        }
        Ok(survey)
    }

    fn survey_piece(
        &mut self,
        start: u64,
        len: usize,
        file_uid: u64,
        survey: &mut Survey,
    ) -> Result<()> {
        for step in (0..len).step_by(FRAME_ALIGN) {
            let offset = start + step as u64;
            let Some(bytes) = self.get(offset, FRAME_HEADER_BYTES)? else {
                break;
            };
            if let Some((header, _)) = FrameHeader::parse(bytes, file_uid, offset) {
                survey.headers += 1;
                survey.durable = survey.durable.max(header.durable);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(payload: &[u8], uid: u64, offset: u64) -> Vec<u8> {
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        frame.extend_from_slice(payload);
        frame.resize(frame_bytes(payload.len()), 0);
        let header = FrameHeader {
            payload_bytes: payload.len() as u32,
            kind: 1,
            seqno: 7,
            chain: 9,
            durable: 16,
        };
        seal(&mut frame, header, uid, offset);
        frame
    }

    #[test]
    fn a_header_is_valid_only_in_its_own_place() {
        let frame = sealed(b"payload", 5, 800);
        let (header, _) = FrameHeader::parse(&frame, 5, 800).unwrap();
        assert_eq!((header.payload_bytes, header.seqno), (7, 7));
        assert_eq!(FrameHeader::parse(&frame, 5, 808), None);
        assert_eq!(FrameHeader::parse(&frame, 6, 800), None);
        assert_eq!(FrameHeader::parse(&frame[..39], 5, 800), None);
        assert_eq!(FrameHeader::parse(&[0; 40], 5, 800), None);
    }

    #[test]
    fn no_flip_in_a_header_passes_its_check() {
        let frame = sealed(b"", 5, 800);
        // The first 8 bytes are the checksum of the whole frame, which the header's check leaves
        // out.
        for bit in 64..FRAME_HEADER_BYTES * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::parse(&bad, 5, 800), None, "bit {bit}");
        }
    }
}
