//! Histograms of the durations and sizes of commits, syncs and background work.

use std::mem::MaybeUninit;

use alluvium::Histogram;

use crate::borrow::{given, invalid};
use crate::call::{call, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::sized::{self, SizedStruct};

/// Quantity counted by a histogram.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_histogram_kind {
    /// Durations of commits, including the wait in the queue and the sync, without delays; in
    /// microseconds.
    CommitUs = 0,
    /// Durations of log syncs, without those at a change of segments; in microseconds.
    SyncUs = 1,
    /// Durations of flushes, in microseconds.
    FlushUs = 2,
    /// Bytes of the memtables of each flush.
    FlushBytes = 3,
    /// Durations of compactions, in microseconds.
    CompactionUs = 4,
    /// Bytes of the tables that each compaction wrote.
    CompactionBytes = 5,
}

/// Number of items of a histogram: one for each number of bits, 0 to 64.
pub const ALLUVIUM_HISTOGRAM_ITEMS: usize = 65;

/// Numbers counted by powers of two since the database was opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_histogram {
    /// sizeof(alluvium_histogram), set by the caller.
    pub struct_size: usize,
    /// Number of counted values.
    pub total: u64,
    /// Item n counts the numbers that need n bits: item 0 the zeros, item 1 the ones, item 2 twos
    /// and threes. A number of more than 47 bits may be counted as one of 47.
    pub counts: [u64; ALLUVIUM_HISTOGRAM_ITEMS],
}

// SAFETY: repr(C), the size first, integers of eight bytes; the assertion below finds padding.
unsafe impl SizedStruct for alluvium_histogram {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<alluvium_histogram>() == 8 * (2 + ALLUVIUM_HISTOGRAM_ITEMS));

/// Fills `histogram`; its struct_size must be set. `kind` is an alluvium_histogram_kind.
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

/// Returns an upper bound of this share (0.0 to 1.0) of the numbers, exact to a factor of two; 0
/// for an empty histogram.
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
