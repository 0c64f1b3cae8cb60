//! Storage engines of MariaDB: names, counters, sizes.

use rumbench_core::engine::{EngineError, Result};

use super::wire::MariaSession;
use crate::servers::external;
use crate::servers::packages::{self, Plugin};
use crate::servers::session::Session;

/// Storage engine of the workload's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    InnoDb,
    MyRocks,
    Alluvium,
}

impl Storage {
    /// Returns the engine's name in the registry.
    pub(super) fn engine(self) -> &'static str {
        match self {
            Storage::InnoDb => "mariadb-innodb",
            Storage::MyRocks => "mariadb-rocksdb",
            Storage::Alluvium => "mariadb-alluvium",
        }
    }

    /// Returns the other storage engine of the variant `both`.
    pub(super) fn companion(self) -> Storage {
        match self {
            Storage::InnoDb => Storage::MyRocks,
            Storage::MyRocks | Storage::Alluvium => Storage::InnoDb,
        }
    }

    /// Returns the plugin that a server needs for it.
    pub(super) fn plugin(self) -> Option<&'static Plugin> {
        match self {
            Storage::InnoDb => None,
            Storage::MyRocks => Some(&packages::MYROCKS),
            Storage::Alluvium => Some(&packages::ALLUVIUM),
        }
    }

    /// Returns the version of the storage engine if it differs from the server's.
    pub(super) fn version(self, session: &mut MariaSession) -> Result<String> {
        let (plugin, name) = match self {
            Storage::InnoDb => return Ok(String::new()),
            Storage::MyRocks => ("ROCKSDB", "MyRocks"),
            Storage::Alluvium => ("ALLUVIUM", "Alluvium"),
        };
        let rows = session.query(&format!(
            "SELECT plugin_version FROM information_schema.plugins WHERE plugin_name = '{plugin}'"
        ))?;
        let version = rows.first().and_then(|row| row.first());
        version
            .map(|version| format!(" ({name} {version})"))
            .ok_or_else(|| EngineError::Unsupported(format!("the server has not loaded {name}")))
    }

    /// Returns queries for the bytes of these tables in the connection's database, the best one
    /// first. InnoDB reveals its allocated bytes only to a user with the privilege PROCESS.
    pub(super) fn stored_bytes(self, tables: &[&str]) -> Vec<String> {
        let names = external::quoted(tables);
        let by_statistics = format!(
            "SELECT CAST(COALESCE(SUM(data_length + index_length), 0) AS UNSIGNED) \
             FROM information_schema.tables WHERE table_schema = database() AND table_name IN ({names})"
        );
        if self != Storage::InnoDb {
            return vec![by_statistics];
        }
        let allocated = format!(
            "SELECT CAST(COALESCE(SUM(allocated_size), 0) AS UNSIGNED) FROM information_schema.innodb_sys_tablespaces \
             WHERE SUBSTRING_INDEX(name, '/', 1) = database() AND SUBSTRING_INDEX(name, '/', -1) IN ({names})"
        );
        vec![allocated, by_statistics]
    }

    /// Returns pairs of lower-case names of SHOW GLOBAL STATUS and ours.
    pub(super) fn counters(self) -> Vec<(&'static str, &'static str)> {
        let own: &[_] = match self {
            Storage::InnoDb => &[
                ("innodb_data_read", "data_read_bytes"),
                ("innodb_data_written", "data_written_bytes"),
                ("innodb_os_log_written", "log_written_bytes"),
                ("innodb_dblwr_pages_written", "doublewrite_pages"),
                ("innodb_buffer_pool_pages_dirty", "dirty_pages"),
                ("innodb_buffer_pool_pages_free", "free_pages"),
                ("innodb_buffer_pool_read_requests", "page_requests"),
                ("innodb_buffer_pool_reads", "page_reads"),
                (
                    "innodb_page_compression_saved",
                    "page_compression_saved_bytes",
                ),
                ("innodb_history_list_length", "history_transactions"),
                ("innodb_checkpoint_age", "checkpoint_age_bytes"),
                ("innodb_row_lock_waits", "row_lock_waits"),
                ("innodb_deadlocks", "deadlocks"),
            ],
            Storage::MyRocks => &[
                ("rocksdb_compact_read_bytes", "compaction_read_bytes"),
                ("rocksdb_compact_write_bytes", "compaction_write_bytes"),
                ("rocksdb_flush_write_bytes", "flush_write_bytes"),
                ("rocksdb_wal_bytes", "wal_bytes"),
                ("rocksdb_block_cache_hit", "block_cache_hits"),
                ("rocksdb_block_cache_miss", "block_cache_misses"),
                ("rocksdb_bloom_filter_useful", "filter_useful"),
                ("rocksdb_stall_micros", "stall_us"),
                ("rocksdb_stall_total_stops", "stall_stops"),
                ("rocksdb_stall_total_slowdowns", "stall_slowdowns"),
                ("rocksdb_number_deletes_filtered", "deletes_filtered"),
                ("rocksdb_row_lock_deadlocks", "deadlocks"),
                ("sum_compsec", "compaction_seconds"),
                ("sum_compmergecpu", "compaction_cpu_seconds"),
                ("sum_compcount", "compactions"),
                ("sum_numfiles", "tables"),
                ("cf_compaction_pending", "families_to_compact"),
                ("cf_num_immutable_mem_table", "memtables_to_flush"),
                ("cf_cur_size_all_mem_tables", "memtable_bytes"),
            ],
            Storage::Alluvium => &[
                ("alluvium_memory_used", "memory_bytes"),
                ("alluvium_cache_used", "cache_bytes"),
                ("alluvium_cache_hits", "block_cache_hits"),
                ("alluvium_cache_misses", "block_cache_misses"),
                ("alluvium_flushes", "flushes"),
                ("alluvium_compactions", "compactions"),
                ("alluvium_table_bytes_written", "table_write_bytes"),
                ("alluvium_delayed_commits", "delayed_commits"),
                ("alluvium_row_locks", "row_locks"),
                ("alluvium_keyspaces", "keyspaces"),
            ],
        };
        [SERVER_COUNTERS, own].concat()
    }
}

/// Counters of the server above its storage engine: they expose statements that read or sort more
/// than they return.
const SERVER_COUNTERS: &[(&str, &str)] = &[
    ("binlog_bytes_written", "binlog_bytes"),
    ("questions", "statements"),
    ("com_stmt_execute", "prepared_executions"),
    ("rows_sent", "rows_sent"),
    ("handler_read_key", "index_reads_by_key"),
    ("handler_read_next", "index_rows_read_forward"),
    ("handler_read_prev", "index_rows_read_backward"),
    ("sort_rows", "rows_sorted"),
];
