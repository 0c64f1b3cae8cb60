//! Training: the writer of a table holds back its first blocks as a [`Sample`], and chooses with
//! them the dictionary offered from an earlier table of the keyspace if it still fits, a new one,
//! or none.
//!
//! The constants come from the measurements of `docs/decisions/0048-dictionaries.md`.

use crate::Result;
use crate::sync::atomic::{AtomicU32, Ordering};
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
/// A new dictionary has to save one part in this many of the bytes of compressed blocks, more than
/// an earlier one does.
const LEAST_SAVED: usize = 64;

/// Number of tables after which a new dictionary is tried against the offered one, so that it
/// follows slow changes of the rows.
const TRIAL_TABLES: u32 = 64;

/// Result of a training, offered to later tables of the keyspace.
#[derive(Debug)]
pub struct Trained {
    /// The dictionary; empty if none saved enough.
    bytes: Vec<u8>,
    /// Saved part of the compressed bytes of the blocks that it was judged on.
    saved: f64,
    /// Number of trainings before it, each to replace the result of the one before.
    generation: u32,
    /// Number of tables that it was offered to. Relaxed: it only spaces the trials.
    offers: AtomicU32,
}

impl Trained {
    fn new(bytes: Vec<u8>, saved: f64, generation: u32) -> Trained {
        Trained {
            bytes,
            saved,
            generation,
            offers: AtomicU32::new(0),
        }
    }

    /// Returns the dictionary as stored; empty if none saved enough.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the dictionary of a table, to be offered if none is in memory. The first offer is a
    /// trial, because what it saved when trained is not known.
    pub(super) fn of_table(bytes: &[u8]) -> Trained {
        Trained {
            offers: AtomicU32::new(TRIAL_TABLES - 1),
            ..Trained::new(bytes.to_vec(), 0.0, 0)
        }
    }

    /// Returns true if this was trained to replace `other` or a later one. Of two that were trained
    /// at the same time neither replaces the other.
    pub(crate) fn replaces(&self, other: &Trained) -> bool {
        self.generation > other.generation
    }

    /// Returns an empty dictionary of a generation, for tests.
    #[cfg(test)]
    pub(crate) fn of_generation(generation: u32) -> Trained {
        Trained::new(Vec::new(), 0.0, generation)
    }

    fn is_due_for_trial(&self) -> bool {
        let offers = self.offers.fetch_add(1, Ordering::Relaxed) + 1;
        offers.is_multiple_of(TRIAL_TABLES)
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
    /// of what it saved when trained and no trial finds a better one, otherwise a new one. An offer
    /// may be to have none.
    ///
    /// Readers decompress more slowly if they change between dictionaries, so few are better.
    ///
    /// `path` is used only in errors. Cost: a training takes some 50 ms.
    pub(super) fn choose(
        &self,
        offered: Option<Arc<Trained>>,
        path: &Path,
    ) -> Result<Arc<Trained>> {
        let judged = Judged::of(self, path)?;
        // The dictionary to use if training finds no better one, and the part that it saves.
        let (mut generation, mut standing) = (0, (Vec::new(), 0.0));
        if let Some(offered) = offered {
            let saves = judged.saved_by(&offered.bytes)?;
            let fits = saves >= 0.75 * offered.saved;
            if fits && !offered.is_due_for_trial() {
                return Ok(offered);
            }
            generation = offered.generation.saturating_add(1);
            if fits {
                standing = (offered.bytes.clone(), saves);
            }
        }
        let trained = judged.are_compressible().then(|| self.train()).flatten();
        let trained = trained.unwrap_or_default();
        let saved = judged.saved_by(&trained)?;
        let is_better = saved >= standing.1 + 1.0 / LEAST_SAVED as f64;
        let (bytes, saved) = if is_better {
            (trained, saved)
        } else {
            standing
        };
        Ok(Arc::new(Trained::new(bytes, saved, generation)))
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

/// Blocks of a sample on which dictionaries are judged.
struct Judged<'a> {
    blocks: Vec<&'a [u8]>,
    /// Bytes of the blocks as stored without a dictionary.
    plain: usize,
    path: &'a Path,
}

impl<'a> Judged<'a> {
    fn of(sample: &'a Sample, path: &'a Path) -> Result<Judged<'a>> {
        // Every other block is for the training, a few of the others are for the judgement.
        let odd = sample.blocks().skip(1).step_by(2).map(|(raw, _)| raw);
        let step = (sample.blocks.len() / 2 / JUDGED_BLOCKS).max(1);
        let mut judged = Judged {
            blocks: odd.step_by(step).collect(),
            plain: 0,
            path,
        };
        judged.plain = judged.packed_by(Packer::new(Codec::Zstd))?;
        Ok(judged)
    }

    fn are_compressible(&self) -> bool {
        self.plain < self.blocks.iter().map(|raw| raw.len()).sum()
    }

    /// Returns the part of the stored bytes that a dictionary saves; 0 for an empty one.
    fn saved_by(&self, dictionary: &[u8]) -> Result<f64> {
        if dictionary.is_empty() {
            return Ok(0.0);
        }
        let packer = Packer::with_dictionary(dictionary, self.path)?;
        Ok(1.0 - self.packed_by(packer)? as f64 / self.plain.max(1) as f64)
    }

    /// Returns the sum of the stored lengths of the blocks.
    fn packed_by(&self, mut packer: Packer) -> Result<usize> {
        let mut sum = 0;
        for raw in &self.blocks {
            let (_, stored) = packer.pack(raw, self.path)?;
            sum += stored.len();
        }
        Ok(sum)
    }
}
