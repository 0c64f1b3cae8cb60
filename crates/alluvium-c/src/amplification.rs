//! Read, write and space amplification, measured and as predicted by the design.

use std::mem::MaybeUninit;

use alluvium::{Compared, Error};

use crate::borrow::given;
use crate::call::call;
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::keyspace::{alluvium_keyspace, name_within};
use crate::sized::{self, SizedStruct};

/// A measured number and its prediction by the design.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_compared {
    /// Measured number. Not a number (NaN) if nothing was counted yet.
    pub measured: f64,
    /// Number from the formula of the design for the present state.
    pub predicted: f64,
}

/// Read amplification of a whole database since its opening. Not a number (NaN) if there were no
/// reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_amplification {
    /// sizeof(alluvium_amplification), set by the caller.
    pub struct_size: usize,
    /// Blocks read for each point read or seek, from the cache or a file, including the blocks of
    /// rows that scans read after their seek.
    pub blocks_per_read: f64,
    /// Blocks of these that were read from files.
    pub file_blocks_per_read: f64,
}

/// Read, write and space amplification of one keyspace since the opening. The guide's page
/// background.md has the formulas.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_keyspace_amplification {
    /// sizeof(alluvium_keyspace_amplification), set by the caller.
    pub struct_size: usize,
    /// Number of point reads.
    pub gets: u64,
    /// Sources (memtables and tables) searched for each point read, except those ruled out by
    /// filters.
    pub get_sources: alluvium_compared,
    /// Number of cursor seeks.
    pub seeks: u64,
    /// Sources opened for each seek.
    pub seek_sources: alluvium_compared,
    /// Bytes of keys and values written to the keyspace, including writes replayed from the
    /// log by the opening.
    pub user_bytes: u64,
    /// The keyspace's share of the log bytes for each user byte. The log is divided among keyspaces
    /// by user bytes.
    pub log_writes: alluvium_compared,
    /// Bytes written by flushes for each user byte, except those written straight into the last
    /// level.
    pub flush_writes: alluvium_compared,
    /// Bytes written by compactions among upper tables for each user byte.
    pub tier_writes: alluvium_compared,
    /// Bytes written into the last level for each user byte, by compactions and by flushes of rows
    /// that overlap no table.
    pub last_level_writes: alluvium_compared,
    /// Bytes of the keyspace's tables.
    pub stored_bytes: u64,
    /// Estimated bytes of the live rows in the last level alone, computed from counts.
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

/// Fills `amplification`; its struct_size must be set. Visits every table: call it every few
/// seconds, not for every read.
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

/// Fills `amplification` (its struct_size must be set) for a keyspace of this database. The cost
/// is that of alluvium_get_amplification.
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
