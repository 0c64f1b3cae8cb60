//! Histograms: how long commits, syncs and background work took, and how large it was.

use std::mem::MaybeUninit;

use alluvium::Histogram;

use crate::borrow::{given, invalid};
use crate::call::{call, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::sized::{self, SizedStruct};

/// What a histogram is of.
#[repr(u32)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_histogram_kind {
    /// How long commits took, waiting in the queue and their sync included, delays not; in microseconds.
    CommitUs = 0,
    /// How long syncs of the log took, those at a change of segments not included; in microseconds.
    SyncUs = 1,
    /// How long flushes took, in microseconds.
    FlushUs = 2,
    /// Bytes of the memtables of each flush.
    FlushBytes = 3,
    /// How long merges took, in microseconds.
    CompactionUs = 4,
    /// Bytes of the tables that each merge wrote.
    CompactionBytes = 5,
}

/// Items of a histogram: one for each number of bits.
pub const ALLUVIUM_HISTOGRAM_ITEMS: usize = 65;

/// Numbers counted by powers of two since the database was opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_histogram {
    /// sizeof(alluvium_histogram), set by the caller.
    pub struct_size: usize,
    /// How many numbers were counted.
    pub total: u64,
    /// Item n counts the numbers that need n bits: item 0 the zeros, item 1 the ones, item 2 twos and threes. Numbers of
    /// more than 47 bits may count as such of 47.
    pub counts: [u64; ALLUVIUM_HISTOGRAM_ITEMS],
}

// SAFETY: repr(C), the size first, integers of eight bytes; the assertion below finds padding.
unsafe impl SizedStruct for alluvium_histogram {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<alluvium_histogram>() == 8 * (2 + ALLUVIUM_HISTOGRAM_ITEMS));

/// Fills `histogram`, whose struct_size must be set. `kind` is an alluvium_histogram_kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_get_histogram(
    database: Option<&alluvium_database>,
    kind: u32,
    histogram: *mut alluvium_histogram,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let stats = given(database, "database")?.0.stats()?;
        let found = match kind {
            n if n == alluvium_histogram_kind::CommitUs as u32 => stats.commit_us,
            n if n == alluvium_histogram_kind::SyncUs as u32 => stats.sync_us,
            n if n == alluvium_histogram_kind::FlushUs as u32 => stats.flush_us,
            n if n == alluvium_histogram_kind::FlushBytes as u32 => stats.flush_bytes,
            n if n == alluvium_histogram_kind::CompactionUs as u32 => stats.compaction_us,
            n if n == alluvium_histogram_kind::CompactionBytes as u32 => stats.compaction_bytes,
            n => return Err(invalid(format!("the histogram is {n}, it must be 0 to 5"))),
        };
        let mut counts = [0; ALLUVIUM_HISTOGRAM_ITEMS];
        for (place, count) in counts.iter_mut().zip(&found.counts) {
            *place = *count;
        }
        let filled = alluvium_histogram {
            struct_size: size_of::<alluvium_histogram>(),
            total: found.total(),
            counts,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(histogram, &filled) }
    })
}

/// A number that at least this share of all (0.0 to 1.0) is not larger than, exact to a factor of two; 0 without any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_histogram_quantile(
    histogram: *const alluvium_histogram,
    share: f64,
) -> u64 {
    let mut found = None;
    quietly(|| {
        // SAFETY: the contract of the crate.
        let given = unsafe { sized::read(histogram) };
        found = given.ok().and_then(|given| {
            let counts = given.counts.to_vec();
            Histogram { counts }.quantile(share)
        });
    });
    found.unwrap_or(0)
}
