//! Reader of the good blocks of a damaged table, for a repair.
//!
//! Fences locate the blocks. Without fences the salvage walks the blocks by their own headers from
//! the start of the file, up to the first bad one. Every block that it uses has passed its
//! checksum, so rows are as they were written. Either copy of a dictionary will do; without a
//! footer a walk over the headers finds them.

use std::ops::Range;
use std::sync::Arc;

use crate::base::coding::Decoder;
use crate::base::{SeqNo, ValueKind};
use crate::range_deletes::RangeDeletes;
use crate::table::block::{DecodedBlock, ReusedBlock};
use crate::table::dictionary::Dictionary;
use crate::table::fences::Fences;
use crate::table::footer::{FOOTER_BYTES, Footer, Handle};
use crate::table::malformed::Malformed;
use crate::table::properties::{Properties, ValuesPart};
use crate::table::ranges;
use crate::table::reader::{expect_layout, read_block, read_dictionary, read_section};
use crate::table::section::{HEADER_BYTES, Layout, Origin};
use crate::vfs::VfsFile;
use crate::{Error, Result};

/// Visitor of the key, seqno, kind and value of each row.
type Visit<'a> = &'a mut dyn FnMut(&[u8], SeqNo, ValueKind, &[u8]) -> Result<()>;

/// Calls `row` with each row of each good block, in the table's order. In place of a bad block it
/// calls `damage` with the error: rows between the previous and the next call of `row` are lost.
/// Without fences the first bad block ends the salvage. Returns the range deletes; `None` if it is
/// unknown whether there were any.
///
/// Errors: those of `row`.
pub(crate) fn salvage(
    file: &dyn VfsFile,
    uid: u64,
    row: Visit<'_>,
    damage: &mut dyn FnMut(Error),
) -> Result<Option<RangeDeletes>> {
    let mut ranges = None;
    let mut fences = None;
    let footer = Footer::read(file, uid).ok();
    let dictionary = find_dictionary(file, uid, footer.as_ref());
    let dictionary = dictionary.as_deref();
    if let Some(footer) = &footer {
        let read = read_section(file, uid, footer.fences, |section| {
            expect_layout(section, Layout::Fences)?;
            Fences::decode(section, footer.file_bytes)
        });
        fences = read.ok();
        ranges = match footer.range_deletes.length {
            0 => Some(RangeDeletes::default()),
            _ => read_section(file, uid, footer.range_deletes, |section| {
                expect_layout(section, Layout::RangeDeletes)?;
                ranges::decode(section.raw)
            })
            .ok(),
        };
    }
    let mut key = Vec::new();
    let mut emit = |block: DecodedBlock<'_>| {
        (0..block.len()).try_for_each(|slot| {
            let found = block.row(slot);
            key.clear();
            key.extend_from_slice(found.prefix);
            key.extend_from_slice(found.suffix);
            row(&key, found.seqno, found.kind, found.value)
        })
    };
    match fences {
        Some(fences) => {
            let mut block = ReusedBlock::default();
            for index in 0..fences.len() {
                let at = fences.block_range(index);
                let (offset, length) = (at.start, at.end - at.start);
                let origin = Origin {
                    uid,
                    offset,
                    dictionary,
                };
                match block.replace(|space| read_block(file, origin, length, space)) {
                    Ok(block) => emit(block)?,
                    Err(error) => damage(error),
                }
            }
        }
        None => walk(file, uid, dictionary, &mut emit, damage)?,
    }
    Ok(ranges)
}

/// Returns the uid from the footer of a table file, for a reader without a manifest. It does not
/// check the footer.
///
/// Errors: `Corruption` for a file shorter than a footer; `Io`.
pub(crate) fn stored_uid(file: &dyn VfsFile) -> Result<u64> {
    let failed = |e| Error::io("read the footer of", file.path(), e);
    let file_bytes = file.len().map_err(failed)?;
    let mut bytes = [0; FOOTER_BYTES];
    let Some(offset) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
        let malformed = Malformed::new("file length", FOOTER_BYTES, file_bytes);
        return Err(malformed.at(file.path(), file_bytes));
    };
    file.read_at(&mut bytes, offset).map_err(failed)?;
    // In every version the uid is at the same offset in the footer. This reads it for footers of
    // this length; a footer of another length fails its checks later.
    let mut d = Decoder::new(&bytes);
    Ok(d.u64().and_then(|_| d.u64()).unwrap_or(0))
}

/// Returns the value files that the rows of a damaged table point into; empty if its properties are
/// unreadable.
pub(crate) fn salvage_values(file: &dyn VfsFile, uid: u64) -> Vec<ValuesPart> {
    let read = Footer::read(file, uid).and_then(|footer| {
        read_section(file, uid, footer.properties, |section| {
            expect_layout(section, Layout::Properties)?;
            Properties::decode(section.raw)
        })
    });
    read.map_or_else(|_| Vec::new(), |properties| properties.values)
}

/// Returns the dictionary, if the table has one and a copy of it is readable.
fn find_dictionary(
    file: &dyn VfsFile,
    uid: u64,
    footer: Option<&Footer>,
) -> Option<Arc<Dictionary>> {
    if let Some(footer) = footer {
        let copies = [footer.dictionary, footer.dictionary_copy];
        return copies
            .iter()
            .filter(|copy| copy.length > 0)
            .find_map(|&copy| read_dictionary(file, uid, copy).ok());
    }
    let len = file.len().unwrap_or(0);
    let mut offset = 0;
    // Ends with the file: each round passes at least a section header.
    while let Ok((layout, end)) = header_at(file, offset)
        && end <= len
    {
        if layout == Layout::Dictionary as u8
            && let Ok(found) = read_dictionary(file, uid, handle(offset..end))
        {
            return Some(found);
        }
        offset = end;
    }
    None
}

/// Returns the layout and the end of the section at `offset`, by its unchecked header.
fn header_at(file: &dyn VfsFile, offset: u64) -> std::io::Result<(u8, u64)> {
    let mut header = [0; HEADER_BYTES];
    file.read_at(&mut header, offset)?;
    let stored = u32::from_le_bytes([header[20], header[21], header[22], header[23]]);
    Ok((header[8], offset + HEADER_BYTES as u64 + u64::from(stored)))
}

fn walk(
    file: &dyn VfsFile,
    uid: u64,
    dictionary: Option<&Dictionary>,
    emit: &mut dyn FnMut(DecodedBlock<'_>) -> Result<()>,
    damage: &mut dyn FnMut(Error),
) -> Result<()> {
    let len = file.len().unwrap_or(0);
    let mut block = ReusedBlock::default();
    let mut offset = 0;
    // Ends with the file: each round passes at least a section header.
    while offset + HEADER_BYTES as u64 <= len {
        let (layout, end) = match header_at(file, offset) {
            Ok(found) => found,
            Err(error) => {
                damage(Error::io("read a block of", file.path(), error));
                return Ok(());
            }
        };
        let is_block = [Layout::Columns as u8, Layout::OneRow as u8].contains(&layout);
        if !is_block && end <= len && section_is_sound(file, uid, offset..end) {
            return Ok(());
        }
        let origin = Origin {
            uid,
            offset,
            dictionary,
        };
        let length = end.min(len) - offset;
        match block.replace(|space| read_block(file, origin, length, space)) {
            Ok(block) => emit(block)?,
            Err(error) => {
                damage(error);
                return Ok(());
            }
        }
        offset = end;
    }
    Ok(())
}

fn section_is_sound(file: &dyn VfsFile, uid: u64, range: Range<u64>) -> bool {
    read_section(file, uid, handle(range), |_| Ok(())).is_ok()
}

fn handle(range: Range<u64>) -> Handle {
    Handle {
        offset: range.start,
        length: range.end - range.start,
    }
}
