//! Decoder from a block's raw bytes to the decoded layout.
//!
//! All checks come first. Then the columns are copied from the raw bytes, which are still in the
//! processor's cache, into a frame of exactly the needed size; byte planes of suffixes and values
//! become rows on the way.
//!
//! The raw length bounds the memory: each entry adds at most 16 bytes to it, and the entry count is
//! at most the raw length. So a decoded block takes at most 17 times its raw length plus a
//! constant.

use crate::base::coding::Decoder;
use crate::base::{KEY_BYTES_MAX, SEQNO_MAX, VALUE_BYTES_MAX, ValueKind};
use crate::table::block::decoded::{BlockFrame, DecodedBlock, Shape, VARIED};
use crate::table::block::planes::transpose;
use crate::table::block::{IntCoding, Ints, ValueOrder, head};
use crate::table::codec::Unpacker;
use crate::table::malformed::Malformed;
use crate::table::section::{Layout, Origin, Section, open_section};
use alluvium_mem::frames::{Filling, Space, frame_bytes};

/// Unused bytes that reused memory may have, in addition to as many as are used.
const SLACK_BYTES: usize = 64 << 10;

/// Columns of a block as they are stored. All pieces lie inside of the block.
struct Stored<'a> {
    count: usize,
    prefix: &'a [u8],
    suffixes: Pieces<'a>,
    /// Kind of all entries; 0 if each has a byte.
    kind: u8,
    kinds: &'a [u8],
    seqnos: IntCoding,
    seqno_planes: &'a [u8],
    values: Pieces<'a>,
}

/// Column of suffixes or values.
struct Pieces<'a> {
    lengths: Lengths<'a>,
    bytes: &'a [u8],
    order: ValueOrder,
}

enum Lengths<'a> {
    All(u32),
    Each(Ints<'a>),
}

/// Decodes a section with a block. `bytes` includes the section's header. `space` returns a frame
/// of at least this many bytes.
pub(in crate::table) fn decode_block(
    bytes: &[u8],
    unpacker: &mut Unpacker,
    origin: Origin<'_>,
    space: impl FnOnce(usize) -> Space,
) -> Result<BlockFrame, Malformed> {
    lay_out(&open_section(bytes, unpacker, origin)?, space)
}

/// Memory outside of a cache, for one block at a time.
#[derive(Default)]
pub(in crate::table) struct ReusedBlock(Option<BlockFrame>);

impl ReusedBlock {
    /// Replaces the block by the one that `read` returns. `read` gets memory of at least so many
    /// bytes from its parameter: that of the last block, if this is its only reference and it is
    /// neither too small nor that of a huge row. After an error there is no block.
    pub(in crate::table) fn replace<E>(
        &mut self,
        read: impl FnOnce(&mut dyn FnMut(usize) -> Space) -> Result<BlockFrame, E>,
    ) -> Result<DecodedBlock<'_>, E> {
        let mut old = self.0.take();
        let read = read(&mut |bytes| {
            let space = old.take().and_then(|old| old.into_any().into_space().ok());
            let fitting = bytes..=2 * bytes + SLACK_BYTES;
            let space = space.filter(|space| fitting.contains(&space.bytes()));
            space.unwrap_or_else(|| Space::alone(bytes))
        })?;
        Ok(DecodedBlock(self.0.insert(read)))
    }

    /// Returns the block, if there is one.
    pub(in crate::table) fn rows(&self) -> Option<DecodedBlock<'_>> {
        self.0.as_ref().map(DecodedBlock)
    }
}

/// Returns a block of one row with this seqno.
#[cfg(all(test, loom))]
pub(in crate::table) fn one_row_block(
    seqno: u64,
    space: impl FnOnce(usize) -> Space,
) -> BlockFrame {
    let mut raw = Vec::new();
    crate::table::block::encode_one_row(b"k", seqno, ValueKind::Put, b"v", &mut raw);
    let section = Section {
        layout: Layout::OneRow,
        entries: 1,
        raw: &raw,
    };
    lay_out(&section, space).expect("just encoded")
}

/// Lays out the raw bytes of a section.
pub(super) fn lay_out(
    section: &Section<'_>,
    space: impl FnOnce(usize) -> Space,
) -> Result<BlockFrame, Malformed> {
    let stored = match section.layout {
        Layout::Columns => Stored::parse(section.raw, section.entries as usize)?,
        Layout::OneRow => Stored::parse_one_row(section.raw, section.entries)?,
        Layout::Value
        | Layout::Fences
        | Layout::Filter
        | Layout::Properties
        | Layout::RangeDeletes
        | Layout::Dictionary => {
            let found = section.layout as u8;
            return Err(Malformed::new("section layout", "a block", found));
        }
    };
    Ok(stored.fill(space))
}

impl<'a> Stored<'a> {
    fn parse(raw: &'a [u8], count: usize) -> Result<Stored<'a>, Malformed> {
        // Entries differ in key or seqno, so in a block of several entries one of these columns has
        // at least one byte for each entry.
        if count == 0 || count > raw.len() {
            let expected = format!("1 to {}", raw.len());
            return Err(Malformed::new("block entries", expected, count));
        }
        let mut d = Decoder::new(raw);
        let prefix = cut(d.bytes(), "key prefix")?;
        let suffix_max = KEY_BYTES_MAX.saturating_sub(prefix.len()) as u64;
        limit("key prefix length", prefix.len(), KEY_BYTES_MAX)?;
        let lengths = cut(Ints::read(&mut d, count, suffix_max), "suffix lengths")?;
        let bytes = cut(take_all(&mut d, &lengths, count), "key suffixes")?;
        let suffixes = Pieces::new(lengths, bytes, ValueOrder::Planes);
        let (kind, kinds) = match cut(d.u8(), "kinds")? {
            0 => {
                let each = cut(d.take(count), "kinds")?;
                each.iter().try_for_each(|&byte| check_kind(byte))?;
                (0, each)
            }
            all => {
                check_kind(all)?;
                (all, &[][..])
            }
        };
        let seqnos = cut(Ints::read(&mut d, count, SEQNO_MAX), "seqnos")?;
        let value_max = VALUE_BYTES_MAX as u64;
        let lengths = cut(Ints::read(&mut d, count, value_max), "value lengths")?;
        let order = match (cut(d.u8(), "value order")?, lengths.constant()) {
            (0, _) => ValueOrder::Rows,
            (1, Some(_)) => ValueOrder::Planes,
            (other, _) => {
                return Err(Malformed::new(
                    "value order",
                    "0, or 1 at one length",
                    other,
                ));
            }
        };
        let bytes = cut(take_all(&mut d, &lengths, count), "values")?;
        limit("bytes after the values", d.rest().len(), 0)?;
        Ok(Stored {
            count,
            prefix,
            suffixes,
            kind,
            kinds,
            seqnos: seqnos.coding(),
            seqno_planes: seqnos.planes(),
            values: Pieces::new(lengths, bytes, order),
        })
    }

    fn parse_one_row(raw: &'a [u8], entries: u32) -> Result<Stored<'a>, Malformed> {
        if entries != 1 {
            return Err(Malformed::new("entries of one row", 1, entries));
        }
        let mut d = Decoder::new(raw);
        let kind = cut(d.u8(), "kind")?;
        check_kind(kind)?;
        let seqno = cut(d.varint(), "seqno")?;
        let key = cut(d.bytes(), "key")?;
        let value = d.rest();
        limit("seqno", seqno, SEQNO_MAX)?;
        limit("key length", key.len(), KEY_BYTES_MAX)?;
        limit("value length", value.len(), VALUE_BYTES_MAX)?;
        Ok(Stored {
            count: 1,
            prefix: key,
            suffixes: Pieces::of_one(&[]),
            kind,
            kinds: &[],
            seqnos: IntCoding::of(seqno, 0),
            seqno_planes: &[],
            values: Pieces::of_one(value),
        })
    }

    /// Copies the columns into a frame.
    fn fill(&self, space: impl FnOnce(usize) -> Space) -> BlockFrame {
        let shape = self.shape();
        let lists = self.suffixes.list_len(self.count) + self.values.list_len(self.count);
        let offset_bytes = if shape.is_wide { 4 } else { 2 };
        let bytes = shape.offsets as usize + lists * offset_bytes;
        let space = space(frame_bytes::<Shape>(self.count, bytes));
        let mut filling: Filling<Shape> = space.fill(shape, self.count, bytes);
        let (heads, bytes) = filling.parts_mut();
        let (columns, offsets) = bytes.split_at_mut(shape.offsets as usize);
        let (columns, values) = columns.split_at_mut(shape.values as usize);
        let (columns, seqnos) = columns.split_at_mut(shape.seqnos as usize);
        let (columns, kinds) = columns.split_at_mut(shape.kinds as usize);
        let (prefix, suffixes) = columns.split_at_mut(self.prefix.len());
        prefix.copy_from_slice(self.prefix);
        kinds.copy_from_slice(self.kinds);
        seqnos.copy_from_slice(self.seqno_planes);
        self.suffixes.write(self.count, suffixes);
        self.values.write(self.count, values);
        if shape.is_wide {
            self.write_offsets(&shape, offsets.as_chunks_mut::<4>().0);
        } else {
            self.write_offsets(&shape, offsets.as_chunks_mut::<2>().0);
        }
        self.suffixes.write_heads(suffixes, heads);
        filling.share()
    }

    /// Writes both lists of offsets, with `N` bytes for each.
    fn write_offsets<const N: usize>(&self, shape: &Shape, out: &mut [[u8; N]]) {
        let suffixes = self.suffixes.list_len(self.count);
        let (suffixes, values) = out.split_at_mut(suffixes);
        self.suffixes
            .write_offsets(u32::from(shape.prefix), suffixes);
        self.values.write_offsets(shape.values, values);
    }

    /// Returns the places of the columns. Raw bytes of a block have far less than 4 GiB.
    fn shape(&self) -> Shape {
        let kinds = self.prefix.len() + self.suffixes.bytes.len();
        let seqnos = kinds + self.kinds.len();
        let values = seqnos + self.seqno_planes.len();
        let offsets = values + self.values.bytes.len();
        let (seqno_base, seqno_width) = self.seqnos.parts();
        Shape {
            seqno_base,
            seqno_width,
            kind: self.kind,
            prefix: self.prefix.len() as u16,
            suffix_width: self.suffixes.width(),
            value_width: self.values.width(),
            kinds: kinds as u32,
            seqnos: seqnos as u32,
            values: values as u32,
            offsets: offsets as u32,
            is_wide: offsets > usize::from(u16::MAX),
        }
    }
}

impl<'a> Pieces<'a> {
    fn new(lengths: Ints<'a>, bytes: &'a [u8], order: ValueOrder) -> Pieces<'a> {
        match lengths.constant() {
            Some(length) => Pieces {
                lengths: Lengths::All(length as u32),
                bytes,
                order,
            },
            None => Pieces {
                lengths: Lengths::Each(lengths),
                bytes,
                order: ValueOrder::Rows,
            },
        }
    }

    fn of_one(bytes: &'a [u8]) -> Pieces<'a> {
        Pieces {
            lengths: Lengths::All(bytes.len() as u32),
            bytes,
            order: ValueOrder::Rows,
        }
    }

    fn width(&self) -> u32 {
        match self.lengths {
            Lengths::All(width) => width,
            Lengths::Each(_) => VARIED,
        }
    }

    /// Returns the number of offsets.
    fn list_len(&self, count: usize) -> usize {
        match self.lengths {
            Lengths::All(_) => 0,
            Lengths::Each(_) => count + 1,
        }
    }

    /// Writes the pieces in rows.
    fn write(&self, count: usize, out: &mut [u8]) {
        let width = match self.lengths {
            Lengths::All(width) => width as usize,
            Lengths::Each(_) => 0,
        };
        if self.order == ValueOrder::Rows || width < 2 || count < 2 {
            return out.copy_from_slice(self.bytes);
        }
        let planes = (width, count);
        let (from, to) = (|plane| plane * count, |row| row * width);
        transpose(self.bytes, from, planes, out, to);
    }

    /// Writes the offsets of pieces from `start` on, and the end of the last.
    fn write_offsets<const N: usize>(&self, start: u32, out: &mut [[u8; N]]) {
        let (Lengths::Each(lengths), Some((first, rest))) = (&self.lengths, out.split_first_mut())
        else {
            return;
        };
        let mut at = start;
        *first = low_bytes(at);
        for (slot, out) in rest.iter_mut().enumerate() {
            at += lengths.get(slot) as u32;
            *out = low_bytes(at);
        }
    }

    /// Writes the heads of pieces in `rows`.
    fn write_heads(&self, rows: &[u8], heads: &mut [u64]) {
        let mut rows = rows;
        for (slot, out) in heads.iter_mut().enumerate() {
            let length = match &self.lengths {
                Lengths::All(width) => *width as usize,
                Lengths::Each(lengths) => lengths.get(slot) as usize,
            };
            let (row, rest) = rows.split_at(length);
            *out = head(row);
            rows = rest;
        }
    }
}

/// Returns the lowest bytes of an offset, which fits in them.
fn low_bytes<const N: usize>(offset: u32) -> [u8; N] {
    let bytes = offset.to_le_bytes();
    std::array::from_fn(|at| bytes[at])
}

/// Takes the bytes of `count` suffixes or values with these lengths.
fn take_all<'a>(d: &mut Decoder<'a>, lengths: &Ints<'_>, count: usize) -> Option<&'a [u8]> {
    let total = match lengths.constant() {
        Some(length) => length.checked_mul(count as u64)?,
        // At most 2^32 lengths below 2^31.
        None => (0..count).map(|i| lengths.get(i)).sum(),
    };
    d.take(usize::try_from(total).ok()?)
}

fn check_kind(byte: u8) -> Result<(), Malformed> {
    match ValueKind::from_u8(byte) {
        Some(_) => Ok(()),
        None => Err(Malformed::new("value kind", "1 to 4, 6 or 7", byte)),
    }
}

/// Returns the decoded value. `None` is an error: `what` ends outside the block or is above its
/// limit.
fn cut<T>(read: Option<T>, what: &'static str) -> Result<T, Malformed> {
    read.ok_or_else(|| Malformed::new(what, "within the block and its limit", "neither"))
}

fn limit<T: PartialOrd + std::fmt::Display>(
    what: &'static str,
    found: T,
    limit: T,
) -> Result<(), Malformed> {
    if found <= limit {
        Ok(())
    } else {
        Err(Malformed::new(what, format!("at most {limit}"), found))
    }
}
