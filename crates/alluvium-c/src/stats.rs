//! Statistics as structs that begin with their size. Histograms are in `histogram`.

use std::mem::MaybeUninit;

use alluvium::{Error, MemoryUse};

use crate::borrow::given;
use crate::call::call;
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::{alluvium_keyspace, name_within};
use crate::sized::{self, SizedStruct};

/// Use of a database's memory budget, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_memory_use {
    /// Memtables with their filters and range deletes.
    pub memtable_bytes: u64,
    /// Memory of the block cache, free frames included.
    pub cache_bytes: u64,
    /// Fences, filters and other metadata of open tables.
    pub table_bytes: u64,
    /// Buffers of flushes, compactions, ingests and bulk loads.
    pub job_bytes: u64,
    /// Writes and locks of open transactions; those below 64 KiB are not counted.
    pub transaction_bytes: u64,
    /// Batches and commits in progress; those below 64 KiB are not counted.
    pub commit_bytes: u64,
    /// Prepared transactions.
    pub prepared_bytes: u64,
    /// Sum of the fields above.
    pub total_bytes: u64,
}

/// Sizes and counters of a database. Counters start at its opening.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_stats {
    /// sizeof(alluvium_stats), set by the caller.
    pub struct_size: usize,
    /// Number of keyspaces.
    pub keyspaces: u64,
    /// Bytes of memtables waiting for their flush.
    pub sealed_bytes: u64,
    /// Memory of the block cache in bytes, free frames included.
    pub cache_used_bytes: u64,
    /// Block reads answered by the cache.
    pub cache_hits: u64,
    /// Block reads that had to read a file.
    pub cache_misses: u64,
    /// Flushes installed.
    pub flushes: u64,
    /// Compactions installed.
    pub compactions: u64,
    /// Bytes of tables written by flushes, compactions and ingests.
    pub table_bytes_written: u64,
    /// Bytes of tables that ingests installed.
    pub ingested_bytes: u64,
    /// Versions dropped because a newer one hid them from every reader.
    pub versions_shadowed: u64,
    /// Inserts canceled by their delete above the last level.
    pub pairs_canceled: u64,
    /// Tombstones dropped at the last level.
    pub tombstones_dropped: u64,
    /// Commits that admission control delayed.
    pub delayed_commits: u64,
    /// Sum of these delays, in microseconds.
    pub delay_us: u64,
    /// Commits that reached the hard memory ceiling. Should be 0.
    pub ceiling_waits: u64,
    /// Use of the memory budget.
    pub memory: alluvium_memory_use,
    /// Number of times that an idle cursor had to release memtables and tables replaced by a flush
    /// or compaction.
    pub cursors_released: u64,
    /// Bytes of log segments that recovery no longer needs, kept for streams of changes.
    pub change_log_bytes: u64,
    /// Rows locked now by transactions and prepared transactions.
    pub row_locks: u64,
    /// Jumps of the wall clock by more than a day.
    pub clock_jumps: u64,
    /// The last confirmed time, in milliseconds since 1970: compactions drop only rows that had
    /// expired by then. 0 if no time was confirmed yet, or if no keyspace has rows that expire.
    pub confirmed_time_ms: u64,
    /// The part of table_bytes_written by compactions that scans triggered. Each table beyond one
    /// that a scan sought in pays for at most 256 bytes, or 2 KiB if the seek read a block.
    pub read_triggered_bytes: u64,
    /// Bytes of tables above the last level, over all keyspaces.
    pub upper_bytes: u64,
    /// Bytes of upper tables above the space budget: compactions of them are due.
    pub backlog_bytes: u64,
    /// Bytes of tables in the last level, over all keyspaces.
    pub last_bytes: u64,
    /// Bytes written to the log.
    pub log_bytes_written: u64,
    /// Newest commit that reads see.
    pub visible_seqno: u64,
    /// Oldest commit at which a snapshot, cursor or transaction reads; visible_seqno without any.
    /// Compactions keep all versions of rows that have changed since.
    pub oldest_read_seqno: u64,
}

/// Sizes of a keyspace.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_keyspace_stats {
    /// sizeof(alluvium_keyspace_stats), set by the caller.
    pub struct_size: usize,
    /// Bytes of the keyspace's memtables.
    pub memtable_bytes: u64,
    /// Groups: the key ranges of the keyspace with their own tables.
    pub groups: u64,
    /// Tables above the last level.
    pub upper_tables: u64,
    /// Bytes of the upper tables.
    pub upper_bytes: u64,
    /// Tables of the last level.
    pub last_tables: u64,
    /// Bytes of the tables of the last level.
    pub last_bytes: u64,
    /// Entries in tables, including all versions and tombstones.
    pub table_entries: u64,
    /// Estimated number of rows.
    pub rows_estimate: u64,
}

// SAFETY: repr(C), the size first, integers only; the assertions below find padding.
unsafe impl SizedStruct for alluvium_stats {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_keyspace_stats {}

#[cfg(target_pointer_width = "64")]
const _: () =
    assert!(size_of::<alluvium_stats>() == 36 * 8 && size_of::<alluvium_keyspace_stats>() == 9 * 8);

/// Fills `stats`; its struct_size must be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_get_stats(
    database: Option<&alluvium_database>,
    stats: *mut alluvium_stats,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let now = given(database, "database")?.0.stats()?;
        let filled = alluvium_stats {
            struct_size: size_of::<alluvium_stats>(),
            keyspaces: now.keyspaces.len() as u64,
            sealed_bytes: now.sealed_bytes,
            cache_used_bytes: now.cache_used_bytes,
            cache_hits: now.cache_hits,
            cache_misses: now.cache_misses,
            flushes: now.flushes,
            compactions: now.compactions,
            table_bytes_written: now.table_bytes_written,
            ingested_bytes: now.ingested_bytes,
            versions_shadowed: now.versions_shadowed,
            pairs_canceled: now.pairs_canceled,
            tombstones_dropped: now.tombstones_dropped,
            delayed_commits: now.delayed_commits,
            delay_us: now.delay_us,
            ceiling_waits: now.ceiling_waits,
            memory: memory_use(&now.memory),
            cursors_released: now.cursors_released,
            change_log_bytes: now.change_log_bytes,
            row_locks: now.row_locks,
            clock_jumps: now.clock_jumps,
            confirmed_time_ms: now.confirmed_time_ms,
            read_triggered_bytes: now.read_triggered_bytes,
            upper_bytes: now.upper_bytes,
            backlog_bytes: now.backlog_bytes,
            last_bytes: now.last_bytes,
            log_bytes_written: now.log_bytes_written,
            visible_seqno: now.visible_seqno,
            oldest_read_seqno: now.oldest_read_seqno,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(stats, &filled) }
    })
}

fn memory_use(now: &MemoryUse) -> alluvium_memory_use {
    alluvium_memory_use {
        memtable_bytes: now.memtable_bytes,
        cache_bytes: now.cache_bytes,
        table_bytes: now.table_bytes,
        job_bytes: now.job_bytes,
        transaction_bytes: now.transaction_bytes,
        commit_bytes: now.commit_bytes,
        prepared_bytes: now.prepared_bytes,
        total_bytes: now.total(),
    }
}

/// Fills `stats` (its struct_size must be set) with the sizes of a keyspace of this database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_get_stats(
    database: Option<&alluvium_database>,
    keyspace: Option<&alluvium_keyspace>,
    stats: *mut alluvium_keyspace_stats,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let database = &given(database, "database")?.0;
        let name = name_within(database, &given(keyspace, "keyspace")?.0)?;
        let all = database.stats()?.keyspaces;
        let now = all.into_iter().find(|other| other.name == name);
        let now = now.ok_or_else(|| Error::KeyspaceDropped(name.to_owned()))?;
        let filled = alluvium_keyspace_stats {
            struct_size: size_of::<alluvium_keyspace_stats>(),
            memtable_bytes: now.memtable_bytes,
            groups: now.groups,
            upper_tables: now.upper_tables,
            upper_bytes: now.upper_bytes,
            last_tables: now.last_tables,
            last_bytes: now.last_bytes,
            table_entries: now.table_entries,
            rows_estimate: now.rows_estimate,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(stats, &filled) }
    })
}
