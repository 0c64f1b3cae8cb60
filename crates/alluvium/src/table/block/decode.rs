//! Decoder from a block's raw bytes to the decoded layout.
//!
//! The raw length bounds the memory: key and value bytes are copied from the block, each entry adds
//! at most 23 bytes, and the entry count is at most the raw length. With the unused part of its
//! buffers a decoded block takes at most 32 times its raw length plus a constant.

use crate::base::coding::Decoder;
use crate::base::{KEY_BYTES_MAX, SEQNO_MAX, VALUE_BYTES_MAX, ValueKind};
use crate::table::block::decoded::{Kinds, Rows, Shape, Suffixes};
use crate::table::block::planes::transpose;
use crate::table::block::{DecodedBlock, Ints, ValueOrder, head};
use crate::table::buffers::{BYTES, WORDS};
use crate::table::malformed::Malformed;
use crate::table::section::{Layout, Section};

/// Columns of a block as they are stored, all checked to lie inside the block.
struct Columns<'a> {
    count: usize,
    prefix: &'a [u8],
    suffix_lengths: Ints<'a>,
    suffixes: &'a [u8],
    kinds: Kinds,
    seqnos: Ints<'a>,
    value_lengths: Ints<'a>,
    order: ValueOrder,
    values: &'a [u8],
}

impl DecodedBlock {
    /// Decodes the block in `section` into this one and reuses its memory. After an error this
    /// block is empty.
    pub(in crate::table) fn decode(&mut self, section: &Section<'_>) -> Result<(), Malformed> {
        // `data` keeps its bytes: the code below overwrites all of it, and zeroing it first would
        // be wasted work.
        self.heads.clear();
        self.seqnos.clear();
        match section.layout {
            Layout::Columns => {
                let columns = Columns::parse(section)?;
                self.fill(columns);
                Ok(())
            }
            Layout::OneRow => self.decode_one_row(section),
            Layout::Value
            | Layout::Fences
            | Layout::Filter
            | Layout::Properties
            | Layout::RangeDeletes => Err(Malformed::new(
                "section layout",
                "a block",
                section.layout as u8,
            )),
        }
    }

    fn decode_one_row(&mut self, section: &Section<'_>) -> Result<(), Malformed> {
        if section.entries != 1 {
            return Err(Malformed::new("entries of one row", 1, section.entries));
        }
        let mut d = Decoder::new(section.raw);
        let kind = kind(cut(d.u8(), "kind")?)?;
        let seqno = cut(d.varint(), "seqno")?;
        let key = cut(d.bytes(), "key")?;
        limit("seqno", seqno, SEQNO_MAX)?;
        limit("key length", key.len(), KEY_BYTES_MAX)?;
        limit("value length", d.rest().len(), VALUE_BYTES_MAX)?;
        BYTES.fit(&mut self.data, key.len() + d.rest().len());
        self.data.clear();
        self.data.extend_from_slice(key);
        self.data.extend_from_slice(d.rest());
        self.shape = Shape {
            prefix_bytes: key.len(),
            rows: Rows::Stride(d.rest().len()),
            suffixes: Suffixes::Width(0),
        };
        self.kinds = Kinds::All(kind);
        make_room(&mut self.seqnos, usize::from(seqno != 0));
        self.seqnos.extend((seqno != 0).then_some(seqno));
        make_room(&mut self.heads, 1);
        self.heads.push(0);
        Ok(())
    }

    fn fill(&mut self, columns: Columns<'_>) {
        let count = columns.count;
        self.shape = columns.shape();
        let bytes = columns.prefix.len() + columns.suffixes.len() + columns.values.len();
        BYTES.fit(&mut self.data, bytes);
        self.data.resize(bytes, 0);
        self.data[..columns.prefix.len()].copy_from_slice(columns.prefix);
        columns.place_suffixes(&self.shape, &mut self.data);
        columns.place_values(&self.shape, &mut self.data);
        let written = columns.seqnos.constant() != Some(0);
        make_room(&mut self.seqnos, if written { count } else { 0 });
        if written {
            let seqnos = (0..count).map(|i| columns.seqnos.get(i));
            self.seqnos.extend(seqnos);
        }
        let (shape, data) = (&self.shape, &self.data);
        let suffix = |slot| &data[shape.start(slot)..][..shape.suffix_bytes(slot)];
        make_room(&mut self.heads, count);
        self.heads.extend((0..count).map(|slot| head(suffix(slot))));
        self.kinds = columns.kinds;
    }
}

/// Empties `words` and makes room for `len` of them.
fn make_room(words: &mut Vec<u64>, len: usize) {
    WORDS.fit(words, len);
    words.clear();
}

impl<'a> Columns<'a> {
    fn parse(section: &Section<'a>) -> Result<Columns<'a>, Malformed> {
        let count = section.entries as usize;
        // Entries differ in key or seqno, so in a block of several entries one of these columns has
        // at least one byte for each entry.
        if count == 0 || count > section.raw.len() {
            let expected = format!("1 to {}", section.raw.len());
            return Err(Malformed::new("block entries", expected, count));
        }
        let mut d = Decoder::new(section.raw);
        let prefix = cut(d.bytes(), "key prefix")?;
        let suffix_max = KEY_BYTES_MAX.saturating_sub(prefix.len()) as u64;
        limit("key prefix length", prefix.len(), KEY_BYTES_MAX)?;
        let suffix_lengths = cut(Ints::read(&mut d, count, suffix_max), "suffix lengths")?;
        let suffixes = cut(take_all(&mut d, &suffix_lengths, count), "key suffixes")?;
        let kinds = match cut(d.u8(), "kinds")? {
            0 => {
                let each = cut(d.take(count), "kinds")?.iter().map(|&byte| kind(byte));
                Kinds::Each(each.collect::<Result<_, _>>()?)
            }
            all => Kinds::All(kind(all)?),
        };
        let seqnos = cut(Ints::read(&mut d, count, SEQNO_MAX), "seqnos")?;
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
        limit("bytes after the values", d.rest().len(), 0)?;
        Ok(Columns {
            count,
            prefix,
            suffix_lengths,
            suffixes,
            kinds,
            seqnos,
            value_lengths,
            order,
            values,
        })
    }

    fn shape(&self) -> Shape {
        let suffix_width = self.suffix_lengths.constant();
        let suffixes = match suffix_width {
            Some(width) => Suffixes::Width(width as usize),
            None => {
                let lengths = (0..self.count).map(|i| self.suffix_lengths.get(i) as u16);
                Suffixes::Lengths(lengths.collect())
            }
        };
        let rows = match (suffix_width, self.value_lengths.constant()) {
            (Some(suffix), Some(value)) => Rows::Stride((suffix + value) as usize),
            _ => {
                let mut offsets = Vec::with_capacity(self.count + 1);
                let mut at = self.prefix.len() as u64;
                offsets.push(at as u32);
                for i in 0..self.count {
                    at += self.suffix_lengths.get(i) + self.value_lengths.get(i);
                    offsets.push(at as u32);
                }
                Rows::Offsets(offsets)
            }
        };
        Shape {
            prefix_bytes: self.prefix.len(),
            rows,
            suffixes,
        }
    }

    fn place_suffixes(&self, shape: &Shape, data: &mut [u8]) {
        if let Suffixes::Width(width) = shape.suffixes {
            let from = |plane| plane * self.count;
            let planes = (width, self.count);
            transpose(self.suffixes, from, planes, data, |slot| shape.start(slot));
            return;
        }
        let mut rest = self.suffixes;
        for slot in 0..self.count {
            let (suffix, after) = rest.split_at(shape.suffix_bytes(slot));
            data[shape.start(slot)..][..suffix.len()].copy_from_slice(suffix);
            rest = after;
        }
    }

    fn place_values(&self, shape: &Shape, data: &mut [u8]) {
        let to = |slot| shape.start(slot) + shape.suffix_bytes(slot);
        if let (ValueOrder::Planes, Some(width)) = (self.order, self.value_lengths.constant()) {
            let from = |plane| plane * self.count;
            transpose(self.values, from, (width as usize, self.count), data, to);
            return;
        }
        let mut rest = self.values;
        for slot in 0..self.count {
            let (value, after) = rest.split_at(shape.start(slot + 1) - to(slot));
            data[to(slot)..][..value.len()].copy_from_slice(value);
            rest = after;
        }
    }
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
