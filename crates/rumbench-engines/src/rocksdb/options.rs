//! RocksDB's options: the library's defaults, the tuned configuration and its relatives, MyRocks' values.
//!
//! Every tuned value is recorded with its reason in the [`Configuration`] that ends up in the result.

use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, Cache, ColumnFamilyDescriptor, CompactionPri,
    DBCompactionStyle, DBCompressionType, Options, SliceTransform, WriteBufferManager,
};
use rumbench_core::engine::{EngineError, OpenConfig, Result};
use rumbench_core::kv::MapDef;

use crate::facts::Configuration;
use crate::settings::Settings;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The newest block-based table format of RocksDB 11.8. The C API has no name for "newest".
const FORMAT_VERSION: i32 = 7;

/// Flushed memtables are not kept. A transaction database keeps `max_write_buffer_number` of them otherwise, to check
/// conflicts since a transaction's snapshot; these transactions set none. 0 would mean that default.
const HISTORY_BYTES: i64 = 1;

/// Which configuration to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profile {
    Tuned,
    Universal,
    Zlib,
    Zstd,
    Default,
    MyRocks,
}

/// Everything that decides how RocksDB is opened.
pub(super) struct Tuning {
    profile: Profile,
    cache_bytes: u64,
    write_buffer_bytes: usize,
    write_buffers: i32,
    block_bytes: usize,
    background_jobs: i32,
    direct_io: bool,
    memtables_in_cache: bool,
}

impl Tuning {
    /// From variant, cache size and settings.
    pub(super) fn of(config: &OpenConfig) -> Result<Tuning> {
        let profile = profile(config.variant.as_deref())?;
        let cache_bytes = config.cache_bytes as usize;
        let mut settings = Settings::of("rocksdb", config);
        let (block_bytes, write_buffer_bytes) = match profile {
            Profile::MyRocks => (16 * KIB, 64 * MIB),
            _ => (8 * KIB, (cache_bytes / 16).clamp(4 * MIB, 64 * MIB)),
        };
        let tuning = Tuning {
            profile,
            cache_bytes: config.cache_bytes,
            write_buffer_bytes: settings.take_in(
                "write_buffer_bytes",
                write_buffer_bytes,
                64 * KIB..=4096 * MIB,
            )?,
            write_buffers: settings.take_in("write_buffers", 4, 2..=64)?,
            block_bytes: settings.take_in("block_bytes", block_bytes, KIB..=MIB)?,
            background_jobs: settings.take_in("background_jobs", 2, 1..=64)?,
            direct_io: settings.take("direct_io", false)?,
            memtables_in_cache: settings.take(
                "memtables_in_cache",
                !matches!(profile, Profile::Default | Profile::MyRocks),
            )?,
        };
        settings.finish()?;
        Ok(tuning)
    }

    /// A block cache for all maps.
    pub(super) fn new_cache(&self) -> Cache {
        // An estimated entry charge of 0 is the variant of the cache that sizes its table by itself.
        Cache::new_hyper_clock_cache(self.cache_bytes as usize, 0)
    }

    /// Whether scans may use the prefix filters that this configuration builds.
    pub(super) fn has_prefix_filters(&self) -> bool {
        self.profile != Profile::Default
    }

    /// Options of the whole database.
    pub(super) fn database(&self, cache: &Cache) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        if self.memtables_in_cache {
            // Charged, and flushed when each is full as without the manager: 0 sets no limit of its own.
            let manager =
                WriteBufferManager::new_write_buffer_manager_with_cache(0, false, cache.clone());
            options.set_write_buffer_manager(&manager);
        }
        if self.profile == Profile::Default {
            return options;
        }
        options.set_max_background_jobs(self.background_jobs);
        options.set_max_total_wal_size(1024 * MIB as u64);
        options.set_bytes_per_sync(MIB as u64);
        options.set_wal_bytes_per_sync(512 * KIB as u64);
        options.set_use_direct_reads(self.direct_io);
        options.set_use_direct_io_for_flush_and_compaction(self.direct_io);
        // Dumps of statistics into the log file are work that nobody reads here.
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }

    /// One column family for each map, and the mandatory one that stays empty but shows the shared cache.
    pub(super) fn column_families(
        &self,
        schema: &[MapDef],
        cache: &Cache,
    ) -> Vec<ColumnFamilyDescriptor> {
        let mut empty = Options::default();
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        empty.set_block_based_table_factory(&table);
        let default = ColumnFamilyDescriptor::new(rocksdb::DEFAULT_COLUMN_FAMILY_NAME, empty);
        let maps = schema
            .iter()
            .map(|map| ColumnFamilyDescriptor::new(map.name, self.column_family(map, cache)));
        std::iter::once(default).chain(maps).collect()
    }

    fn column_family(&self, map: &MapDef, cache: &Cache) -> Options {
        let mut options = Options::default();
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        if self.profile != Profile::Default {
            self.tune_levels(&mut options);
            self.tune_compression(&mut options);
            self.tune_table(&mut table);
            tune_filters(&mut options, &mut table, map);
        }
        options.set_block_based_table_factory(&table);
        options
    }

    fn tune_levels(&self, options: &mut Options) {
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_max_write_buffer_number(self.write_buffers);
        if self.profile != Profile::MyRocks {
            options.set_max_write_buffer_size_to_maintain(HISTORY_BYTES);
        }
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compaction_pri(CompactionPri::MinOverlappingRatio);
        match self.profile {
            Profile::Universal => options.set_compaction_style(DBCompactionStyle::Universal),
            Profile::MyRocks => {
                options.set_target_file_size_base(32 * MIB as u64);
                options.set_max_bytes_for_level_base(256 * MIB as u64);
                options.set_level_zero_slowdown_writes_trigger(20);
                options.set_level_zero_stop_writes_trigger(30);
            }
            _ => options.set_max_bytes_for_level_base(4 * self.write_buffer_bytes as u64),
        }
    }

    fn tune_compression(&self, options: &mut Options) {
        use DBCompressionType::{Lz4, None, Zlib, Zstd};
        let (upper, last) = match self.profile {
            Profile::Zlib => (Lz4, Zlib),
            Profile::Zstd => (Zstd, Zstd),
            _ => (Lz4, Zstd),
        };
        options.set_compression_type(upper);
        options.set_bottommost_compression_type(last);
        if self.profile == Profile::MyRocks {
            options.set_compression_per_level(&[None, None, Lz4, Lz4, Lz4, Lz4, Lz4]);
            options.set_bottommost_compression_type(Zstd);
        }
    }

    fn tune_table(&self, table: &mut BlockBasedOptions) {
        table.set_block_size(self.block_bytes);
        table.set_cache_index_and_filter_blocks(true);
        if self.profile == Profile::MyRocks {
            table.set_format_version(5);
            return;
        }
        table.set_format_version(FORMAT_VERSION);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_unpartitioned_pinning_tier(BlockBasedTablePinningTier::All);
        table.set_optimize_filters_for_memory(true);
    }

    /// The settings of the result.
    pub(super) fn describe(&self, schema: &[MapDef]) -> Configuration {
        let mut c = Configuration::default();
        c.tuned(
            "block_cache",
            format!("HyperClockCache, {} bytes", self.cache_bytes),
            "lock-free; one cache for all column families, as cache_bytes says",
        );
        c.given(
            "transactions",
            "pessimistic, row locks, deadlock detection, 1 s lock timeout",
        );
        c.given("multi_get", "a loop of pinned gets");
        c.given("memtables_in_cache", self.memtables_in_cache);
        c.given("column_families", schema.len());
        c.given("statistics", "off");
        if self.profile == Profile::Default {
            c.given("options", "library defaults, no filters");
            return c;
        }
        c.given("direct_io", self.direct_io);
        c.tuned(
            "max_background_jobs",
            self.background_jobs,
            "the machine has few cores",
        );
        c.tuned(
            "write_buffer_size",
            self.write_buffer_bytes,
            "cache_bytes / 16 up to the default of 64 MiB",
        );
        c.tuned(
            "max_write_buffer_number",
            self.write_buffers,
            "a slow flush must not stop writers",
        );
        if self.profile != Profile::MyRocks {
            c.tuned(
                "max_write_buffer_size_to_maintain",
                HISTORY_BYTES,
                "no transaction sets a snapshot, so nobody asks flushed memtables",
            );
        }
        c.tuned(
            "max_total_wal_size",
            1024 * MIB,
            "bounds recovery; small maps are not flushed early",
        );
        c.tuned("bytes_per_sync", MIB, "spreads write-back of tables");
        c.tuned(
            "wal_bytes_per_sync",
            512 * KIB,
            "spreads write-back of the log",
        );
        c.given("unordered_write", false);
        self.describe_tables(&mut c);
        c
    }

    fn describe_tables(&self, c: &mut Configuration) {
        let style = match self.profile {
            Profile::Universal => "universal",
            _ => "leveled, dynamic level bytes, minimal overlapping ratio first",
        };
        c.given("compaction", style);
        let compression = match self.profile {
            Profile::Zlib => "LZ4, zlib in the last level",
            Profile::Zstd => "zstd",
            Profile::MyRocks => "none in levels 0 and 1, LZ4, zstd in the last level",
            _ => "LZ4, zstd in the last level",
        };
        c.tuned(
            "compression",
            compression,
            "cheap where data is rewritten, small where most of it lies",
        );
        c.tuned(
            "block_size",
            self.block_bytes,
            "fewer index entries, better compression; reads cost one I/O",
        );
        c.tuned(
            "filters",
            "Bloom 10 bits: whole key for point reads, fixed prefix for prefix scans",
            "most LinkBench scans fix (id1, link_type); none in the last level where reads nearly always hit",
        );
        let metadata = match self.profile {
            Profile::MyRocks => "in the cache",
            _ => "in the cache, high priority, pinned",
        };
        c.tuned(
            "index_and_filter_blocks",
            metadata,
            "counted in cache_bytes",
        );
    }
}

fn profile(variant: Option<&str>) -> Result<Profile> {
    match variant {
        None | Some("leveled") => Ok(Profile::Tuned),
        Some("universal") => Ok(Profile::Universal),
        Some("zlib") => Ok(Profile::Zlib),
        Some("zstd") => Ok(Profile::Zstd),
        Some("default") => Ok(Profile::Default),
        Some("myrocks") => Ok(Profile::MyRocks),
        Some(other) => Err(EngineError::Unsupported(format!(
            "rocksdb has no variant `{other}`"
        ))),
    }
}

fn tune_filters(options: &mut Options, table: &mut BlockBasedOptions, map: &MapDef) {
    const BITS_PER_KEY: f64 = 10.0;
    if let Some(bytes) = map.scan_prefix_bytes {
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(bytes));
    }
    if map.point_reads || map.scan_prefix_bytes.is_some() {
        table.set_bloom_filter(BITS_PER_KEY, false);
        table.set_whole_key_filtering(map.point_reads);
    }
    // In the last level a filter only answers for keys that are nowhere.
    options.set_optimize_filters_for_hits(map.reads_hit);
}
