//! What reads, writes and space cost, measured and as the design predicts it.

use std::mem::MaybeUninit;

use alluvium::{Compared, Error};

use crate::borrow::given;
use crate::call::call;
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::{alluvium_keyspace, name_within};
use crate::sized::{self, SizedStruct};

/// A measured number and the one that the design predicts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_compared {
    /// Not a number (NaN) where nothing was counted yet.
    pub measured: f64,
    /// Formula of the design, with the present state put in.
    pub predicted: f64,
}

/// What reads of a whole database cost since its opening. Not a number (NaN) where there were none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_amplification {
    /// sizeof(alluvium_amplification), set by the caller.
    pub struct_size: usize,
    /// Blocks looked at for each point read or seek, the rows that scans read after their seek included.
    pub blocks_per_read: f64,
    /// Of them, how many were read from files.
    pub file_blocks_per_read: f64,
}

/// What reads, writes and space of one keyspace cost since the opening. The guide's page background.md has the formulas.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_keyspace_amplification {
    /// sizeof(alluvium_keyspace_amplification), set by the caller.
    pub struct_size: usize,
    /// Point reads.
    pub gets: u64,
    /// Sources, memtables and tables, searched for each point read: those that filters did not rule out.
    pub get_sources: alluvium_compared,
    /// Seeks of cursors.
    pub seeks: u64,
    /// Sources opened for each seek.
    pub seek_sources: alluvium_compared,
    /// Bytes of keys and values written to the keyspace, those included that the opening replayed from the log.
    pub user_bytes: u64,
    /// Its share of the log, for each user byte. Shared out by user bytes.
    pub log_writes: alluvium_compared,
    /// Bytes written by flushes for each user byte, but for what goes straight into the last level.
    pub flush_writes: alluvium_compared,
    /// Bytes written by merges of upper tables for each user byte.
    pub tier_writes: alluvium_compared,
    /// Bytes written into the last level for each user byte, by merges and by flushes of rows that meet nothing.
    pub last_level_writes: alluvium_compared,
    /// Bytes of its tables.
    pub stored_bytes: u64,
    /// What its live rows would take in the last level alone, estimated from counts.
    pub live_bytes_estimate: u64,
    /// Stored bytes for each live byte.
    pub space: alluvium_compared,
}

// SAFETY: repr(C), the size first, numbers of eight bytes; the assertions below find padding.
unsafe impl SizedStruct for alluvium_amplification {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_keyspace_amplification {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<alluvium_amplification>() == 3 * 8
        && size_of::<alluvium_keyspace_amplification>() == 6 * 8 + 7 * 16
);

fn number(measured: Option<f64>) -> f64 {
    measured.unwrap_or(f64::NAN)
}

fn compared(compared: &Compared) -> alluvium_compared {
    alluvium_compared {
        measured: number(compared.measured),
        predicted: compared.predicted,
    }
}

/// Fills `amplification`, whose struct_size must be set. Costs a look at every table: ask every few seconds, not for every
/// read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_get_amplification(
    database: Option<&alluvium_database>,
    amplification: *mut alluvium_amplification,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let now = given(database, "database")?.0.amplification()?;
        let filled = alluvium_amplification {
            struct_size: size_of::<alluvium_amplification>(),
            blocks_per_read: number(now.blocks_per_read),
            file_blocks_per_read: number(now.file_blocks_per_read),
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(amplification, &filled) }
    })
}

/// Fills `amplification`, whose struct_size must be set, for a keyspace of this database. As alluvium_get_amplification.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_get_amplification(
    database: Option<&alluvium_database>,
    keyspace: Option<&alluvium_keyspace>,
    amplification: *mut alluvium_keyspace_amplification,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let database = &given(database, "database")?.0;
        let name = name_within(database, &given(keyspace, "keyspace")?.0)?;
        let all = database.amplification()?.keyspaces;
        let now = all.into_iter().find(|other| other.name == name);
        let now = now.ok_or_else(|| Error::KeyspaceDropped(name.to_owned()))?;
        let filled = alluvium_keyspace_amplification {
            struct_size: size_of::<alluvium_keyspace_amplification>(),
            gets: now.gets,
            get_sources: compared(&now.get_sources),
            seeks: now.seeks,
            seek_sources: compared(&now.seek_sources),
            user_bytes: now.user_bytes,
            log_writes: compared(&now.log_writes),
            flush_writes: compared(&now.flush_writes),
            tier_writes: compared(&now.tier_writes),
            last_level_writes: compared(&now.last_level_writes),
            stored_bytes: now.stored_bytes,
            live_bytes_estimate: now.live_bytes_estimate,
            space: compared(&now.space),
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(amplification, &filled) }
    })
}
