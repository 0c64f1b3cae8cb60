//! WiredTiger's configuration: the library's defaults and the tuned one, as configuration strings.
//!
//! Every tuned value is recorded with its reason in the [`Configuration`] of the result.

use rumbench_core::engine::{Durability, DurabilityFacts, EngineError, OpenConfig, Result};
use rumbench_core::kv::MapDef;

use crate::facts::{ALL_ACKNOWLEDGED, Configuration, PREFIX_ONE_SECOND, survives};
use crate::settings::Settings;

/// Sessions other than those of the clients: the adapter's own, and the library's background
/// threads.
const OTHER_SESSIONS: usize = 100;
/// The library's default for the percentage of the cache that may be dirty before clients write
/// pages.
const DIRTY_PERCENT: u32 = 20;
/// Smallest cache that the library accepts.
const CACHE_BYTES_MIN: u64 = 1 << 20;

/// Settings for opening WiredTiger.
pub(super) struct Tuning {
    /// `true` for the tuned values, `false` for the library's defaults.
    tuned: bool,
    cache_bytes: u64,
    clients: usize,
    durability: Durability,
    compressor: Compressor,
    zstd_level: u32,
    leaf_page_bytes: u32,
    prefix_compression: bool,
    eviction_threads: u32,
    eviction_dirty_percent: u32,
    checkpoint_seconds: u32,
    direct_io: bool,
}

/// Compression of pages. The library of `cargo xtask wiredtiger` has no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compressor {
    None,
    Snappy,
    Zlib,
    Zstd,
}

impl std::str::FromStr for Compressor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Compressor, &'static str> {
        match text {
            "none" => Ok(Compressor::None),
            "snappy" => Ok(Compressor::Snappy),
            "zlib" => Ok(Compressor::Zlib),
            "zstd" => Ok(Compressor::Zstd),
            _ => Err("must be none, snappy, zlib or zstd"),
        }
    }
}

impl Tuning {
    /// Reads variant, cache size and settings.
    pub(super) fn of(config: &OpenConfig) -> Result<Tuning> {
        let variant = config.variant.as_deref();
        let compressor = match variant {
            None => Compressor::Zstd,
            Some("snappy") => Compressor::Snappy,
            Some("zlib") => Compressor::Zlib,
            Some("default") => Compressor::None,
            Some(other) => {
                return Err(EngineError::Unsupported(format!(
                    "wiredtiger has no variant `{other}`; it has: default, snappy, zlib"
                )));
            }
        };
        let tuned = variant != Some("default");
        if config.cache_bytes < CACHE_BYTES_MIN {
            return Err(EngineError::Unsupported(format!(
                "wiredtiger: cache_bytes={} is less than the {CACHE_BYTES_MIN} that its cache has at least",
                config.cache_bytes
            )));
        }
        let mut settings = Settings::of("wiredtiger", config);
        let tuning = Tuning {
            tuned,
            cache_bytes: config.cache_bytes,
            clients: config.clients,
            durability: config.durability,
            compressor: settings.take("compressor", compressor)?,
            zstd_level: settings.take_in("zstd_level", 3, 1..=22)?,
            leaf_page_bytes: settings.take_in("leaf_page_bytes", 32 << 10, 4 << 10..=1 << 20)?,
            prefix_compression: settings.take("prefix_compression", tuned)?,
            eviction_threads: settings.take_in(
                "eviction_threads",
                if tuned { 2 } else { 8 },
                1..=20,
            )?,
            eviction_dirty_percent: settings.take_in(
                "eviction_dirty_percent",
                if tuned { 60 } else { DIRTY_PERCENT },
                DIRTY_PERCENT..=80,
            )?,
            checkpoint_seconds: settings.take_in("checkpoint_seconds", 60, 1..=86_400)?,
            direct_io: settings.take("direct_io", false)?,
        };
        settings.finish()?;
        if !tuning.leaf_page_bytes.is_multiple_of(4096) {
            return Err(EngineError::Unsupported(format!(
                "wiredtiger.leaf_page_bytes={}: must be a multiple of 4096",
                tuning.leaf_page_bytes
            )));
        }
        Ok(tuning)
    }

    /// Returns the configuration string of the database.
    pub(super) fn database(&self) -> String {
        let mut parts = vec![
            "create".to_string(),
            format!("cache_size={}", self.cache_bytes),
            format!("session_max={}", self.clients + OTHER_SESSIONS),
            format!("checkpoint=(wait={})", self.checkpoint_seconds),
            format!(
                "eviction=(threads_min=1,threads_max={})",
                self.eviction_threads
            ),
            self.dirty(),
            "statistics=(fast)".to_string(),
            self.log().to_string(),
        ];
        if self.compressor == Compressor::Zstd {
            parts.push(format!(
                "builtin_extension_config=(zstd=(compression_level={}))",
                self.zstd_level
            ));
        }
        if self.direct_io {
            parts.push("direct_io=[data]".to_string());
        }
        parts.join(",")
    }

    /// Returns the share of the cache that may be dirty before the background threads write
    /// (`target`), and before clients must (`trigger`). The bounds of updates that are in no page
    /// yet default to half of these.
    fn dirty(&self) -> String {
        let trigger = self.eviction_dirty_percent;
        let target = trigger / 4;
        if trigger == DIRTY_PERCENT {
            return format!("eviction_dirty_target={target},eviction_dirty_trigger={trigger}");
        }
        format!(
            "eviction_dirty_target={target},eviction_dirty_trigger={trigger},\
             eviction_updates_target={target},eviction_updates_trigger={trigger}"
        )
    }

    /// Returns the log's configuration for the durability class. Method `none` waits until the
    /// kernel has the commit's record.
    fn log(&self) -> &'static str {
        match self.durability {
            Durability::Sync => "log=(enabled),transaction_sync=(enabled=true,method=fsync)",
            Durability::Buffered => "log=(enabled),transaction_sync=(enabled=true,method=none)",
            Durability::None => "log=(enabled=false)",
        }
    }

    /// Returns the configuration string of a map's table.
    pub(super) fn table(&self, map: &MapDef) -> String {
        let mut parts = vec![
            "key_format=u,value_format=u".to_string(),
            format!("leaf_page_max={}", self.leaf_page_bytes),
        ];
        match self.compressor {
            Compressor::None => {}
            Compressor::Snappy => parts.push("block_compressor=snappy".to_string()),
            Compressor::Zlib => parts.push("block_compressor=zlib".to_string()),
            Compressor::Zstd => parts.push("block_compressor=zstd".to_string()),
        }
        if self.prefix_compression && map.scan_prefix_bytes.is_some() {
            parts.push("prefix_compression=true".to_string());
        }
        parts.join(",")
    }

    /// Returns the settings for the result.
    pub(super) fn describe(&self) -> Configuration {
        let mut c = Configuration::default();
        c.given("cache_size", self.cache_bytes);
        c.given("transactions", "snapshot isolation, first writer wins");
        c.given("multi_get", "a loop of gets");
        c.given("log", self.log());
        c.given("direct_io", self.direct_io);
        c.given("leaf_page_max", self.leaf_page_bytes);
        c.tuned(
            "checkpoint_seconds",
            self.checkpoint_seconds,
            "as MongoDB; the library makes none by itself, and the log would never end",
        );
        c.tuned("statistics", "fast", "the counters need them; as MongoDB");
        self.describe_tuned(&mut c);
        c
    }

    fn describe_tuned(&self, c: &mut Configuration) {
        let compressor = match self.compressor {
            Compressor::None => "none".to_string(),
            Compressor::Snappy => "snappy".to_string(),
            Compressor::Zlib => "zlib, level 6".to_string(),
            Compressor::Zstd => format!("zstd, level {}", self.zstd_level),
        };
        let prefixes = if self.prefix_compression {
            "in maps that are scanned by prefix"
        } else {
            "none"
        };
        if !self.tuned {
            c.given("block_compressor", compressor);
            c.given("prefix_compression", prefixes);
            c.given("eviction_threads_max", self.eviction_threads);
            c.given("eviction_dirty_percent", self.eviction_dirty_percent);
            return;
        }
        c.tuned(
            "block_compressor",
            compressor,
            "the best usual compression, at the level of RocksDB's zstd; 6 is the library's",
        );
        c.tuned(
            "prefix_compression",
            prefixes,
            "neighbors share their first bytes; as MongoDB's indexes",
        );
        c.tuned(
            "eviction_threads_max",
            self.eviction_threads,
            "the machine has few cores",
        );
        c.tuned(
            "eviction_dirty_percent",
            self.eviction_dirty_percent,
            "from there on clients write pages themselves; with the library's 20 % updates of a cached database run at a tenth of the rate",
        );
    }

    /// Returns the commits that survive in this durability class.
    pub(super) fn durability_facts(&self) -> DurabilityFacts {
        match self.durability {
            Durability::Sync => survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
            Durability::Buffered => survives(ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND),
            Durability::None => {
                let checkpoint = "the state of the last checkpoint";
                survives(checkpoint, checkpoint)
            }
        }
    }
}
