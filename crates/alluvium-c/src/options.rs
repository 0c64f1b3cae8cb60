//! Option structs and their conversion to the engine's options. Zero is the default in every field.

use std::ffi::c_void;
use std::time::Duration;

use alluvium::{
    Compression, CursorOptions, Durability, Expiry, Isolation, KeyspaceOptions, LockMode, Options,
    Result, TransactionOptions, WriteOptions,
};

use crate::borrow::{invalid, optional_bytes};
use crate::callback::clock;
use crate::listener::alluvium_event;
use crate::lock_wait::{alluvium_lock_wait, lock_wait_listener};
use crate::sized::SizedStruct;
use crate::transaction::alluvium_lock_cancel;

/// Maximum length of a key in bytes.
pub const ALLUVIUM_KEY_BYTES_MAX: u64 = 65_535;
/// Maximum length of a keyspace name in bytes.
pub const ALLUVIUM_KEYSPACE_NAME_BYTES_MAX: u64 = 65_535;
/// Maximum length of a value in bytes.
pub const ALLUVIUM_VALUE_BYTES_MAX: u64 = 1_073_741_824;
/// Maximum length of the id of a prepared transaction in bytes.
pub const ALLUVIUM_XID_BYTES_MAX: u64 = 255;
/// Lock timeout: fail at once.
pub const ALLUVIUM_NO_WAIT: i64 = -1;
/// Value of idle_after_ms: an idle database does not clean up, and scans start no compactions.
pub const ALLUVIUM_NO_TIDYING: i64 = -1;
/// Value of value_separation_bytes: no value is stored in a separate file. Value of until_ms of an
/// operation: the row does not expire.
pub const ALLUVIUM_NEVER: u64 = u64::MAX;

const _: () = assert!(
    ALLUVIUM_KEY_BYTES_MAX == alluvium::KEY_BYTES_MAX as u64
        && ALLUVIUM_KEYSPACE_NAME_BYTES_MAX == alluvium::KEYSPACE_NAME_BYTES_MAX as u64
        && ALLUVIUM_VALUE_BYTES_MAX == alluvium::VALUE_BYTES_MAX as u64
        && ALLUVIUM_XID_BYTES_MAX == alluvium::XID_BYTES_MAX as u64
);

/// Durability of an acknowledged commit.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_durability {
    /// For a write or transaction: the database's default. For a database: BUFFERED.
    Default = 0,
    /// No log: after any failure the database is in the state of an earlier flush. For a whole
    /// database only.
    None = 1,
    /// The log record was handed to the kernel: a killed process loses nothing, a power loss loses
    /// the last sync_interval_us.
    Buffered = 2,
    /// The log record is on the device.
    Sync = 3,
}

/// Isolation of a transaction from concurrent commits.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_isolation {
    /// The transaction reads the state at its beginning. A write to a row that has changed since is
    /// a conflict.
    Snapshot = 0,
    /// Each read sees the newest commit.
    ReadCommitted = 1,
    /// Like SNAPSHOT, and the commit is a conflict if anything the transaction read has changed.
    Serializable = 2,
}

/// Compression of stored blocks.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_compression {
    /// LZ4 in upper tables, zstd in the last level, with a trained dictionary in each table if
    /// that saves space.
    Adaptive = 0,
    /// LZ4 in all tables.
    Lz4 = 1,
    /// No compression.
    None = 2,
}

/// Expiry of the rows of a keyspace.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_expiry {
    /// No row expires.
    Never = 0,
    /// Rows written with a put_until expire.
    PerRow = 1,
    /// Like PER_ROW; all other rows expire expire_after_ms after their write.
    After = 2,
}

/// Mode of a row lock.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_lock_mode {
    /// Other transactions may share the lock.
    Shared = 0,
    /// No other transaction has the lock.
    Exclusive = 1,
}

/// Options of alluvium_open. Set struct_size to sizeof(alluvium_options) and the rest to zero for
/// the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_options {
    /// sizeof(alluvium_options).
    pub struct_size: usize,
    /// Memory budget for memtables, cached blocks, fences, filters, buffers of background work and
    /// bulk loads, and writes of transactions together; at least 8 MiB. 0: 256 MiB.
    pub memory_bytes: u64,
    /// Maximum time that a buffered commit stays unsynced. 0: 100 ms.
    pub sync_interval_us: u64,
    /// Maximum wait for a row lock, or ALLUVIUM_NO_WAIT. 0: 10 s.
    pub lock_timeout_ms: i64,
    /// Bytes of upper tables allowed for each byte of the last level, 0.02 to 1.0. 0: 0.25.
    pub upper_fraction: f64,
    /// Total size at which the active memtables are sealed; for tests. 0: derived from
    /// memory_bytes.
    pub memtable_bytes: u64,
    /// Size at which a last-level table is cut. 0: 32 MiB.
    pub table_bytes: u64,
    /// Maximum memory for the writes of one transaction or batch; most transactions above it move
    /// their writes to files. 0: a quarter of memory_bytes.
    pub transaction_bytes: u64,
    /// Time without a commit after which the database flushes its memtables and compacts all upper
    /// tables, or ALLUVIUM_NO_TIDYING, which also turns off compactions that scans start. 0: 20 s.
    pub idle_after_ms: i64,
    /// An alluvium_durability.
    pub durability: u32,
    /// Number of compaction threads, 1 to 16. 0: 1. A large flush of rows in key order starts up
    /// to as many more while it runs.
    pub compaction_threads: u32,
    /// Not 0: do not create the database if the directory contains none.
    pub must_exist: u32,
    /// Not 0: open the database without changing a byte in its directory; writes give
    /// ALLUVIUM_CODE_READ_ONLY.
    pub read_only: u32,
    /// Returns the time in milliseconds since 1970; for tests. It is called from any thread, and
    /// the database trusts its time at once, jumps included. It must stay valid until every handle
    /// of the database is freed. It must not throw, longjmp or call the database.
    ///
    /// NULL: the system's clock, checked against the time since the machine's start. After a jump
    /// of the system's clock by more than a day, reads use the last confirmed time plus the time
    /// since then. The database stores no new time and drops no expired row until both clocks have
    /// advanced together for ten minutes.
    pub clock: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Passed to clock.
    pub clock_context: *mut c_void,
    /// Receives the events of background work, also before alluvium_open returns; NULL: no
    /// listener. Called by one thread, one event after the other, under no lock. It may be slow and
    /// may call the database, also to close it, but must neither throw nor jump out. No event comes
    /// after alluvium_close has returned, unless the listener itself called alluvium_close. A
    /// database opened read-only has no events.
    pub event_listener:
        Option<unsafe extern "C" fn(context: *mut c_void, event: *const alluvium_event)>,
    /// Passed to event_listener and free_event_context.
    pub event_context: *mut c_void,
    /// Called once on any thread when the listener is no longer used: after the database is closed,
    /// at the latest when the last handle and value is freed. May be NULL. Not called if there is
    /// no listener or if opening failed. It must not call the database.
    pub free_event_context: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Maximum disk space of log segments that recovery no longer needs and that are kept for
    /// change streams (alluvium_changes_open). An open stream also keeps the part of the log that
    /// it has not read, even if this is 0, but at most as many bytes as memory_bytes.
    pub change_log_bytes: u64,
    /// Maximum number of open table and value files, at least 16; others are closed and reopened
    /// for the next read. 0: half of the files that the process may open.
    pub open_files: u64,
    /// Receives each wait for a row lock before it begins; NULL: no listener. Called by the waiting
    /// thread, without a lock held. It may call the database and cancel waits, but must not use the
    /// waiting transaction, and must neither throw nor jump out. It must stay valid until every
    /// handle of the database is freed.
    pub lock_wait_listener:
        Option<unsafe extern "C" fn(context: *mut c_void, wait: *const alluvium_lock_wait)>,
    /// Passed to lock_wait_listener.
    pub lock_wait_context: *mut c_void,
}

/// Options of alluvium_keyspace_open, fixed when the keyspace is created.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_keyspace_options {
    /// sizeof(alluvium_keyspace_options).
    pub struct_size: usize,
    /// Not 0: keep no Bloom filter of whole keys.
    pub no_whole_key_filter: u32,
    /// Not 0: reads nearly always find their key, so the last level needs no filter of whole keys.
    pub expect_hits: u32,
    /// Number of leading key bytes in a prefix Bloom filter, at most 255. 0: no prefix filter.
    pub prefix_filter_bytes: u32,
    /// An alluvium_compression.
    pub compression: u32,
    /// Size at which a block is cut, 1 KiB to 64 KiB. 0: 4 KiB.
    pub block_bytes: u64,
    /// Minimum size of the values that are stored in a separate file, in bytes, or ALLUVIUM_NEVER.
    /// 0: 8 KiB.
    pub value_separation_bytes: u64,
    /// An alluvium_expiry.
    pub expiry: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Time from write to expiry in milliseconds, for ALLUVIUM_EXPIRY_AFTER only.
    pub expire_after_ms: u64,
}

/// Options of alluvium_write.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_write_options {
    /// sizeof(alluvium_write_options).
    pub struct_size: usize,
    /// An alluvium_durability.
    pub durability: u32,
    /// Not 0: write without row locks. Use it only if no transaction writes the same keys.
    pub untracked: u32,
}

/// Options of alluvium_begin.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_transaction_options {
    /// sizeof(alluvium_transaction_options).
    pub struct_size: usize,
    /// An alluvium_isolation.
    pub isolation: u32,
    /// An alluvium_durability.
    pub durability: u32,
    /// Maximum wait for a row lock, or ALLUVIUM_NO_WAIT. 0: the database's lock_timeout_ms.
    pub lock_timeout_ms: i64,
    /// Not 0: take no row locks before the commit. The commit is a conflict if another commit has
    /// changed a row that this transaction wrote, locked or read for update. Not with
    /// READ_COMMITTED, and such a transaction cannot be prepared.
    pub optimistic: u32,
    /// Not 0: take the read point at the first read, or after the lock if a row is locked first,
    /// instead of at the beginning.
    pub late_read_point: u32,
    /// Token that ends lock waits from another thread, or NULL. The transaction keeps its own
    /// reference.
    pub cancel: *const alluvium_lock_cancel,
    /// Number that names the transaction in an alluvium_lock_owner, for example that of a session.
    /// 0: none.
    pub tag: u64,
}

/// Options of alluvium_cursor_open. NULL or zeros: all rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_cursor_options {
    /// sizeof(alluvium_cursor_options).
    pub struct_size: usize,
    /// First key, inclusive. NULL: the start of the keyspace.
    pub start: *const c_void,
    /// Bytes of start.
    pub start_size: usize,
    /// End key, exclusive. NULL: the end of the keyspace.
    pub end: *const c_void,
    /// Bytes of end.
    pub end_size: usize,
    /// Prefix of all keys returned; start and end must then be NULL. NULL: any keys.
    pub prefix: *const c_void,
    /// Bytes of prefix.
    pub prefix_size: usize,
    /// Not 0: return only keys. Values are empty, and separate value files are not read.
    pub keys_only: usize,
}

// SAFETY: repr(C), the size is the first field, and all others are integers, pointers or nullable
// functions; the assertions below find padding.
unsafe impl SizedStruct for alluvium_options {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_keyspace_options {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_write_options {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_transaction_options {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_cursor_options {}

// Each size is the sum of the field sizes, so there is no padding. These sizes only ever grow.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<alluvium_options>() == 9 * 8 + 4 * 4 + 9 * 8
        && size_of::<alluvium_keyspace_options>() == 8 + 4 * 4 + 2 * 8 + 2 * 4 + 8
        && size_of::<alluvium_write_options>() == 8 + 2 * 4
        && size_of::<alluvium_transaction_options>() == 8 + 2 * 4 + 8 + 2 * 4 + 2 * 8
        && size_of::<alluvium_cursor_options>() == 8 * 8
);

/// Converts a number; `None` means the default.
pub(crate) fn durability(number: u32) -> Result<Option<Durability>> {
    Ok(match number {
        0 => None,
        n if n == alluvium_durability::None as u32 => Some(Durability::None),
        n if n == alluvium_durability::Buffered as u32 => Some(Durability::Buffered),
        n if n == alluvium_durability::Sync as u32 => Some(Durability::Sync),
        n => return Err(invalid(format!("durability is {n}, it must be 0 to 3"))),
    })
}

/// Converts milliseconds; `None` means the default, and a negative number no wait.
pub(crate) fn lock_timeout(ms: i64) -> Option<Duration> {
    match u64::try_from(ms) {
        Ok(0) => None,
        Ok(ms) => Some(Duration::from_millis(ms)),
        Err(_) => Some(Duration::ZERO),
    }
}

pub(crate) fn bytes_number(number: u64, name: &str) -> Result<Option<usize>> {
    if number == 0 {
        return Ok(None);
    }
    let number = usize::try_from(number);
    number
        .map(Some)
        .map_err(|_| invalid(format!("{name} is too large")))
}

pub(crate) fn check_reserved(reserved: u32) -> Result<()> {
    match reserved {
        0 => Ok(()),
        _ => Err(invalid("a reserved field is not 0")),
    }
}

pub(crate) fn lock_mode(number: u32) -> Result<LockMode> {
    match number {
        n if n == alluvium_lock_mode::Shared as u32 => Ok(LockMode::Shared),
        n if n == alluvium_lock_mode::Exclusive as u32 => Ok(LockMode::Exclusive),
        n => Err(invalid(format!("the lock mode is {n}, it must be 0 or 1"))),
    }
}

impl alluvium_options {
    pub(crate) fn to_engine(self) -> Result<Options> {
        let default = Options::default();
        let or = |number: Option<usize>, default: usize| number.unwrap_or(default);
        let memory = bytes_number(self.memory_bytes, "memory_bytes")?;
        let threads = bytes_number(self.compaction_threads.into(), "compaction_threads")?;
        Ok(Options {
            memory_bytes: or(memory, default.memory_bytes),
            durability: durability(self.durability)?.unwrap_or_default(),
            sync_interval: match self.sync_interval_us {
                0 => default.sync_interval,
                us => Duration::from_micros(us),
            },
            create: self.must_exist == 0,
            read_only: self.read_only != 0,
            idle_after: match u64::try_from(self.idle_after_ms) {
                Ok(0) => default.idle_after,
                Ok(ms) => Some(Duration::from_millis(ms)),
                Err(_) => None,
            },
            compaction_threads: or(threads, default.compaction_threads),
            lock_timeout: lock_timeout(self.lock_timeout_ms).unwrap_or(default.lock_timeout),
            upper_fraction: match self.upper_fraction {
                0.0 => default.upper_fraction,
                fraction => fraction,
            },
            memtable_bytes: bytes_number(self.memtable_bytes, "memtable_bytes")?,
            table_bytes: match self.table_bytes {
                0 => default.table_bytes,
                bytes => bytes,
            },
            clock: clock(self.clock, self.clock_context),
            transaction_bytes: bytes_number(self.transaction_bytes, "transaction_bytes")?,
            change_log_bytes: self.change_log_bytes,
            open_files: bytes_number(self.open_files, "open_files")?,
            lock_wait_listener: lock_wait_listener(self.lock_wait_listener, self.lock_wait_context),
            ..default
        })
    }
}

impl alluvium_keyspace_options {
    pub(crate) fn to_engine(self) -> Result<KeyspaceOptions> {
        check_reserved(self.reserved)?;
        let default = KeyspaceOptions::default();
        let prefix = bytes_number(self.prefix_filter_bytes.into(), "prefix_filter_bytes")?;
        let after = self.expiry == alluvium_expiry::After as u32;
        if !after && self.expire_after_ms != 0 {
            return Err(invalid("expire_after_ms is for ALLUVIUM_EXPIRY_AFTER only"));
        }
        Ok(KeyspaceOptions {
            whole_key_filter: self.no_whole_key_filter == 0,
            prefix_filter_bytes: prefix,
            expect_hits: self.expect_hits != 0,
            compression: match self.compression {
                n if n == alluvium_compression::Adaptive as u32 => Compression::Adaptive,
                n if n == alluvium_compression::Lz4 as u32 => Compression::Lz4,
                n if n == alluvium_compression::None as u32 => Compression::None,
                n => return Err(invalid(format!("compression is {n}, it must be 0 to 2"))),
            },
            block_bytes: bytes_number(self.block_bytes, "block_bytes")?
                .unwrap_or(default.block_bytes),
            expiry: match self.expiry {
                n if n == alluvium_expiry::Never as u32 => Expiry::Never,
                n if n == alluvium_expiry::PerRow as u32 => Expiry::PerRow,
                _ if after => Expiry::After(Duration::from_millis(self.expire_after_ms)),
                n => return Err(invalid(format!("expiry is {n}, it must be 0 to 2"))),
            },
            value_separation_bytes: match self.value_separation_bytes {
                0 => default.value_separation_bytes,
                ALLUVIUM_NEVER => None,
                bytes => bytes_number(bytes, "value_separation_bytes")?,
            },
        })
    }

    pub(crate) fn of_engine(options: &KeyspaceOptions) -> alluvium_keyspace_options {
        let (expiry, after) = match options.expiry {
            Expiry::Never => (alluvium_expiry::Never, Duration::ZERO),
            Expiry::PerRow => (alluvium_expiry::PerRow, Duration::ZERO),
            Expiry::After(time) => (alluvium_expiry::After, time),
        };
        let compression = match options.compression {
            Compression::Adaptive => alluvium_compression::Adaptive,
            Compression::Lz4 => alluvium_compression::Lz4,
            Compression::None => alluvium_compression::None,
        };
        alluvium_keyspace_options {
            struct_size: size_of::<alluvium_keyspace_options>(),
            no_whole_key_filter: u32::from(!options.whole_key_filter),
            expect_hits: u32::from(options.expect_hits),
            // At most 255.
            prefix_filter_bytes: options.prefix_filter_bytes.unwrap_or(0) as u32,
            compression: compression as u32,
            block_bytes: options.block_bytes as u64,
            value_separation_bytes: options
                .value_separation_bytes
                .map_or(ALLUVIUM_NEVER, |bytes| bytes as u64),
            expiry: expiry as u32,
            reserved: 0,
            expire_after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl alluvium_write_options {
    pub(crate) fn to_engine(self) -> Result<WriteOptions> {
        Ok(WriteOptions {
            durability: durability(self.durability)?,
            untracked: self.untracked != 0,
        })
    }
}

impl alluvium_transaction_options {
    pub(crate) unsafe fn to_engine(self) -> Result<TransactionOptions> {
        // SAFETY: the contract: NULL or a token that was not freed.
        let cancel = unsafe { self.cancel.as_ref() };
        Ok(TransactionOptions {
            isolation: match self.isolation {
                n if n == alluvium_isolation::Snapshot as u32 => Isolation::Snapshot,
                n if n == alluvium_isolation::ReadCommitted as u32 => Isolation::ReadCommitted,
                n if n == alluvium_isolation::Serializable as u32 => Isolation::Serializable,
                n => return Err(invalid(format!("isolation is {n}, it must be 0 to 2"))),
            },
            durability: durability(self.durability)?,
            lock_timeout: lock_timeout(self.lock_timeout_ms),
            cancel: cancel.map(|cancel| cancel.0.clone()),
            optimistic: self.optimistic != 0,
            late_read_point: self.late_read_point != 0,
            tag: (self.tag != 0).then_some(self.tag),
        })
    }
}

impl alluvium_cursor_options {
    pub(crate) unsafe fn to_engine(self) -> Result<CursorOptions> {
        // SAFETY: the contract, for each pointer and its size.
        let [start, end, prefix] = unsafe {
            [
                optional_bytes(self.start, self.start_size)?,
                optional_bytes(self.end, self.end_size)?,
                optional_bytes(self.prefix, self.prefix_size)?,
            ]
        };
        let mut options = match prefix {
            Some(_) if start.is_some() || end.is_some() => {
                return Err(invalid(
                    "a cursor has a prefix or a start and end, not both",
                ));
            }
            Some(prefix) => CursorOptions::prefix(prefix),
            None => CursorOptions {
                start: start.unwrap_or_default().to_vec(),
                end: end.map(<[u8]>::to_vec),
                keys_only: false,
            },
        };
        options.keys_only = self.keys_only != 0;
        Ok(options)
    }
}
