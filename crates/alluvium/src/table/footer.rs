//! Footer: the last 192 bytes of a table file.
//!
//! ```text
//!   0  u64  checksum: XXH3-64 over bytes 8.. of the footer, seeded by file uid and footer offset
//!   8  u64  file uid
//!  16  u64  file length
//!  24  u32  must-know features: a reader that does not know one of these bits refuses the file
//!  28  u32  may-ignore features
//!  32       8 handles of u64 offset, u64 length; 0, 0 for an absent section:
//!           fences, properties, whole-key filter, prefix filter, range deletes, dictionary,
//!           copy of the dictionary, 1 reserved
//! 160       16 bytes of 0
//! 176  u32  format version
//! 180  u32  footer length
//! 184       magic
//! ```
//!
//! In every future version, magic, footer length and version keep their distance from the end of
//! the file. Checksum and uid keep their distance from the start of the footer.

use crate::base::checksum::{checksum, place_seed};
use crate::base::coding::Decoder;
use crate::table::malformed::Malformed;
use crate::vfs::VfsFile;
use crate::{Error, Result};

/// Format version of this build: the one it writes, and the newest it reads.
pub(super) const FORMAT_VERSION: u32 = 1;

/// Length of the footer in version 1.
pub(super) const FOOTER_BYTES: usize = 192;

const MAGIC: [u8; 8] = *b"\x89ALVTBL\n";
/// Length of version, footer length and magic in bytes.
const TAIL_BYTES: usize = 16;
const HANDLES: usize = 8;

/// Must-know bit of a table with range deletes.
const RANGE_DELETES: u32 = 1;

/// Must-know bit of a table that points into value files.
const POINTERS: u32 = 8;

/// Must-know bit of a table with a dictionary.
const DICTIONARY: u32 = 16;

/// Must-know bits that this version supports. Masks 2 and 4 are reserved and never written.
const KNOWN_FEATURES: u32 = RANGE_DELETES | POINTERS | DICTIONARY;

/// Offset and length of a section in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Handle {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Content of the footer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Footer {
    pub(super) uid: u64,
    pub(super) file_bytes: u64,
    pub(super) fences: Handle,
    pub(super) properties: Handle,
    pub(super) whole_filter: Handle,
    pub(super) prefix_filter: Handle,
    /// Absent in a table without range deletes.
    pub(super) range_deletes: Handle,
    /// Absent in a table without a dictionary.
    pub(super) dictionary: Handle,
    /// A second copy, for a repair: without a dictionary no block of the table is readable.
    pub(super) dictionary_copy: Handle,
    /// True if rows point into value files.
    pub(super) points: bool,
    /// Sum of the lengths of the sections that the footer names, reserved ones included; data
    /// blocks do not count. Ignored by `encode`.
    pub(super) sections_bytes: u64,
}

impl Footer {
    /// Returns the footer's bytes for the end of a file of `file_bytes`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 8];
        out.extend_from_slice(&self.uid.to_le_bytes());
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        let bit = |set: bool, mask: u32| if set { mask } else { 0 };
        let features = bit(self.range_deletes.length > 0, RANGE_DELETES)
            | bit(self.points, POINTERS)
            | bit(self.dictionary.length > 0, DICTIONARY);
        out.extend_from_slice(&features.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        for handle in self.handles() {
            out.extend_from_slice(&handle.offset.to_le_bytes());
            out.extend_from_slice(&handle.length.to_le_bytes());
        }
        out.resize(FOOTER_BYTES - TAIL_BYTES, 0);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&(FOOTER_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&MAGIC);
        let seed = place_seed(self.uid, self.file_bytes - FOOTER_BYTES as u64);
        let sum = checksum(&out[8..], seed);
        out[..8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads and checks the footer of `file`. The file must have the uid that the caller expects.
    pub(super) fn read(file: &dyn VfsFile, expected_uid: u64) -> Result<Footer> {
        let path = file.path();
        let failed = |e| Error::io("read the footer of", path, e);
        let file_bytes = file.len().map_err(failed)?;
        let damaged = |malformed: Malformed| malformed.at(path, file_bytes);
        let mut tail = [0; TAIL_BYTES];
        let Some(tail_offset) = file_bytes.checked_sub(TAIL_BYTES as u64) else {
            let expected = format!("at least {TAIL_BYTES}");
            return Err(damaged(Malformed::new("file length", expected, file_bytes)));
        };
        file.read_at(&mut tail, tail_offset).map_err(failed)?;
        let (version, length) = parse_tail(&tail, file_bytes).map_err(damaged)?;
        let offset = file_bytes - length as u64;
        let mut bytes = vec![0; length];
        file.read_at(&mut bytes, offset).map_err(failed)?;
        let damaged = |malformed: Malformed| malformed.at(path, offset);
        check_sum(&bytes, offset).map_err(damaged)?;
        let newer = |found| Error::NewerFormat {
            path: path.to_path_buf(),
            found,
            supported: FORMAT_VERSION,
        };
        if version > FORMAT_VERSION {
            return Err(newer(version));
        }
        let (footer, features) = Footer::parse(&bytes)
            .ok_or_else(|| damaged(Malformed::new("footer length", FOOTER_BYTES, length)))?;
        if features & !KNOWN_FEATURES != 0 {
            // Every bit that this build does not support was defined in a later version.
            return Err(newer(FORMAT_VERSION + 1));
        }
        for (mask, handle, what) in [
            (RANGE_DELETES, footer.range_deletes, "range deletes"),
            (DICTIONARY, footer.dictionary, "a dictionary"),
            (DICTIONARY, footer.dictionary_copy, "a copy of a dictionary"),
        ] {
            let announced = features & mask != 0;
            if announced != (handle.length > 0) {
                let found = format!("{} bytes of {what}", handle.length);
                return Err(damaged(Malformed::new("feature bits", features, found)));
            }
        }
        footer
            .check(expected_uid, file_bytes, offset)
            .map_err(damaged)?;
        Ok(footer)
    }

    fn parse(bytes: &[u8]) -> Option<(Footer, u32)> {
        let mut d = Decoder::new(bytes);
        d.take(8)?;
        let mut footer = Footer {
            uid: d.u64()?,
            file_bytes: d.u64()?,
            ..Footer::default()
        };
        let features = d.u32()?;
        footer.points = features & POINTERS != 0;
        d.take(4)?;
        let mut handles = [Handle::default(); HANDLES];
        for handle in &mut handles {
            handle.offset = d.u64()?;
            handle.length = d.u64()?;
            footer.sections_bytes = footer.sections_bytes.checked_add(handle.length)?;
        }
        [
            footer.fences,
            footer.properties,
            footer.whole_filter,
            footer.prefix_filter,
            footer.range_deletes,
            footer.dictionary,
            footer.dictionary_copy,
            _,
        ] = handles;
        Some((footer, features))
    }

    /// Returns the handles of the defined sections, in the order of the footer.
    fn handles(&self) -> [Handle; HANDLES - 1] {
        [
            self.fences,
            self.properties,
            self.whole_filter,
            self.prefix_filter,
            self.range_deletes,
            self.dictionary,
            self.dictionary_copy,
        ]
    }

    fn check(&self, expected_uid: u64, file_bytes: u64, offset: u64) -> Result<(), Malformed> {
        if self.uid != expected_uid {
            return Err(Malformed::new(
                "file uid",
                format_args!("{expected_uid:#018x}"),
                format_args!("{:#018x}", self.uid),
            ));
        }
        if self.file_bytes != file_bytes {
            return Err(Malformed::new("file length", self.file_bytes, file_bytes));
        }
        for handle in self.handles() {
            let end = handle.offset.checked_add(handle.length);
            if end.is_none_or(|end| end > offset) {
                let expected = format!("an end up to {offset}");
                let found = format!("{} bytes at {}", handle.length, handle.offset);
                return Err(Malformed::new("section handle", expected, found));
            }
        }
        Ok(())
    }
}

fn parse_tail(tail: &[u8; TAIL_BYTES], file_bytes: u64) -> Result<(u32, usize), Malformed> {
    let mut d = Decoder::new(tail);
    let (version, length) = (d.u32().unwrap_or(0), d.u32().unwrap_or(0));
    if d.rest() != MAGIC {
        return Err(Malformed::new(
            "table magic",
            MAGIC.escape_ascii(),
            d.rest().escape_ascii(),
        ));
    }
    // Later versions may have a longer footer, up to 64 KiB.
    let possible = FOOTER_BYTES as u64..=file_bytes.min(1 << 16);
    if version == 0 || !possible.contains(&u64::from(length)) {
        let found = format!("version {version}, {length} bytes");
        return Err(Malformed::new("footer", "a version and its length", found));
    }
    Ok((version, length as usize))
}

fn check_sum(bytes: &[u8], offset: u64) -> Result<(), Malformed> {
    let mut d = Decoder::new(bytes);
    let expected = d.u64().unwrap_or(0);
    let covered = d.rest();
    let uid = d.u64().unwrap_or(0);
    let found = checksum(covered, place_seed(uid, offset));
    if expected == found {
        Ok(())
    } else {
        Err(Malformed::new(
            "footer checksum",
            format_args!("{expected:#018x}"),
            format_args!("{found:#018x}"),
        ))
    }
}
