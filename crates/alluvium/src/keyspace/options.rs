//! Options that a keyspace declares at its creation. Stored in the manifest; filters and codecs
//! never change results.

use crate::base::VALUE_BYTES_MAX;
use crate::base::coding::{Decoder, put_varint};
use crate::error::{Error, Result};
use crate::keyspace::expiry::Expiry;
use std::time::Duration;

/// Compression of stored blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// LZ4 in upper tables, zstd level 1 in the last level, with a trained dictionary in each table
    /// if that saves space.
    #[default]
    Adaptive,
    /// LZ4 in all tables.
    Lz4,
    /// No compression: for data that is already compressed.
    None,
}

/// Options of [`crate::Database::keyspace`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceOptions {
    /// Keep a Bloom filter of whole keys, so that point reads of absent keys touch no block.
    pub whole_key_filter: bool,
    /// Keep a Bloom filter of this many leading key bytes, so that scans within one such prefix
    /// skip tables without rows of it. Scans are exact with or without it. At most 255.
    pub prefix_filter_bytes: Option<usize>,
    /// Reads nearly always find their key: the last level then needs no whole-key filter.
    pub expect_hits: bool,
    /// Block compression.
    pub compression: Compression,
    /// Size in bytes at which a block is cut, before compression: 1 KiB to 64 KiB.
    pub block_bytes: usize,
    /// Expiry of rows.
    pub expiry: Expiry,
    /// Values of at least this many bytes are stored separately from their keys, so that
    /// compactions need not rewrite them: 256 bytes to 1 GiB; `None`: no value is separated.
    /// Reading a separated value costs a file read that bypasses the block cache.
    pub value_separation_bytes: Option<usize>,
}

impl Default for KeyspaceOptions {
    fn default() -> KeyspaceOptions {
        KeyspaceOptions {
            whole_key_filter: true,
            prefix_filter_bytes: None,
            expect_hits: false,
            compression: Compression::Adaptive,
            block_bytes: 4 << 10,
            expiry: Expiry::Never,
            value_separation_bytes: Some(8 << 10),
        }
    }
}

// Tags of the stored form, never to be changed. Fields with an unknown tag above 127 are skipped,
// below refused.
const TAG_FLAGS: u64 = 1;
const TAG_PREFIX: u64 = 2;
const TAG_COMPRESSION: u64 = 3;
const TAG_BLOCK_BYTES: u64 = 4;
const TAG_EXPIRY: u64 = 5;
const TAG_SEPARATE: u64 = 6;
const FLAG_WHOLE_KEY: u64 = 1;
const FLAG_READS_HIT: u64 = 2;

impl KeyspaceOptions {
    pub(crate) fn check(&self) -> Result<()> {
        if self
            .prefix_filter_bytes
            .is_some_and(|n| !(1..=255).contains(&n))
        {
            return Err(Error::InvalidArgument(
                "prefix_filter_bytes must be 1 to 255".into(),
            ));
        }
        if !(1 << 10..=64 << 10).contains(&self.block_bytes) {
            return Err(Error::InvalidArgument(
                "block_bytes must be 1 KiB to 64 KiB".into(),
            ));
        }
        if self
            .value_separation_bytes
            .is_some_and(|bytes| !(256..=VALUE_BYTES_MAX).contains(&bytes))
        {
            return Err(Error::InvalidArgument(
                "value_separation_bytes must be 256 bytes to 1 GiB".into(),
            ));
        }
        if matches!(self.expiry, Expiry::After(ttl) if ttl < Duration::from_millis(1)) {
            return Err(Error::InvalidArgument(
                "expiry must be at least a millisecond after the write".into(),
            ));
        }
        Ok(())
    }

    /// Encodes the options as pairs of varints, tag and value; see `docs/format/manifest.md`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        let flags = if self.whole_key_filter {
            FLAG_WHOLE_KEY
        } else {
            0
        } | if self.expect_hits { FLAG_READS_HIT } else { 0 };
        let compression = match self.compression {
            Compression::Adaptive => 0,
            Compression::Lz4 => 1,
            Compression::None => 2,
        };
        let mut field = |tag: u64, value: u64| {
            put_varint(&mut out, tag);
            put_varint(&mut out, value);
        };
        field(TAG_FLAGS, flags);
        if let Some(bytes) = self.prefix_filter_bytes {
            field(TAG_PREFIX, bytes as u64);
        }
        field(TAG_COMPRESSION, compression);
        field(TAG_BLOCK_BYTES, self.block_bytes as u64);
        if let Some(bytes) = self.value_separation_bytes {
            field(TAG_SEPARATE, bytes as u64);
        }
        match self.expiry {
            Expiry::Never => {}
            Expiry::PerRow => field(TAG_EXPIRY, 0),
            Expiry::After(ttl) => field(
                TAG_EXPIRY,
                u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            ),
        }
        out
    }

    /// Decodes the options. `None`: malformed, or a field with a tag that this build must know and
    /// does not.
    pub(crate) fn decode(bytes: &[u8]) -> Option<KeyspaceOptions> {
        let mut options = KeyspaceOptions {
            whole_key_filter: false,
            value_separation_bytes: None,
            ..KeyspaceOptions::default()
        };
        let mut d = Decoder::new(bytes);
        while !d.is_empty() {
            let (tag, value) = (d.varint()?, d.varint()?);
            match tag {
                TAG_FLAGS => {
                    options.whole_key_filter = value & FLAG_WHOLE_KEY != 0;
                    options.expect_hits = value & FLAG_READS_HIT != 0;
                }
                TAG_PREFIX => options.prefix_filter_bytes = Some(usize::try_from(value).ok()?),
                TAG_COMPRESSION => {
                    options.compression = match value {
                        0 => Compression::Adaptive,
                        1 => Compression::Lz4,
                        2 => Compression::None,
                        _ => return None,
                    }
                }
                TAG_BLOCK_BYTES => options.block_bytes = usize::try_from(value).ok()?,
                TAG_SEPARATE => options.value_separation_bytes = Some(usize::try_from(value).ok()?),
                TAG_EXPIRY if value == 0 => options.expiry = Expiry::PerRow,
                TAG_EXPIRY => options.expiry = Expiry::After(Duration::from_millis(value)),
                tag if tag > 127 => {}
                _ => return None,
            }
        }
        options.check().ok()?;
        Some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    #[test]
    fn options_round_trip_and_unknown_must_know_tags_are_refused() {
        let options = KeyspaceOptions {
            whole_key_filter: false,
            prefix_filter_bytes: Some(16),
            expect_hits: true,
            compression: Compression::Lz4,
            block_bytes: 16 << 10,
            expiry: Expiry::After(Duration::from_millis(1500)),
            value_separation_bytes: Some(1 << 20),
        };
        let mut bytes = options.encode();
        assert_eq!(KeyspaceOptions::decode(&bytes), Some(options.clone()));
        let mut newer = bytes.clone();
        put_varint(&mut newer, 200);
        put_varint(&mut newer, 1);
        assert_eq!(KeyspaceOptions::decode(&newer), Some(options));
        put_varint(&mut bytes, 100);
        put_varint(&mut bytes, 1);
        assert_eq!(KeyspaceOptions::decode(&bytes), None);
    }

    #[test]
    fn fuzz_options_are_refused_or_round_trip() {
        let whole = KeyspaceOptions {
            prefix_filter_bytes: Some(16),
            expiry: Expiry::After(Duration::from_secs(1)),
            value_separation_bytes: Some(1 << 20),
            ..KeyspaceOptions::default()
        };
        let samples = [whole.encode(), KeyspaceOptions::default().encode()];
        fuzz_decoder("options of keyspaces", &samples, 8, |bytes| {
            if let Some(read) = KeyspaceOptions::decode(bytes) {
                assert_eq!(KeyspaceOptions::decode(&read.encode()), Some(read));
            }
        });
    }
}
