//! RocksDB's options: the library's defaults, the tuned configuration and its variants, MyRocks'
//! values, or the user's options file.
//!
//! Every tuned value is recorded with its reason in the [`Configuration`] of the result.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, Cache, ColumnFamilyDescriptor, CompactionPri,
    DBCompactionStyle, Options, SliceTransform, WriteBufferManager,
};
use rumbench_core::engine::{EngineError, OpenConfig, Result};
use rumbench_core::kv::MapDef;

use super::compression::{Compression, Profile};
use super::options_file::OptionsFile;
use crate::facts::Configuration;
use crate::settings::Settings;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Newest block-based table format of RocksDB 11.8. The C API has no name for "newest".
const FORMAT_VERSION: i32 = 7;

/// Keeps no flushed memtables: a transaction database otherwise keeps `max_write_buffer_number` of
/// them, to check for conflicts since a transaction's snapshot, but these transactions set none. 0
/// would select that default.
const HISTORY_BYTES: i64 = 1;

/// Limit on the bytes per second that flushes and compactions of a MyRocks server write.
const MYROCKS_BYTES_PER_SECOND: i64 = 100 << 20;

/// Deletion window of a queue: RocksDB soon compacts a table if three quarters of this many
/// consecutive entries are deletes. Otherwise the head of a queue keeps its deletes while no level
/// is too large, and each range that begins there reads all of them. Decision 0028 has the
/// measurements.
const QUEUE_DELETION_WINDOW: usize = DELETION_BUCKETS;
/// Deletion window of other maps, where deletes lie anywhere and rarely so many in a row. A
/// short window compacts tables of LinkBench for a few deletes: 128 costs a fifth of the throughput
/// and doubles the bytes written.
const DELETION_WINDOW: usize = 16 * 1024;
/// Number of parts of the window in which RocksDB counts deletes. It rounds the window up to a
/// multiple of this.
const DELETION_BUCKETS: usize = 128;
/// Window of the same name in the configuration that MyRocks' wiki recommends.
const MYROCKS_DELETION_WINDOW: usize = 200_000;
/// Number of deletes in this window from which a table is compacted.
const MYROCKS_DELETIONS: usize = 199_999;

/// Compaction style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compaction {
    Leveled,
    Universal,
}

impl std::str::FromStr for Compaction {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Compaction, &'static str> {
        match text {
            "leveled" => Ok(Compaction::Leveled),
            "universal" => Ok(Compaction::Universal),
            _ => Err("must be leveled or universal"),
        }
    }
}

/// Implementation of the block cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockCache {
    HyperClock,
    Lru,
}

impl std::str::FromStr for BlockCache {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<BlockCache, &'static str> {
        match text {
            "hyperclock" => Ok(BlockCache::HyperClock),
            "lru" => Ok(BlockCache::Lru),
            _ => Err("must be hyperclock or lru"),
        }
    }
}

/// Profile and settings for opening RocksDB.
pub(super) struct Tuning {
    profile: Profile,
    compaction: Compaction,
    /// The user's options file. If present, it replaces the configuration of the profile.
    file: Option<OptionsFile>,
    block_cache: BlockCache,
    cache_bytes: u64,
    write_buffer_bytes: usize,
    write_buffers: i32,
    block_bytes: usize,
    compression: Compression,
    background_jobs: i32,
    direct_io: bool,
    memtables_in_cache: bool,
    /// Window in consecutive entries; 0 disables it, `None` selects the default of the map.
    deletion_window: Option<usize>,
}

impl Tuning {
    /// Reads variant, cache size and settings.
    pub(super) fn of(config: &OpenConfig) -> Result<Tuning> {
        let (profile, compaction) = profile(config.variant.as_deref())?;
        let cache_bytes = config.cache_bytes as usize;
        let mut settings = Settings::of("rocksdb", config);
        let (block_bytes, write_buffer_bytes) = match profile {
            Profile::MyRocks => (16 * KIB, 128 * MIB),
            _ => (8 * KIB, (cache_bytes / 16).clamp(4 * MIB, 64 * MIB)),
        };
        let window = match profile {
            Profile::Default => Some(0),
            Profile::MyRocks => Some(MYROCKS_DELETION_WINDOW),
            _ => None,
        };
        let file: Option<String> = settings.take_text("options_file");
        let tuning = Tuning {
            profile,
            compaction: match settings.take_parsed("compaction")? {
                Some(_) if matches!(profile, Profile::Default | Profile::MyRocks) => {
                    return Err(EngineError::Unsupported(
                        "rocksdb:default and rocksdb:myrocks have their own compaction: set rocksdb.compaction with another variant".to_string(),
                    ));
                }
                given => given.unwrap_or(compaction),
            },
            file: None,
            block_cache: settings.take("block_cache", BlockCache::HyperClock)?,
            cache_bytes: config.cache_bytes,
            write_buffer_bytes: settings.take_in(
                "write_buffer_bytes",
                write_buffer_bytes,
                64 * KIB..=4096 * MIB,
            )?,
            write_buffers: settings.take_in("write_buffers", 4, 2..=64)?,
            block_bytes: settings.take_in("block_bytes", block_bytes, KIB..=MIB)?,
            compression: Compression::take(&mut settings, profile)?,
            background_jobs: settings.take_in("background_jobs", 2, 1..=64)?,
            direct_io: settings.take("direct_io", false)?,
            memtables_in_cache: settings.take(
                "memtables_in_cache",
                !matches!(profile, Profile::Default | Profile::MyRocks),
            )?,
            deletion_window: settings
                .take_optional("deletion_window", 0..=1 << 20)?
                .or(window)
                .map(|window| window.next_multiple_of(DELETION_BUCKETS)),
        };
        settings.finish()?;
        let Some(file) = file else {
            return Ok(tuning);
        };
        refuse_beside_a_file(config)?;
        Ok(Tuning {
            file: Some(OptionsFile::read(Path::new(&file))?),
            memtables_in_cache: false,
            ..tuning
        })
    }

    /// Lets RocksDB read the options file, if there is one, to report errors before any trial runs.
    pub(super) fn check(&self, schema: &[MapDef]) -> Result<()> {
        match &self.file {
            Some(file) => file.load(schema, &Cache::new_lru_cache(MIB)).map(drop),
            None => Ok(()),
        }
    }

    /// Creates the block cache that all maps share.
    pub(super) fn new_cache(&self) -> Cache {
        let bytes = self.cache_bytes as usize;
        match self.block_cache {
            // An estimated entry charge of 0 selects the variant of the cache that sizes its table
            // by itself.
            BlockCache::HyperClock => Cache::new_hyper_clock_cache(bytes, 0),
            BlockCache::Lru => Cache::new_lru_cache(bytes),
        }
    }

    /// Returns `true` if scans may use the prefix filters that this configuration builds.
    pub(super) fn has_prefix_filters(&self) -> bool {
        self.profile != Profile::Default && self.file.is_none()
    }

    /// Returns the options of the database and its column families: the mandatory one, then one for
    /// each map.
    pub(super) fn load(
        &self,
        schema: &[MapDef],
        cache: &Cache,
    ) -> Result<(Options, Vec<ColumnFamilyDescriptor>)> {
        let Some(file) = &self.file else {
            return Ok((self.database(cache), self.column_families(schema, cache)));
        };
        let (mut options, families) = file.load(schema, cache)?;
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        Ok((options, families))
    }

    /// Returns the options of the whole database.
    fn database(&self, cache: &Cache) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        if self.memtables_in_cache {
            // Memtables are charged to the cache, and each is flushed when full, as without the
            // manager: 0 sets no limit of its own.
            let manager =
                WriteBufferManager::new_write_buffer_manager_with_cache(0, false, cache.clone());
            options.set_write_buffer_manager(&manager);
        }
        if self.profile == Profile::Default {
            return options;
        }
        options.set_max_background_jobs(self.background_jobs);
        options.set_max_total_wal_size(1024 * MIB as u64);
        let (bytes_per_sync, wal_bytes_per_sync) = self.bytes_per_sync();
        options.set_bytes_per_sync(bytes_per_sync);
        options.set_wal_bytes_per_sync(wal_bytes_per_sync);
        if self.profile == Profile::MyRocks {
            // Refill period and fairness are the library's defaults.
            options.set_ratelimiter(MYROCKS_BYTES_PER_SECOND, 100_000, 10);
        }
        options.set_use_direct_reads(self.direct_io);
        options.set_use_direct_io_for_flush_and_compaction(self.direct_io);
        // Dumps of statistics into the log file would be work without a reader.
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }

    /// Returns the mandatory column family and one for each map. The mandatory one stays empty, but
    /// shows the shared cache.
    fn column_families(&self, schema: &[MapDef], cache: &Cache) -> Vec<ColumnFamilyDescriptor> {
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

    /// Returns the bytes written between requests for write-back: of a table, and of the log.
    fn bytes_per_sync(&self) -> (u64, u64) {
        match self.profile {
            Profile::MyRocks => (4 * MIB as u64, 4 * MIB as u64),
            _ => (MIB as u64, 512 * KIB as u64),
        }
    }

    fn column_family(&self, map: &MapDef, cache: &Cache) -> Options {
        let mut options = Options::default();
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        if self.profile != Profile::Default {
            self.tune_levels(&mut options, map);
            self.compression.apply(&mut options);
            self.tune_table(&mut table);
            tune_filters(&mut options, &mut table, map);
        }
        options.set_block_based_table_factory(&table);
        options
    }

    /// Returns the deletion window of a map, and the number of deletes in it from which a table is
    /// compacted.
    fn deletions(&self, map: &MapDef) -> Option<(usize, usize)> {
        let window = self.deletion_window.unwrap_or(if map.is_queue {
            QUEUE_DELETION_WINDOW
        } else {
            DELETION_WINDOW
        });
        let trigger = match self.profile {
            Profile::MyRocks => MYROCKS_DELETIONS.min(window.checked_sub(1)?),
            _ => (3 * window).div_ceil(4),
        };
        (window > 0).then_some((window, trigger))
    }

    /// Returns the options of tables to be ingested into a map, or `None` with a user's options
    /// file, because the options of one family of the file are not available on their own.
    pub(super) fn file_options(&self, map: &MapDef, cache: &Cache) -> Option<Options> {
        let known = self.file.is_none();
        known.then(|| self.column_family(map, cache))
    }

    fn tune_levels(&self, options: &mut Options, map: &MapDef) {
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_max_write_buffer_number(self.write_buffers);
        if self.profile != Profile::MyRocks {
            options.set_max_write_buffer_size_to_maintain(HISTORY_BYTES);
        }
        if let Some((window, trigger)) = self.deletions(map) {
            // No ratio of a whole file: if deletes and inserts alternate, it would compact all
            // files at once.
            const NO_RATIO: f64 = 0.0;
            options.add_compact_on_deletion_collector_factory(window, trigger, NO_RATIO);
        }
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compaction_pri(CompactionPri::MinOverlappingRatio);
        match (self.compaction, self.profile) {
            (Compaction::Universal, _) => {
                options.set_compaction_style(DBCompactionStyle::Universal);
            }
            (_, Profile::MyRocks) => {
                options.set_target_file_size_base(32 * MIB as u64);
                options.set_max_bytes_for_level_base(512 * MIB as u64);
                options.set_level_zero_slowdown_writes_trigger(10);
                options.set_level_zero_stop_writes_trigger(15);
            }
            _ => options.set_max_bytes_for_level_base(4 * self.write_buffer_bytes as u64),
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

    /// Returns the settings for the result.
    pub(super) fn describe(&self, schema: &[MapDef]) -> Configuration {
        let mut c = Configuration::default();
        self.describe_cache(&mut c);
        c.given("memtables_in_cache", self.memtables_in_cache);
        c.given("column_families", schema.len());
        c.given("statistics", "off");
        if let Some(file) = &self.file {
            file.describe(schema, &mut c);
            return c;
        }
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
                "no transaction sets a snapshot, so no transaction reads flushed memtables",
            );
        }
        c.tuned(
            "max_total_wal_size",
            1024 * MIB,
            "bounds recovery; small maps are not flushed early",
        );
        let (bytes_per_sync, wal_bytes_per_sync) = self.bytes_per_sync();
        c.tuned(
            "bytes_per_sync",
            bytes_per_sync,
            "spreads write-back of tables",
        );
        c.tuned(
            "wal_bytes_per_sync",
            wal_bytes_per_sync,
            "spreads write-back of the log",
        );
        if self.profile == Profile::MyRocks {
            c.given("rate_limit_bytes_per_second", MYROCKS_BYTES_PER_SECOND);
        }
        c.given("unordered_write", false);
        self.describe_tables(schema, &mut c);
        c
    }

    fn describe_cache(&self, c: &mut Configuration) {
        let (kind, reason) = match self.block_cache {
            BlockCache::HyperClock => (
                "HyperClockCache",
                "lock-free; one cache for all column families, as cache_bytes says",
            ),
            BlockCache::Lru => (
                "LRUCache",
                "as set; one cache for all column families, as cache_bytes says",
            ),
        };
        let value = format!("{kind}, {} bytes", self.cache_bytes);
        c.tuned("block_cache", value, reason);
    }

    fn describe_tables(&self, schema: &[MapDef], c: &mut Configuration) {
        let style = match self.compaction {
            Compaction::Universal => "universal",
            Compaction::Leveled => "leveled, dynamic level bytes, minimal overlapping ratio first",
        };
        c.given("compaction", style);
        // The last map is one of the workload's own: a catalog comes first.
        if let Some((window, trigger)) = schema.last().and_then(|map| self.deletions(map)) {
            c.tuned(
                "compact_on_deletion",
                format!("{trigger} deletes among {window} entries"),
                "ranges at the head of a queue would read all of its deletes",
            );
        }
        let (compression, reason) = self.compression.describe();
        c.tuned("compression", compression, reason);
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

/// Refuses a variant, and all settings except the kind of the cache, together with an options file:
/// the file is a whole configuration.
fn refuse_beside_a_file(config: &OpenConfig) -> Result<()> {
    if let Some(variant) = &config.variant {
        return Err(EngineError::Unsupported(format!(
            "rocksdb:{variant} is a configuration, and so is an options file: give the file to plain `rocksdb`"
        )));
    }
    let allowed = ["options_file", "block_cache"];
    let keys = config.settings.keys();
    match keys.map(String::as_str).find(|key| !allowed.contains(key)) {
        Some(key) => Err(EngineError::Unsupported(format!(
            "rocksdb.{key} cannot be set together with an options file: write it into the file"
        ))),
        None => Ok(()),
    }
}

/// Returns the profile and the compaction style of a variant.
fn profile(variant: Option<&str>) -> Result<(Profile, Compaction)> {
    let profile = match variant {
        None | Some("leveled" | "universal") => Profile::Tuned,
        Some("snappy") => Profile::Snappy,
        Some("zlib") => Profile::Zlib,
        Some("zstd") => Profile::Zstd,
        Some("default") => Profile::Default,
        Some("myrocks") => Profile::MyRocks,
        Some(other) => {
            return Err(EngineError::Unsupported(format!(
                "rocksdb has no variant `{other}`"
            )));
        }
    };
    let compaction = match variant {
        Some("universal") => Compaction::Universal,
        _ => Compaction::Leveled,
    };
    Ok((profile, compaction))
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
    // In the last level a filter only helps for keys that do not exist.
    options.set_optimize_filters_for_hits(map.expect_hits);
}
