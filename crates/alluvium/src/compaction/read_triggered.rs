//! Read-triggered compaction and flush: work that starts when the extra seeks of scans have cost
//! about as much time as it takes itself. See `docs/decisions/0029`.
//!
//! This work is never due: it runs if there is no other work, and not at all if
//! [`crate::Options::idle_after`] is `None`.

use std::time::Duration;

use crate::compaction::pick::{COMPACTED_BYTES_PER_SEEK, SEEKS_PER_INSTALL};
use crate::sync::time::Instant;

/// Longest time between two checks while the database is used. Read-triggered work helps most if it
/// starts at once, and no event reports that seeks have reached its threshold. A database without
/// use is checked less often.
pub(super) const LOOK_WHILE_USED: Duration = Duration::from_millis(500);

/// Bytes of sealed memtables that one extra seek (about 1 us) justifies flushing. More than for a
/// compaction, because the flush happens anyway and only starts earlier.
const FLUSHED_BYTES_PER_SEEK: u64 = 1024;

/// Bytes of active memtables that one extra seek justifies sealing and flushing, if no sealed
/// memtable waits for a flush. Sealing early means one more flush for later writes, and so more
/// compaction. It needs as many seeks as a compaction of the same bytes that starts at
/// [`EARLY_SHARE`].
const SEALED_BYTES_PER_SEEK: u64 = (COMPACTED_BYTES_PER_SEEK as f64 / EARLY_SHARE) as u64;

/// Share of its cost at which a compaction starts if the active memtables will not be full soon;
/// otherwise the full cost must have accrued. A compaction is useful until the next flush, and
/// while writes are slow, recent scans predict more scans.
const EARLY_SHARE: f64 = 0.25;

/// Memtables that have not been flushed, as seen at one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemtableState {
    /// Number of generations ever sealed: if it changes, these are not the same memtables.
    pub generations: u64,
    pub sealed_bytes: u64,
    /// Number of keyspaces with rows in memtables.
    pub keyspaces: usize,
    /// Seeks of scans in these keyspaces since the database was opened.
    pub seeks: u64,
    /// Time of the check.
    pub at: Instant,
    /// Bytes of the active memtables.
    pub active_bytes: usize,
    /// Size from which sealing them is worthwhile.
    pub worth_bytes: usize,
    /// Size at which they are sealed anyway.
    pub full_bytes: usize,
}

/// The same memtables at the first and at the last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Watched {
    first: MemtableState,
    last: MemtableState,
    /// True if at the last check the active memtables were not expected to fill within
    /// [`MinLifetime::seal`].
    lasts: bool,
}

/// Minimum lifetimes of active memtables that justify an early flush.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinLifetime {
    /// Sealed memtables are flushed early if they were watched for this long, or if the active ones
    /// are expected to last for this long.
    pub flush: Duration,
    /// Active memtables are sealed and flushed early if they are expected to last for this long.
    pub seal: Duration,
}

/// Flush of memtables before they are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyFlush {
    Nothing,
    /// Flushes only the sealed memtables.
    Sealed,
    /// Seals the active memtables and flushes all.
    All,
}

impl MemtableState {
    fn is_worth_sealing(self) -> bool {
        self.active_bytes >= self.worth_bytes
    }

    /// Returns true if `now` shows the same memtables, perhaps with more rows. Returns false when
    /// they become worth sealing, so that earlier seeks do not count.
    fn is_same_generation(self, now: MemtableState) -> bool {
        let same = |w: MemtableState| (w.generations, w.sealed_bytes, w.keyspaces, w.full_bytes);
        let begins = now.sealed_bytes == 0 && now.is_worth_sealing() && !self.is_worth_sealing();
        same(self) == same(now) && self.active_bytes <= now.active_bytes && !begins
    }

    /// Returns the seconds until memtables are full at the rate of writes since `self`.
    fn full_s(self, now: MemtableState) -> f64 {
        let passed = now.at.saturating_duration_since(self.at);
        let written = now.active_bytes.saturating_sub(self.active_bytes).max(1);
        let room = now.full_bytes.saturating_sub(now.active_bytes);
        passed.as_secs_f64() * room as f64 / written as f64
    }
}

impl Watched {
    fn passed(self, now: MemtableState) -> Duration {
        now.at.saturating_duration_since(self.first.at)
    }

    /// Returns true if memtables will not be full within `most`, at the rate of writes since the
    /// first check and at the rate since the last one.
    fn will_last(self, now: MemtableState, most: Duration) -> bool {
        let full_s = self.first.full_s(now).min(self.last.full_s(now));
        self.passed(now) >= LOOK_WHILE_USED.min(most) && full_s >= most.as_secs_f64()
    }

    /// Returns the work that scans since the first check justify: none if memtables will be full
    /// soon.
    fn paid(self, now: MemtableState, least: MinLifetime) -> EarlyFlush {
        let passed = self.passed(now);
        let will_last = |most| self.will_last(now, most);
        let seal = now.is_worth_sealing() && will_last(least.seal);
        let (due, seeks) = match now.sealed_bytes {
            0 => (seal, now.active_bytes as u64 / SEALED_BYTES_PER_SEEK),
            sealed => (
                passed >= least.flush || will_last(least.flush),
                sealed / FLUSHED_BYTES_PER_SEEK,
            ),
        };
        let price = SEEKS_PER_INSTALL + seeks;
        if !due || now.seeks.saturating_sub(self.first.seeks) < price {
            EarlyFlush::Nothing
        } else if seal {
            EarlyFlush::All
        } else {
            EarlyFlush::Sealed
        }
    }

    #[cfg(all(test, not(loom), not(feature = "simulation")))]
    pub fn for_test(now: MemtableState, lasts: bool) -> Watched {
        Watched {
            lasts,
            ..Watched::begin(now)
        }
    }

    /// Returns the share of its cost at which a read-triggered compaction starts.
    pub fn scan_share(watched: Option<Watched>) -> f64 {
        if watched.is_some_and(|watched| watched.lasts) {
            EARLY_SHARE
        } else {
            1.0
        }
    }

    /// Begins to watch memtables at their first check; how long they last is not known yet.
    fn begin(now: MemtableState) -> Watched {
        Watched {
            first: now,
            last: now,
            lasts: false,
        }
    }

    /// Returns the work that scans justify by now, and the state to store. That is `None` once
    /// there is work, so that the memtables sealed next need seeks of their own.
    pub fn look(
        watched: Option<Watched>,
        now: MemtableState,
        least: MinLifetime,
    ) -> (EarlyFlush, Option<Watched>) {
        let Some(same) = watched.filter(|watched| watched.last.is_same_generation(now)) else {
            return (EarlyFlush::Nothing, Some(Watched::begin(now)));
        };
        let next = Watched {
            last: now,
            lasts: same.will_last(now, least.seal),
            ..same
        };
        match same.paid(now, least) {
            EarlyFlush::Nothing => (EarlyFlush::Nothing, Some(next)),
            paid => (paid, None),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LEAST: MinLifetime = MinLifetime {
        flush: Duration::from_secs(5),
        seal: Duration::from_secs(20),
    };

    const MIB: usize = 1 << 20;

    /// Returns the state `seconds` after the first one of a test; memtables are sealed at 16 MiB.
    fn at(
        start: Instant,
        seconds: u64,
        sealed_mib: u64,
        seeks: u64,
        active: usize,
    ) -> MemtableState {
        MemtableState {
            generations: 7,
            sealed_bytes: sealed_mib << 20,
            keyspaces: 2,
            seeks,
            at: start + Duration::from_secs(seconds),
            active_bytes: active,
            worth_bytes: 4 * MIB,
            full_bytes: 16 * MIB,
        }
    }

    /// Returns the justified work at the last of several checks; the earlier ones must justify
    /// none.
    fn paid_at_last(looks: &[MemtableState]) -> EarlyFlush {
        let (last, before) = looks.split_last().expect("a look");
        let mut watched = None;
        for &look in before {
            let (paid, next) = Watched::look(watched, look, LEAST);
            assert_eq!(paid, EarlyFlush::Nothing, "at {look:?}");
            watched = next;
        }
        Watched::look(watched, *last, LEAST).0
    }

    #[test]
    fn seeks_pay_for_the_flush_of_memtables_that_go_on_waiting() {
        let start = Instant::now();
        let watched = at(start, 0, 1, 100, 0);
        let paid = |seconds, sealed_mib, seeks, active| {
            paid_at_last(&[watched, at(start, seconds, sealed_mib, seeks, active)])
        };
        let price = SEEKS_PER_INSTALL + 1024;
        // Not yet worth sealing, and full within seconds.
        assert_eq!(paid(9, 1, 100 + price - 1, 3 * MIB), EarlyFlush::Nothing);
        assert_eq!(paid(9, 1, 100 + price, 3 * MIB), EarlyFlush::Sealed);
        assert_eq!(
            paid(4, 1, 1_000_000, 12 * MIB),
            EarlyFlush::Nothing,
            "soon full"
        );
        assert_eq!(
            paid(9, 2, 1_000_000, 3 * MIB),
            EarlyFlush::Nothing,
            "another memtable was sealed"
        );
        assert_eq!(paid(1, 1, 1_000_000, 1), EarlyFlush::Sealed, "will last");
        assert_eq!(
            paid(0, 1, 1_000_000, 1),
            EarlyFlush::Nothing,
            "who knows yet"
        );
    }

    #[test]
    fn seeks_pay_for_sealing_what_is_seldom_written_to() {
        let start = Instant::now();
        // Seconds after a quarter was full.
        let paid = |seconds, sealed_mib, seeks, written| {
            let watched = at(start, 0, sealed_mib, 100, 4 * MIB);
            let now = at(start, seconds, sealed_mib, seeks, 4 * MIB + written);
            paid_at_last(&[watched, now])
        };
        let price = SEEKS_PER_INSTALL + (4 << 20) / 256;
        assert_eq!(paid(2, 0, 100 + price - 1, 0), EarlyFlush::Nothing);
        assert_eq!(paid(2, 0, 100 + price, 0), EarlyFlush::All);
        assert_eq!(paid(2, 0, 1_000_000, MIB), EarlyFlush::All);
        assert_eq!(
            paid(2, 0, 1_000_000, 2 * MIB),
            EarlyFlush::Nothing,
            "soon full"
        );
        // Together with memtables sealed earlier, at the cost of flushing those.
        let price = SEEKS_PER_INSTALL + 1024;
        assert_eq!(paid(2, 1, 100 + price - 1, 0), EarlyFlush::Nothing);
        assert_eq!(paid(2, 1, 100 + price, 0), EarlyFlush::All);
        assert_eq!(
            paid(2, 1, 100 + price, 2 * MIB),
            EarlyFlush::Sealed,
            "that alone"
        );
        let little = at(start, 0, 0, 100, 4 * MIB - 1);
        let later = at(start, 9, 0, 1_000_000, 4 * MIB - 1);
        assert_eq!(paid_at_last(&[little, later]), EarlyFlush::Nothing);
    }

    #[test]
    fn scans_pay_once_for_each_generation() {
        let start = Instant::now();
        let watched = Watched::look(None, at(start, 0, 0, 0, 4 * MIB), LEAST).1;
        let later = at(start, 60, 0, 1_000_000, 4 * MIB);
        let (paid, watched) = Watched::look(watched, later, LEAST);
        assert_eq!((paid, watched), (EarlyFlush::All, None));
        // Flushed before the next check; since then as many rows as before have been written.
        let after = |seconds, seeks| MemtableState {
            generations: 8,
            ..at(start, seconds, 0, seeks, 4 * MIB)
        };
        let before = at(start, 60, 0, 1_000_000, 4 * MIB);
        assert_eq!(
            paid_at_last(&[before, after(120, 2_000_000)]),
            EarlyFlush::Nothing
        );
        let looks = [before, after(120, 2_000_000), after(180, 2_000_100)];
        assert_eq!(
            paid_at_last(&looks),
            EarlyFlush::Nothing,
            "too few seeks since this generation began"
        );
    }

    #[test]
    fn seeks_before_it_was_worth_sealing_and_in_other_keyspaces_pay_nothing() {
        let start = Instant::now();
        let empty = at(start, 0, 0, 0, 0);
        let filled = at(start, 3600, 0, 1_000_000, 5 * MIB);
        assert_eq!(paid_at_last(&[empty, filled]), EarlyFlush::Nothing);
        let more = at(start, 3660, 0, 1_000_100, 5 * MIB);
        assert_eq!(paid_at_last(&[empty, filled, more]), EarlyFlush::Nothing);
        // A keyspace gets its first rows, and adds all its earlier seeks.
        let one = at(start, 0, 0, 0, 5 * MIB);
        let two = MemtableState {
            keyspaces: 3,
            ..at(start, 60, 0, 1_000_000, 5 * MIB)
        };
        assert_eq!(paid_at_last(&[one, two]), EarlyFlush::Nothing);
    }

    #[test]
    fn memtables_last_where_writes_are_slow() {
        let start = Instant::now();
        let first = at(start, 0, 1, 0, 4 * MIB);
        let will_last = |seconds, active| {
            let now = at(start, seconds, 1, 0, active);
            let (_, watched) = Watched::look(Some(Watched::begin(first)), now, LEAST);
            watched.expect("nothing is paid").lasts
        };
        assert!(!will_last(0, 4 * MIB), "who knows yet");
        assert!(will_last(1, 4 * MIB));
        assert!(will_last(2, 5 * MIB), "22 s");
        assert!(!will_last(2, 6 * MIB), "10 s");
    }

    #[test]
    fn a_burst_after_a_long_pause_is_soon_full() {
        let start = Instant::now();
        // Too few seeks in an hour; then 2 MiB/s are written, with many seeks.
        let quiet = [
            at(start, 0, 0, 0, 5 * MIB),
            at(start, 3600, 0, 100, 5 * MIB),
        ];
        let burst = at(start, 3601, 0, 1_000_000, 7 * MIB);
        assert_eq!(
            paid_at_last(&[quiet[0], quiet[1], burst]),
            EarlyFlush::Nothing
        );
    }
}
