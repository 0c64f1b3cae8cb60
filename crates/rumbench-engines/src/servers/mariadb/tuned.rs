//! Tuned settings of MariaDB and its storage engines, each with its reason.

/// Name, value, and reason for a value other than the default.
pub(super) type Setting = (&'static str, String, &'static str);

/// Connections in addition to the clients'.
const OTHER_CONNECTIONS: usize = 24;
/// Cache of the storage engine that holds only the server's own tables.
const IDLE_CACHE_BYTES: u64 = 8 << 20;

pub(super) fn common(clients: usize) -> Vec<Setting> {
    let connections = (clients + OTHER_CONNECTIONS).to_string();
    let set = |value: &str| value.to_string();
    vec![
        (
            "transaction_isolation",
            set("READ-COMMITTED"),
            "the same for both storage engines",
        ),
        ("character_set_server", set("latin1"), "columns hold bytes"),
        ("collation_server", set("latin1_bin"), "columns hold bytes"),
        (
            "query_cache_type",
            set("OFF"),
            "would answer instead of the storage engine",
        ),
        ("max_connections", connections.clone(), "clients"),
        ("thread_cache_size", connections, "clients"),
        (
            "max_prepared_stmt_count",
            set("1048576"),
            "statements stay prepared",
        ),
        ("max_allowed_packet", set("1073741824"), "large values"),
    ]
}

pub(super) fn innodb(cache_bytes: u64, log_mib: u32, at_commit: &str) -> Vec<Setting> {
    let set = |value: &str| value.to_string();
    vec![
        (
            "innodb_buffer_pool_size",
            cache_bytes.max(IDLE_CACHE_BYTES).to_string(),
            "cache_bytes",
        ),
        (
            "innodb_flush_log_at_trx_commit",
            set(at_commit),
            "durability class",
        ),
        (
            "innodb_log_file_size",
            (u64::from(log_mib) << 20).to_string(),
            "small logs make storms of checkpoints",
        ),
        (
            "innodb_flush_method",
            set("O_DIRECT"),
            "cache_bytes is all the cache there is",
        ),
        ("innodb_flush_neighbors", set("0"), "for disks that seek"),
        (
            "innodb_io_capacity",
            set("4000"),
            "the default is that of a slow disk",
        ),
        (
            "innodb_io_capacity_max",
            set("8000"),
            "the default is that of a slow disk",
        ),
        (
            "innodb_change_buffering",
            set("none"),
            "later servers have none",
        ),
        (
            "innodb_adaptive_hash_index",
            set("OFF"),
            "latches under writes",
        ),
        ("innodb_purge_threads", set("4"), "keeps up with deletes"),
    ]
}

const QUEUES: &str =
    "as published for the Insert Benchmark: tables full of deletes are compacted soon";

pub(super) fn myrocks(cache_bytes: u64, log_mib: u32, at_commit: &str) -> Vec<Setting> {
    let set = |value: &str| value.to_string();
    vec![
        (
            "rocksdb_block_cache_size",
            cache_bytes.max(IDLE_CACHE_BYTES).to_string(),
            "cache_bytes",
        ),
        (
            "rocksdb_flush_log_at_trx_commit",
            set(at_commit),
            "durability class",
        ),
        (
            "rocksdb_manual_wal_flush",
            set("OFF"),
            "each commit reaches the kernel as InnoDB's does; by default it stays in the server up to a second",
        ),
        (
            "rocksdb_deadlock_detect",
            set("ON"),
            "a deadlock ends when it arises, as InnoDB's does; by default all in it wait for a second, and may meet again for ever",
        ),
        (
            "rocksdb_max_total_wal_size",
            (u64::from(log_mib) << 20).to_string(),
            "as InnoDB's log",
        ),
        (
            "rocksdb_use_direct_reads",
            set("ON"),
            "cache_bytes is all the cache there is",
        ),
        (
            "rocksdb_use_direct_io_for_flush_and_compaction",
            set("ON"),
            "cache_bytes is all the cache there is",
        ),
        (
            "rocksdb_compaction_sequential_deletes",
            set("14999"),
            QUEUES,
        ),
        (
            "rocksdb_compaction_sequential_deletes_window",
            set("15000"),
            QUEUES,
        ),
        (
            "rocksdb_compaction_sequential_deletes_count_sd",
            set("ON"),
            QUEUES,
        ),
        (
            "rocksdb_default_cf_options",
            set(COLUMN_FAMILY),
            "as in production: dynamic levels, LZ4, ZSTD at the bottom, filters",
        ),
        (
            "rocksdb_override_cf_options",
            set(LINK_FAMILIES),
            "as published for LinkBench: filters on (id1, link_type) too",
        ),
    ]
}

pub(super) fn alluvium(cache_bytes: u64, at_commit: &str) -> Vec<Setting> {
    vec![
        (
            "alluvium_memory_bytes",
            cache_bytes.max(IDLE_CACHE_BYTES).to_string(),
            "cache_bytes: memtables, transactions and filters are inside this number",
        ),
        (
            "alluvium_flush_log_at_trx_commit",
            at_commit.to_string(),
            "durability class",
        ),
        (
            "plugin_maturity",
            "experimental".to_string(),
            "the plugin calls itself so",
        ),
    ]
}

/// Returns the settings of InnoDB on a server with all workload tables in another storage engine.
pub(super) fn idle_innodb() -> Vec<Setting> {
    vec![
        (
            "innodb_buffer_pool_size",
            IDLE_CACHE_BYTES.to_string(),
            "holds only the server's own tables",
        ),
        (
            "innodb_log_file_size",
            "16777216".to_string(),
            "holds only the server's own tables",
        ),
    ]
}

/// Prefix extractors for links: a key begins with the index number (4 bytes) and the two columns
/// that every list and multiget fixes.
const LINK_FAMILIES: &str = "cf_link_pk={prefix_extractor=capped:20};\
rev:cf_link_id1_type={prefix_extractor=capped:20}";

/// Options of all column families, on one line without blanks: an unknown one stops the start.
pub(super) const COLUMN_FAMILY: &str = "write_buffer_size=64m;target_file_size_base=32m;max_bytes_for_level_base=256m;\
level0_file_num_compaction_trigger=4;level0_slowdown_writes_trigger=20;level0_stop_writes_trigger=30;\
max_write_buffer_number=4;compression_per_level=kNoCompression:kNoCompression:kLZ4Compression:kLZ4Compression:\
kLZ4Compression:kLZ4Compression:kLZ4Compression;bottommost_compression=kZSTD;compression_opts=-14:4:0;\
level_compaction_dynamic_level_bytes=true;block_based_table_factory={cache_index_and_filter_blocks=1;\
filter_policy=bloomfilter:10:false;whole_key_filtering=1;format_version=5;block_size=16384};\
optimize_filters_for_hits=true;compaction_pri=kMinOverlappingRatio";
