//! Table compression: the codecs of the profile, or one codec for all levels from the setting
//! `rocksdb.compression`, so that it can be swept.

use std::str::FromStr;

use rocksdb::{DBCompressionType, Options};
use rumbench_core::engine::{EngineError, Result};

use crate::settings::Settings;

/// Base configuration selected by the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    Tuned,
    Snappy,
    Zlib,
    Zstd,
    Default,
    MyRocks,
}

/// Compression of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    /// Codecs of the profile, level by level.
    Of(Profile),
    /// One codec for all levels: its name in the setting, and its type.
    All(&'static str, DBCompressionType),
}

/// Codec for all levels.
struct Codec(&'static str, DBCompressionType);

impl FromStr for Codec {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Codec, &'static str> {
        match text {
            "none" => Ok(Codec("none", DBCompressionType::None)),
            "lz4" => Ok(Codec("lz4", DBCompressionType::Lz4)),
            "snappy" => Ok(Codec("snappy", DBCompressionType::Snappy)),
            "zlib" => Ok(Codec("zlib", DBCompressionType::Zlib)),
            "zstd" => Ok(Codec("zstd", DBCompressionType::Zstd)),
            _ => Err("must be none, lz4, snappy, zlib or zstd, which is then used in all levels"),
        }
    }
}

impl Compression {
    pub(super) fn take(settings: &mut Settings<'_>, profile: Profile) -> Result<Compression> {
        match settings.take_parsed::<Codec>("compression")? {
            None => Ok(Compression::Of(profile)),
            Some(_) if profile == Profile::Default => Err(EngineError::Unsupported(
                "rocksdb:default compresses as the library does: set rocksdb.compression with another variant".to_string(),
            )),
            Some(Codec(name, of)) => Ok(Compression::All(name, of)),
        }
    }

    pub(super) fn apply(self, options: &mut Options) {
        use DBCompressionType::{Lz4, None, Snappy, Zlib, Zstd};
        let (upper, last) = match self {
            Compression::All(_, of) => (of, of),
            Compression::Of(Profile::Snappy) => (Snappy, Snappy),
            Compression::Of(Profile::Zlib) => (Lz4, Zlib),
            Compression::Of(Profile::Zstd) => (Zstd, Zstd),
            Compression::Of(_) => (Lz4, Zstd),
        };
        options.set_compression_type(upper);
        options.set_bottommost_compression_type(last);
        if self == Compression::Of(Profile::MyRocks) {
            options.set_compression_per_level(&[None, None, Lz4, Lz4, Lz4, Lz4, Lz4]);
            options.set_bottommost_compression_type(Zstd);
        }
    }

    /// Returns a description for the result, and the reason.
    pub(super) fn describe(self) -> (String, &'static str) {
        const REASON: &str = "cheap where data is rewritten, small where most of it lies";
        let of_profile = match self {
            Compression::All(name, _) => return (format!("{name} in all levels"), "as set"),
            Compression::Of(Profile::Snappy) => "snappy",
            Compression::Of(Profile::Zlib) => "LZ4, zlib in the last level",
            Compression::Of(Profile::Zstd) => "zstd",
            Compression::Of(Profile::MyRocks) => {
                "none in levels 0 and 1, LZ4, zstd in the last level"
            }
            Compression::Of(_) => "LZ4, zstd in the last level",
        };
        (of_profile.to_string(), REASON)
    }
}
