//! Section: the frame of everything in a table or value file except the footer.
//!
//! ```text
//!  0  u64  checksum: XXH3-64 over bytes 8.. of header and stored bytes,
//!           seeded by file uid and offset
//!  8  u8   layout of the raw bytes
//!  9  u8   codec of the stored bytes
//! 10  u16  reserved: always 0
//! 12  u32  entries
//! 16  u32  raw length: bytes after decompression
//! 20  u32  stored length: bytes after this header
//! 24  ...  stored bytes
//! ```

use crate::base::checksum::{checksum, place_seed};
use crate::base::coding::Decoder;
use crate::table::codec::{Codec, Packer, Unpacker};
use crate::table::dictionary::{DICTIONARY_BYTES_MAX, Dictionary};
use crate::table::malformed::Malformed;
use crate::{Error, Result};
use std::path::Path;

/// Bytes of a section header.
pub(super) const HEADER_BYTES: usize = 24;

/// Layout of a section's raw bytes. The numbers are stored and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Layout {
    /// A block of rows in columns.
    Columns = 1,
    /// A block of one row too large for columns.
    OneRow = 2,
    /// A value, in a value file.
    Value = 3,
    /// The fence index.
    Fences = 16,
    /// A filter with its definition.
    Filter = 17,
    /// The properties.
    Properties = 18,
    /// The range deletes.
    RangeDeletes = 19,
    /// The dictionary.
    Dictionary = 20,
}

impl Layout {
    fn from_u8(byte: u8) -> Option<Layout> {
        Some(match byte {
            1 => Layout::Columns,
            2 => Layout::OneRow,
            3 => Layout::Value,
            16 => Layout::Fences,
            17 => Layout::Filter,
            18 => Layout::Properties,
            19 => Layout::RangeDeletes,
            20 => Layout::Dictionary,
            _ => return None,
        })
    }

    /// Returns the longest raw form that a reader allocates memory for.
    fn raw_bytes_max(self) -> usize {
        match self {
            Layout::Columns => 4 << 20,
            Layout::OneRow => (1 << 30) + (1 << 17),
            Layout::Value => 1 << 30,
            Layout::Fences | Layout::Filter => u32::MAX as usize,
            Layout::Properties => 16 << 20,
            Layout::RangeDeletes => 256 << 20,
            Layout::Dictionary => DICTIONARY_BYTES_MAX,
        }
    }
}

/// Place of a section: the file's uid, the offset, and the path for errors.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) uid: u64,
    pub(super) offset: u64,
    pub(super) path: &'a Path,
}

/// Appends a section to `out` and returns its length with the header.
///
/// Errors: `Internal` for more raw bytes than a reader would accept.
pub(super) fn put_section(
    out: &mut Vec<u8>,
    place: Place<'_>,
    layout: Layout,
    entries: u32,
    raw: &[u8],
    packer: &mut Packer,
) -> Result<u32> {
    let too_long = || {
        Error::Internal(format!(
            "a section of {} cannot have {} bytes",
            place.path.display(),
            raw.len()
        ))
    };
    if raw.len() > layout.raw_bytes_max() {
        return Err(too_long());
    }
    let raw_length = u32::try_from(raw.len()).map_err(|_| too_long())?;
    let (codec, stored) = packer.pack(raw, place.path)?;
    let stored_length = u32::try_from(stored.len()).map_err(|_| too_long())?;
    let length = stored_length
        .checked_add(HEADER_BYTES as u32)
        .ok_or_else(too_long)?;
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[layout as u8, codec as u8, 0, 0]);
    out.extend_from_slice(&entries.to_le_bytes());
    out.extend_from_slice(&raw_length.to_le_bytes());
    out.extend_from_slice(&stored_length.to_le_bytes());
    out.extend_from_slice(stored);
    let sum = checksum(&out[start + 8..], place_seed(place.uid, place.offset));
    out[start..start + 8].copy_from_slice(&sum.to_le_bytes());
    Ok(length)
}

/// A section with a valid checksum and valid lengths.
#[derive(Debug)]
pub(super) struct Section<'a> {
    pub(super) layout: Layout,
    pub(super) entries: u32,
    pub(super) raw: &'a [u8],
}

/// Place that a section was read from, with what its file has to decompress it.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) uid: u64,
    pub(super) offset: u64,
    /// Absent in a file without one.
    pub(super) dictionary: Option<&'a Dictionary>,
}

/// Checks and decompresses a section. `bytes` includes its header.
pub(super) fn open_section<'a>(
    bytes: &'a [u8],
    unpacker: &'a mut Unpacker,
    origin: Origin<'_>,
) -> Result<Section<'a>, Malformed> {
    let header = Header::check(bytes, origin.uid, origin.offset)?;
    let (codec, stored) = (header.codec, header.stored);
    let raw = unpacker.unpack(codec, origin.dictionary, stored, header.raw_length)?;
    Ok(Section {
        layout: header.layout,
        entries: header.entries,
        raw,
    })
}

/// Works like [`open_section`], but replaces the content of the caller's `raw` with the raw bytes.
/// Returns the layout.
pub(super) fn open_section_into(
    bytes: &[u8],
    unpacker: &mut Unpacker,
    origin: Origin<'_>,
    raw: &mut Vec<u8>,
) -> Result<Layout, Malformed> {
    let header = Header::check(bytes, origin.uid, origin.offset)?;
    let (codec, stored) = (header.codec, header.stored);
    unpacker.unpack_into(codec, origin.dictionary, stored, header.raw_length, raw)?;
    Ok(header.layout)
}

struct Header<'a> {
    layout: Layout,
    codec: Codec,
    entries: u32,
    raw_length: usize,
    stored: &'a [u8],
}

impl<'a> Header<'a> {
    fn check(bytes: &'a [u8], uid: u64, offset: u64) -> Result<Header<'a>, Malformed> {
        let short = || Malformed::new("section header", HEADER_BYTES, bytes.len());
        let mut d = Decoder::new(bytes);
        let expected = d.u64().ok_or_else(short)?;
        let found = checksum(d.rest(), place_seed(uid, offset));
        if expected != found {
            return Err(Malformed::new(
                "section checksum",
                format_args!("{expected:#018x}"),
                format_args!("{found:#018x}"),
            ));
        }
        let layout = d.u8().ok_or_else(short)?;
        let codec = d.u8().ok_or_else(short)?;
        let reserved = d.u16().ok_or_else(short)?;
        let entries = d.u32().ok_or_else(short)?;
        let raw_length = d.u32().ok_or_else(short)? as usize;
        let stored_length = d.u32().ok_or_else(short)? as usize;
        let layout = Layout::from_u8(layout)
            .ok_or_else(|| Malformed::new("section layout", "1 to 3 or 16 to 20", layout))?;
        let codec = Codec::from_u8(codec)
            .ok_or_else(|| Malformed::new("section codec", "0 to 3", codec))?;
        if reserved != 0 {
            return Err(Malformed::new("reserved bytes of a section", 0, reserved));
        }
        if stored_length != d.rest().len() {
            return Err(Malformed::new(
                "section length",
                d.rest().len(),
                stored_length,
            ));
        }
        if raw_length > layout.raw_bytes_max() {
            let limit = format!("at most {}", layout.raw_bytes_max());
            return Err(Malformed::new("section raw length", limit, raw_length));
        }
        let stored = d.rest();
        codec.check_reach(stored, raw_length)?;
        Ok(Header {
            layout,
            codec,
            entries,
            raw_length,
            stored,
        })
    }
}
