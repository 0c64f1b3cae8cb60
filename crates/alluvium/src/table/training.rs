//! Training: the writer of a table holds back its first blocks as a [`Sample`], and chooses with
//! them the dictionary offered from an earlier table of the keyspace if it still fits, a new one,
//! or none.
//!
//! The constants come from the measurements of `docs/decisions/0048-dictionaries.md`.

use crate::Result;
use crate::table::codec::{Codec, Packer};
use crate::table::dictionary::DICTIONARY_BYTES_MAX;
use alluvium_mem::pages::Buffer;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the sample for each byte of the dictionary.
const SAMPLE_RATIO: usize = 128;
/// Shortest dictionary that zstd trains.
const DICTIONARY_BYTES_MIN: usize = 256;

/// Blocks on which a dictionary is judged. They are no part of its training.
const JUDGED_BLOCKS: usize = 16;
/// A dictionary has to save one part in this many of the bytes of compressed blocks.
const LEAST_SAVED: usize = 64;

/// Result of a training, offered to later tables of the keyspace.
#[derive(Debug)]
pub struct Trained {
    /// The dictionary; empty if none saved enough.
    bytes: Vec<u8>,
    /// Saved part of the compressed bytes of the blocks that it was judged on.
    saved: f64,
}

impl Trained {
    /// Returns the dictionary as stored; empty if none saved enough.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// First blocks of a table, held back uncompressed until its dictionary is chosen.
#[derive(Default)]
pub(super) struct Sample {
    /// Raw bytes of all blocks.
    raw: Buffer<u8>,
    /// End of each block in `raw`, and its number of entries.
    blocks: Vec<(usize, u32)>,
}

impl Sample {
    /// Appends a block with these raw bytes and this number of entries.
    pub(super) fn push(&mut self, raw: &[u8], entries: u32) {
        self.raw.extend_from_slice(raw);
        self.blocks.push((self.raw.len(), entries));
    }

    /// Returns the sum of the raw lengths in bytes.
    pub(super) fn raw_bytes(&self) -> usize {
        self.raw.len()
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.raw.capacity() + self.blocks.capacity() * size_of::<(usize, u32)>()
    }

    /// Returns the raw bytes and the number of entries of each block, in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (&[u8], u32)> + Clone {
        let starts = std::iter::once(0).chain(self.blocks.iter().map(|(end, _)| *end));
        let ends = self.blocks.iter();
        starts
            .zip(ends)
            .map(|(start, &(end, entries))| (&self.raw[start..end], entries))
    }

    /// Chooses the dictionary for blocks like these: the offered one while it saves three quarters
    /// of what it saved when trained, otherwise a new one. An offer without a dictionary stands.
    ///
    /// `path` is used only in errors. Cost: a training takes some 50 ms.
    pub(super) fn choose(
        &self,
        offered: Option<Arc<Trained>>,
        path: &Path,
    ) -> Result<Arc<Trained>> {
        // Every other block is for the training, a few of the others are for the judgement.
        let odd = self.blocks().skip(1).step_by(2).map(|(raw, _)| raw);
        let step = (self.blocks.len() / 2 / JUDGED_BLOCKS).max(1);
        let judged: Vec<&[u8]> = odd.step_by(step).collect();
        let plain = packed_bytes(&judged, Packer::new(Codec::Zstd), path)?;
        let saved = |dictionary: &[u8]| -> Result<f64> {
            let with = packed_bytes(&judged, Packer::with_dictionary(dictionary, path)?, path)?;
            Ok(1.0 - with as f64 / plain.max(1) as f64)
        };
        if let Some(offered) = offered
            && (offered.bytes.is_empty() || saved(&offered.bytes)? >= 0.75 * offered.saved)
        {
            return Ok(offered);
        }
        let compressible = plain < judged.iter().map(|raw| raw.len()).sum();
        if let Some(bytes) = compressible.then(|| self.train()).flatten() {
            let saved = saved(&bytes)?;
            if saved * LEAST_SAVED as f64 >= 1.0 {
                return Ok(Arc::new(Trained { bytes, saved }));
            }
        }
        let (bytes, saved) = (Vec::new(), 0.0);
        Ok(Arc::new(Trained { bytes, saved }))
    }

    /// Returns a dictionary; `None` if the blocks are too few or too different for one.
    fn train(&self) -> Option<Vec<u8>> {
        let even = self.blocks().step_by(2).map(|(raw, _)| raw);
        let lengths: Vec<usize> = even.clone().map(<[u8]>::len).collect();
        let raw: Vec<u8> = even.flatten().copied().collect();
        let bytes =
            (self.raw.len() / SAMPLE_RATIO).clamp(DICTIONARY_BYTES_MIN, DICTIONARY_BYTES_MAX);
        zstd::dict::from_continuous(&raw, &lengths, bytes).ok()
    }
}

/// Returns the sum of the stored lengths of these blocks.
fn packed_bytes(blocks: &[&[u8]], mut packer: Packer, path: &Path) -> Result<usize> {
    let mut sum = 0;
    for raw in blocks {
        let (_, stored) = packer.pack(raw, path)?;
        sum += stored.len();
    }
    Ok(sum)
}
