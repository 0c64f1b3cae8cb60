//! General-purpose compressors of blocks and sections, with reused contexts and buffers.
//!
//! Creating a zstd context takes as long as decompressing several blocks, so readers borrow a
//! `Scratch` from a small process-wide pool.

use crate::table::dictionary::Dictionary;
use crate::table::malformed::Malformed;
use crate::table::pool::Pool;
use crate::{Error, Result};
use alluvium_mem::pages::Buffer;
use std::path::Path;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, DCtx, compress_bound, get_error_name};

/// Codec of a table's blocks. The numbers are stored in section headers and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// No compression.
    None = 0,
    /// LZ4 block format: the fastest to read.
    Lz4 = 1,
    /// zstd at level 1: smaller, slower to read.
    Zstd = 2,
    /// zstd at level 2 with a dictionary of the table, which takes fewer bytes and less time to
    /// read if blocks are small. A writer falls back to [`Codec::Zstd`] for a small table and where
    /// a dictionary saves too little.
    ZstdDictionary = 3,
}

impl Codec {
    /// Returns the codec with this stored number, if there is one.
    pub(super) fn from_u8(byte: u8) -> Option<Codec> {
        match byte {
            0 => Some(Codec::None),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            3 => Some(Codec::ZstdDictionary),
            _ => None,
        }
    }

    /// Returns the codec for content outside of a table's blocks.
    pub(crate) fn without_dictionary(self) -> Codec {
        match self {
            Codec::ZstdDictionary => Codec::Zstd,
            own => own,
        }
    }

    /// Refuses a raw length beyond the codec's largest ratio, before any allocation.
    pub(super) fn check_reach(self, stored: &[u8], raw_length: usize) -> Result<(), Malformed> {
        let ratio_max = match self {
            Codec::None => 1,
            Codec::Lz4 => LZ4_RATIO_MAX,
            Codec::Zstd | Codec::ZstdDictionary => ZSTD_RATIO_MAX,
        };
        if raw_length > stored.len().saturating_mul(ratio_max) {
            let most = format!("at most {ratio_max} bytes for each of {}", stored.len());
            return Err(Malformed::new("raw length", most, raw_length));
        }
        Ok(())
    }
}

const ZSTD_LEVEL: i32 = 1;
/// Level with a dictionary. It finds matches of 4 bytes, level 1 those of 5: 1 to 10 % fewer bytes
/// in the same time. Without a dictionary it takes longer (`docs/decisions/0049-small-blocks.md`).
const ZSTD_DICTIONARY_LEVEL: i32 = 2;

/// Largest ratio of raw to stored length in an LZ4 block; a larger claim is damage.
pub(crate) const LZ4_RATIO_MAX: usize = 255;
/// Largest ratio in zstd: 128 KiB from a block of one repeated byte, which takes 4 bytes.
pub(super) const ZSTD_RATIO_MAX: usize = (128 << 10) / 4;

/// Most bytes of a compressing context of that level: window, hash table and sequences.
const ZSTD_CONTEXT_BYTES: usize = 1 << 20;

/// Compressor of a writer; it keeps its context and its output buffer between blocks.
pub(super) struct Packer {
    codec: Codec,
    zstd: Option<Compressor<'static>>,
    packed: Buffer<u8>,
}

impl Packer {
    /// Creates a compressor for `codec`; without a dictionary, [`Codec::ZstdDictionary`] means
    /// [`Codec::Zstd`].
    pub(super) fn new(codec: Codec) -> Packer {
        Packer {
            codec: codec.without_dictionary(),
            zstd: None,
            packed: Buffer::default(),
        }
    }

    /// Creates a compressor for [`Codec::ZstdDictionary`] with a trained dictionary.
    ///
    /// `path` is used only in errors.
    pub(super) fn with_dictionary(dictionary: &[u8], path: &Path) -> Result<Packer> {
        let create = || {
            let mut context = Compressor::with_dictionary(ZSTD_DICTIONARY_LEVEL, dictionary)?;
            // The section's header has the length, and the footer names the dictionary.
            context.set_parameter(CParameter::DictIdFlag(false))?;
            context.set_parameter(CParameter::ContentSizeFlag(false))?;
            Ok(context)
        };
        let context = create().map_err(|e: std::io::Error| packing_failed(path, e.to_string()))?;
        Ok(Packer {
            codec: Codec::ZstdDictionary,
            zstd: Some(context),
            packed: Buffer::default(),
        })
    }

    /// Returns the codec to store `raw` with and the bytes to store: compressed only if that saves
    /// at least 1/16.
    ///
    /// `path` is used only in errors.
    pub(super) fn pack<'a>(&'a mut self, raw: &'a [u8], path: &Path) -> Result<(Codec, &'a [u8])> {
        let length = match self.codec {
            Codec::None => return Ok((Codec::None, raw)),
            Codec::Lz4 => {
                let bound = lz4_flex::block::get_maximum_output_size(raw.len());
                self.grow(bound);
                let packed = lz4_flex::block::compress_into(raw, &mut self.packed);
                packed.map_err(|e| packing_failed(path, e.to_string()))?
            }
            Codec::Zstd | Codec::ZstdDictionary => {
                self.grow(compress_bound(raw.len()));
                let context = match &mut self.zstd {
                    Some(context) => context,
                    none => none.insert(
                        Compressor::new(ZSTD_LEVEL)
                            .map_err(|e| packing_failed(path, e.to_string()))?,
                    ),
                };
                let packed = context.compress_to_buffer(raw, &mut self.packed[..]);
                packed.map_err(|e| packing_failed(path, e.to_string()))?
            }
        };
        if length + raw.len() / 16 <= raw.len() && length < raw.len() {
            Ok((self.codec, &self.packed[..length]))
        } else {
            Ok((Codec::None, raw))
        }
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let context = match self.zstd {
            Some(_) => ZSTD_CONTEXT_BYTES,
            None => 0,
        };
        context + self.packed.capacity()
    }

    fn grow(&mut self, bound: usize) {
        if self.packed.len() < bound {
            self.packed.resize(bound, 0);
        }
    }
}

fn packing_failed(path: &Path, cause: String) -> Error {
    Error::io("compress a block of", path, std::io::Error::other(cause))
}

/// Decompressor of a reader; it keeps its context and its buffer between blocks.
#[derive(Default)]
pub(super) struct Unpacker {
    /// Raw bytes of the last section.
    raw: Vec<u8>,
    zstd: Option<DCtx<'static>>,
}

impl Unpacker {
    /// Decompresses `stored` to exactly `raw_length` bytes, with the dictionary of the file, if it
    /// has one.
    ///
    /// The caller has checked `raw_length` against the limit of its structure and with
    /// [`Codec::check_reach`], and the stored bytes against their checksum.
    pub(super) fn unpack<'a>(
        &'a mut self,
        codec: Codec,
        dictionary: Option<&Dictionary>,
        stored: &'a [u8],
        raw_length: usize,
    ) -> Result<&'a [u8], Malformed> {
        if codec == Codec::None {
            check_length(stored.len(), raw_length)?;
            return Ok(stored);
        }
        let (zstd, raw) = (&mut self.zstd, &mut self.raw);
        unpack(zstd, codec, dictionary, stored, raw_length, raw)?;
        Ok(&self.raw)
    }

    /// Frees the buffer if it is that of a huge row.
    pub(super) fn free_huge_buffer(&mut self) {
        free_if_huge(&mut self.raw);
    }

    /// Works like [`Unpacker::unpack`], but replaces the content of the caller's `raw`. After an
    /// error that content is unspecified.
    pub(super) fn unpack_into(
        &mut self,
        codec: Codec,
        dictionary: Option<&Dictionary>,
        stored: &[u8],
        raw_length: usize,
        raw: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let zstd = &mut self.zstd;
        unpack(zstd, codec, dictionary, stored, raw_length, raw)
    }
}

/// Replaces the content of `raw` with the decompressed bytes.
fn unpack(
    zstd: &mut Option<DCtx<'static>>,
    codec: Codec,
    dictionary: Option<&Dictionary>,
    stored: &[u8],
    raw_length: usize,
    raw: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let length = match codec {
        Codec::None => {
            raw.clear();
            raw.extend_from_slice(stored);
            stored.len()
        }
        Codec::Lz4 => {
            // The old content need not be zeroed: LZ4 overwrites all of it or fails.
            raw.resize(raw_length, 0);
            lz4_flex::block::decompress_into(stored, raw)
                .map_err(|e| Malformed::new("compressed bytes", "LZ4", e))?
        }
        Codec::Zstd | Codec::ZstdDictionary => {
            let context = match zstd {
                Some(context) => context,
                none => none.insert(
                    DCtx::try_create()
                        .ok_or_else(|| Malformed::new("decompressor", "a context", "no memory"))?,
                ),
            };
            raw.clear();
            raw.reserve_exact(raw_length);
            let unpacked = match (codec, dictionary) {
                (Codec::ZstdDictionary, Some(dictionary)) => {
                    context.decompress_using_ddict(raw, stored, dictionary.prepared())
                }
                (Codec::ZstdDictionary, None) => {
                    return Err(Malformed::new("dictionary of a block", "one", "none"));
                }
                _ => context.decompress(raw, stored),
            };
            let failed = |code| Malformed::new("compressed bytes", "zstd", get_error_name(code));
            unpacked.map_err(failed)?
        }
    };
    check_length(length, raw_length)
}

fn check_length(length: usize, raw_length: usize) -> Result<(), Malformed> {
    if length != raw_length {
        return Err(Malformed::new("raw length", raw_length, length));
    }
    Ok(())
}

/// Buffers of a reader, borrowed from a process-wide pool for one block.
#[derive(Default)]
pub(super) struct Scratch {
    /// Bytes of the block as stored in the file.
    pub(super) stored: Vec<u8>,
    pub(super) unpacker: Unpacker,
}

/// Largest buffer that is kept. It holds a value of half a MiB and its overhead; a buffer for a
/// larger row is freed.
const KEPT_BYTES_MAX: usize = (512 << 10) + (16 << 10);

fn free_if_huge(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        *buffer = Vec::new();
    }
}

static POOL: Pool<Scratch> = Pool::new();

impl Scratch {
    /// Runs `work` with a scratch from the pool.
    pub(super) fn with<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = POOL.take().unwrap_or_default();
        let result = work(&mut scratch);
        // The context stays, because creating one takes as long as decompressing several blocks.
        free_if_huge(&mut scratch.stored);
        scratch.unpacker.free_huge_buffer();
        POOL.keep(scratch);
        result
    }
}
