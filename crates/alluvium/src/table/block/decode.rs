//! Decoder from a block's raw bytes to the decoded layout.
//!
//! The raw bytes are decompressed into the block and stay where they are; only byte planes of
//! suffixes and values are laid out as rows, in their own place. A miss writes most bytes of its
//! block once.
//!
//! The raw length bounds the memory: each entry adds at most 16 bytes to it, and the entry count is
//! at most the raw length. With the unused part of its buffers a decoded block takes at most 32
//! times its raw length plus a constant.

use std::ops::Range;

use crate::base::coding::Decoder;
use crate::base::{KEY_BYTES_MAX, SEQNO_MAX, VALUE_BYTES_MAX, ValueKind};
use crate::table::block::decoded::{Kinds, Pieces};
use crate::table::block::planes::transpose;
use crate::table::block::{DecodedBlock, IntCoding, Ints, ValueOrder, head};
use crate::table::buffers::{BYTES, Buffers, HEADS, OFFSETS};
use crate::table::codec::Unpacker;
use crate::table::malformed::Malformed;
use crate::table::section::{Layout, Origin, open_section_into};

/// Columns of a block as they are stored, all checked to lie inside the block.
struct Stored<'a> {
    prefix: Range<usize>,
    suffix_lengths: Ints<'a>,
    suffixes: Range<usize>,
    kinds: Kinds,
    seqnos: Ints<'a>,
    seqnos_start: usize,
    value_lengths: Ints<'a>,
    order: ValueOrder,
    values: Range<usize>,
}

impl DecodedBlock {
    /// Decodes a section with a block into this one and reuses its memory. `bytes` includes the
    /// section's header. After an error this block is empty.
    pub(in crate::table) fn decode(
        &mut self,
        bytes: &[u8],
        unpacker: &mut Unpacker,
        origin: Origin<'_>,
    ) -> Result<(), Malformed> {
        self.heads.clear();
        self.columns.prefix = 0..0;
        let room = |data: &mut Vec<u8>, length| BYTES.fit(data, length);
        let (layout, entries) = open_section_into(bytes, unpacker, origin, &mut self.data, room)?;
        self.lay_out(layout, entries, unpacker.buffer())
    }

    /// Lays out the raw bytes in `data`. The content of `scratch` is not used.
    pub(super) fn lay_out(
        &mut self,
        layout: Layout,
        entries: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        match layout {
            Layout::Columns => self.lay_out_columns(entries as usize, scratch),
            Layout::OneRow => self.lay_out_one_row(entries),
            Layout::Value
            | Layout::Fences
            | Layout::Filter
            | Layout::Properties
            | Layout::RangeDeletes
            | Layout::Dictionary => Err(Malformed::new("section layout", "a block", layout as u8)),
        }
    }

    fn lay_out_one_row(&mut self, entries: u32) -> Result<(), Malformed> {
        if entries != 1 {
            return Err(Malformed::new("entries of one row", 1, entries));
        }
        let mut d = Decoder::new(&self.data);
        let kind = kind(cut(d.u8(), "kind")?)?;
        let seqno = cut(d.varint(), "seqno")?;
        let key = cut(d.bytes(), "key")?.len();
        let value = d.rest().len();
        limit("seqno", seqno, SEQNO_MAX)?;
        limit("key length", key, KEY_BYTES_MAX)?;
        limit("value length", value, VALUE_BYTES_MAX)?;
        let columns = &mut self.columns;
        let start = self.data.len() - value;
        columns.prefix = start - key..start;
        columns.suffixes.set_width(start, 0);
        columns.kinds = Kinds::All(kind);
        (columns.seqnos, columns.seqnos_start) = (IntCoding::constant(seqno), 0);
        columns.values.set_width(start, value);
        make_room(&HEADS, &mut self.heads, 1);
        self.heads.push(0);
        Ok(())
    }

    fn lay_out_columns(&mut self, count: usize, scratch: &mut Vec<u8>) -> Result<(), Malformed> {
        let stored = Stored::parse(&self.data, count)?;
        let (suffixes, values, order) = (stored.suffixes, stored.values, stored.order);
        let columns = &mut self.columns;
        columns.prefix = stored.prefix;
        columns.kinds = stored.kinds;
        (columns.seqnos, columns.seqnos_start) = (stored.seqnos.coding(), stored.seqnos_start);
        let lengths = &stored.suffix_lengths;
        columns.suffixes.set(suffixes.start, lengths, count);
        let lengths = &stored.value_lengths;
        columns.values.set(values.start, lengths, count);
        if let Some(width) = columns.suffixes.width {
            to_rows(&mut self.data[suffixes], (width, count), scratch);
        }
        if let (ValueOrder::Planes, Some(width)) = (order, columns.values.width) {
            to_rows(&mut self.data[values], (width, count), scratch);
        }
        make_room(&HEADS, &mut self.heads, count);
        let suffix = |slot| &self.data[self.columns.suffixes.range(slot)];
        self.heads.extend((0..count).map(|slot| head(suffix(slot))));
        Ok(())
    }
}

impl Pieces {
    fn set_width(&mut self, start: usize, width: usize) {
        (self.start, self.width) = (start, Some(width));
        make_room(&OFFSETS, &mut self.offsets, 0);
    }

    fn set(&mut self, start: usize, lengths: &Ints<'_>, count: usize) {
        if let Some(width) = lengths.constant() {
            return self.set_width(start, width as usize);
        }
        (self.start, self.width) = (start, None);
        make_room(&OFFSETS, &mut self.offsets, count + 1);
        // Raw bytes of a block have far less than 4 GiB.
        let mut at = start as u32;
        self.offsets.push(at);
        self.offsets.extend((0..count).map(|i| {
            at += lengths.get(i) as u32;
            at
        }));
    }
}

/// Lays out `width` planes of `count` bytes as `count` rows, in the same place.
fn to_rows(bytes: &mut [u8], (width, count): (usize, usize), scratch: &mut Vec<u8>) {
    if width < 2 || count < 2 {
        return;
    }
    scratch.clear();
    scratch.extend_from_slice(bytes);
    let planes = (width, count);
    transpose(
        scratch,
        |plane| plane * count,
        planes,
        bytes,
        |row| row * width,
    );
}

/// Empties `buffer` and makes room for `len` elements.
fn make_room<T: Copy>(buffers: &Buffers<T>, buffer: &mut Vec<T>, len: usize) {
    buffers.fit(buffer, len);
    buffer.clear();
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
        // Place of the bytes that `d` has just read.
        let place = |d: &Decoder<'_>, bytes: usize| {
            let end = raw.len() - d.rest().len();
            end - bytes..end
        };
        let prefix = cut(d.bytes(), "key prefix")?.len();
        let suffix_max = KEY_BYTES_MAX.saturating_sub(prefix) as u64;
        limit("key prefix length", prefix, KEY_BYTES_MAX)?;
        let prefix = place(&d, prefix);
        let suffix_lengths = cut(Ints::read(&mut d, count, suffix_max), "suffix lengths")?;
        let suffixes = cut(take_all(&mut d, &suffix_lengths, count), "key suffixes")?;
        let suffixes = place(&d, suffixes);
        let kinds = match cut(d.u8(), "kinds")? {
            0 => {
                let each = cut(d.take(count), "kinds")?;
                each.iter().try_for_each(|&byte| kind(byte).map(|_| ()))?;
                Kinds::Each(place(&d, count).start)
            }
            all => Kinds::All(kind(all)?),
        };
        let seqnos = cut(Ints::read(&mut d, count, SEQNO_MAX), "seqnos")?;
        let seqnos_start = place(&d, seqnos.plane_bytes()).start;
        let value_max = VALUE_BYTES_MAX as u64;
        let value_lengths = cut(Ints::read(&mut d, count, value_max), "value lengths")?;
        let order = match (cut(d.u8(), "value order")?, value_lengths.constant()) {
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
        let values = cut(take_all(&mut d, &value_lengths, count), "values")?;
        let values = place(&d, values);
        limit("bytes after the values", d.rest().len(), 0)?;
        Ok(Stored {
            prefix,
            suffix_lengths,
            suffixes,
            kinds,
            seqnos,
            seqnos_start,
            value_lengths,
            order,
            values,
        })
    }
}

/// Takes the bytes of `count` suffixes or values with these lengths. Returns their number.
fn take_all(d: &mut Decoder<'_>, lengths: &Ints<'_>, count: usize) -> Option<usize> {
    let total = match lengths.constant() {
        Some(length) => length.checked_mul(count as u64)?,
        // At most 2^32 lengths below 2^31.
        None => (0..count).map(|i| lengths.get(i)).sum(),
    };
    let total = usize::try_from(total).ok()?;
    d.take(total).map(<[u8]>::len)
}

fn kind(byte: u8) -> Result<ValueKind, Malformed> {
    ValueKind::from_u8(byte).ok_or_else(|| Malformed::new("value kind", "1 to 4, 6 or 7", byte))
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
