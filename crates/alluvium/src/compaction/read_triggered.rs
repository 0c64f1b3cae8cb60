//! Read-triggered compaction and flush, once extra seeks of scans have cost about as much time: see
//! `docs/decisions/0029`.
//!
//! This work is never due: it runs if there is no other work, and not at all if
//! [`crate::Options::idle_after`] is `None`.

use std::time::Duration;

use crate::base::SeqNo;
use crate::compaction::pick::{COMPACTED_BYTES_PER_SEEK, PickRules, Picked, SEEKS_PER_INSTALL};
use crate::compaction::survey::Survey;
use crate::db::shared::Shared;
use crate::sync::time::Instant;
use crate::version::group::Group;

/// Longest time between two checks while the database is used. Read-triggered work is worth most at
/// once, and no event reports that its threshold is reached. A database without use is checked less
/// often.
pub(super) const LOOK_WHILE_USED: Duration = Duration::from_millis(500);

/// Bytes of sealed memtables that one extra seek (about 1 us) justifies flushing. More than for a
/// compaction: the flush is only brought forward, and later writes go to another flush anyway.
const FLUSHED_BYTES_PER_SEEK: u64 = 1024;

/// The same for active memtables, if no sealed ones are flushed at the same time. Sealing early
/// means one more flush for later writes, and so more compaction. It needs as many seeks as the
/// start of a compaction of these bytes at [`DOWN_PAYMENT`].
const SEALED_BYTES_PER_SEEK: u64 = (COMPACTED_BYTES_PER_SEEK as f64 / DOWN_PAYMENT) as u64;

/// Share of its cost at which a compaction starts if the active memtables will not be full soon;
/// otherwise the full cost must have accrued. A compaction is useful until the next flush, and
/// while writes are slow, recent scans predict more scans.
const DOWN_PAYMENT: f64 = 0.25;

/// Memtables that have not been flushed, as seen at one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Number of generations ever sealed: if it changes, these are not the same memtables.
    generations: u64,
    sealed_bytes: u64,
    /// Number of keyspaces with rows in memtables, and all seeks of scans in them: seeks in other
    /// keyspaces do not count.
    keyspaces: usize,
    seeks: u64,
    /// Time of the check.
    at: Instant,
    /// Bytes of the active memtables, the size from which sealing them is worthwhile, and the size
    /// at which they are sealed anyway.
    active_bytes: usize,
    worth_bytes: usize,
    full_bytes: usize,
}

/// The same memtables at the first and at the last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noted {
    first: Waiting,
    last: Waiting,
    /// True if at the last check the active memtables were not expected to fill within
    /// [`Patience::seal`].
    lasts: bool,
}

/// Least times for which active memtables must be expected to last before read-triggered work
/// begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Time for a flush of the sealed memtables only.
    pub flush: Duration,
    /// Time for sealing and flushing the active memtables too.
    pub seal: Duration,
}

/// Work that the extra seeks of scans justify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paid {
    Nothing,
    Flush,
    SealAndFlush,
}

impl Waiting {
    fn is_worth_sealing(self) -> bool {
        self.active_bytes >= self.worth_bytes
    }

    /// Returns true if `now` shows the same memtables, with nothing but added rows. Seeks from
    /// before the memtables were worth sealing do not count: watching begins anew then.
    fn goes_on(self, now: Waiting) -> bool {
        let same = |w: Waiting| (w.generations, w.sealed_bytes, w.keyspaces, w.full_bytes);
        let begins = now.sealed_bytes == 0 && now.is_worth_sealing() && !self.is_worth_sealing();
        same(self) == same(now) && self.active_bytes <= now.active_bytes && !begins
    }

    /// Returns the seconds until memtables are full at the rate of writes since `self`.
    fn full_s(self, now: Waiting) -> f64 {
        let passed = now.at.saturating_duration_since(self.at);
        let written = now.active_bytes.saturating_sub(self.active_bytes).max(1);
        let room = now.full_bytes.saturating_sub(now.active_bytes);
        passed.as_secs_f64() * room as f64 / written as f64
    }
}

impl Noted {
    fn passed(self, now: Waiting) -> Duration {
        now.at.saturating_duration_since(self.first.at)
    }

    /// Returns true if memtables will not be full within `most`, at the rate of writes since the
    /// first check and at the rate since the last one.
    fn will_last(self, now: Waiting, most: Duration) -> bool {
        let full_s = self.first.full_s(now).min(self.last.full_s(now));
        self.passed(now) >= LOOK_WHILE_USED.min(most) && full_s >= most.as_secs_f64()
    }

    /// Returns the work that scans since the first check justify: none if memtables will be full
    /// soon.
    fn paid(self, now: Waiting, patience: Patience) -> Paid {
        let passed = self.passed(now);
        let last = |most| self.will_last(now, most);
        let seal = now.is_worth_sealing() && last(patience.seal);
        let (due, seeks) = match now.sealed_bytes {
            0 => (seal, now.active_bytes as u64 / SEALED_BYTES_PER_SEEK),
            sealed => (
                passed >= patience.flush || last(patience.flush),
                sealed / FLUSHED_BYTES_PER_SEEK,
            ),
        };
        let price = SEEKS_PER_INSTALL + seeks;
        if !due || now.seeks.saturating_sub(self.first.seeks) < price {
            Paid::Nothing
        } else if seal {
            Paid::SealAndFlush
        } else {
            Paid::Flush
        }
    }

    /// Begins to watch memtables at their first check; how long they last is not known yet.
    fn begin(now: Waiting) -> Noted {
        Noted {
            first: now,
            last: now,
            lasts: false,
        }
    }

    /// Returns the work that scans justify by now, and the state to store. That is `None` once
    /// there is work, so that the memtables sealed next need seeks of their own.
    fn look(noted: Option<Noted>, now: Waiting, patience: Patience) -> (Paid, Option<Noted>) {
        let Some(same) = noted.filter(|noted| noted.last.goes_on(now)) else {
            return (Paid::Nothing, Some(Noted::begin(now)));
        };
        let next = Noted {
            last: now,
            lasts: same.will_last(now, patience.seal),
            ..same
        };
        match same.paid(now, patience) {
            Paid::Nothing => (Paid::Nothing, Some(next)),
            paid => (paid, None),
        }
    }
}

/// Counters of the use of a database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    visible: SeqNo,
    seeks: u64,
}

/// Returns true if there were commits or seeks since the last call. `seeks`: [`seeks`] now.
pub(super) fn is_used(shared: &Shared, visible: SeqNo, seeks: u64) -> bool {
    let now = Used { visible, seeks };
    let before = &mut shared.jobs.state.lock().used;
    std::mem::replace(before, now) != now
}

/// Returns the number of all seeks of scans in the database.
pub(super) fn seeks(shared: &Shared) -> u64 {
    let trees = shared.catalog.read();
    trees
        .values()
        .map(|tree| tree.counters.seeks.totals().0)
        .sum()
}

/// Returns the state of the memtables now.
fn waiting(shared: &Shared) -> Waiting {
    let (generations, sealed_bytes) = shared.sealed();
    let plan = shared.plan();
    let trees = shared.catalog.read();
    let with_rows = trees.values().filter(|t| t.load().has_memtable_rows());
    let seeks = with_rows.map(|tree| tree.counters.seeks.totals().0);
    let (keyspaces, seeks) = seeks.fold((0, 0), |(count, sum), seeks| (count + 1, sum + seeks));
    drop(trees);
    Waiting {
        generations,
        sealed_bytes: sealed_bytes as u64,
        keyspaces,
        seeks,
        at: Instant::now(),
        active_bytes: shared.log.lock().active_bytes(),
        worth_bytes: plan.worth_sealing_bytes(),
        full_bytes: plan.active_bytes,
    }
}

/// Flushes memtables that receive no more rows for a while and in which scans have to seek. One
/// call notes the memtables, a later one flushes them.
pub(super) fn flush(shared: &Shared, patience: Patience) {
    let now = waiting(shared);
    let paid = {
        let noted = &mut shared.jobs.state.lock().noted;
        let (paid, next) = Noted::look(*noted, now, patience);
        *noted = next;
        paid
    };
    match paid {
        Paid::Nothing => {}
        Paid::SealAndFlush if may_seal(shared, now) => shared.seal_and_flush(),
        Paid::Flush | Paid::SealAndFlush => shared.want_flush(),
    }
}

/// Returns true if memtables may be sealed before they are full. Sealed memtables that find no
/// space would only pile up. On a nearly full device, the next log segment and the flush are not
/// worth the space that is kept for deletes.
fn may_seal(shared: &Shared, now: Waiting) -> bool {
    let free = shared.vfs.free_bytes(&shared.dir).unwrap_or(0);
    let takes = shared.plan().segment_bytes() + now.sealed_bytes + now.active_bytes as u64;
    !shared.flush_has_failed() && free >= 2 * takes
}

/// Returns the free space that the device must have for a compaction that is not due: as much as it
/// may take, and as much again to be left over. Such a compaction is not worth a refused commit.
pub(super) fn room_for(group: &Group) -> u64 {
    2 * (group.upper_bytes() + group.last_bytes())
}

/// Picks a read-triggered compaction if there is room for it. Otherwise resets the group's count of
/// seeks.
pub(super) fn pick(shared: &Shared, rules: &PickRules, survey: &Survey) -> Option<Picked> {
    let noted = shared.jobs.state.lock().noted;
    let share = if noted.is_some_and(|noted| noted.lasts) {
        DOWN_PAYMENT
    } else {
        1.0
    };
    let picked = rules.pick_read_triggered(&survey.sizes, share)?;
    let place = &survey.places[picked.group];
    let group = &place.version.groups()[place.index];
    let free = shared.vfs.free_bytes(&shared.dir).unwrap_or(0);
    if free < room_for(group) {
        group.scan_cost.reset();
        return None;
    }
    Some(picked)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::compaction::debt::rules;
    use crate::compaction::survey::survey;
    use crate::vfs::MemVfs;
    use crate::{CursorOptions, Database, Keyspace, KeyspaceOptions, Options};

    /// Opens a database with a keyspace in which no background thread checks.
    fn unwatched() -> (Database, Keyspace) {
        let options = Options {
            idle_after: None,
            ..Options::default()
        };
        let db = Database::open_on(Arc::new(MemVfs::new()), "db", options).expect("open");
        let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
        (db, k)
    }

    #[test]
    fn commits_and_seeks_count_as_use() {
        let (db, k) = unwatched();
        let shared = db.shared();
        let used = || is_used(shared, shared.read_points.visible(), seeks(shared));
        k.put(b"key", b"value").expect("put");
        assert!(used() && !used());
        let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
        for _ in 0..100 {
            assert!(cursor.seek(b"key").expect("seek"));
        }
        assert!(used() && !used());
    }

    const PATIENCE: Patience = Patience {
        flush: Duration::from_secs(5),
        seal: Duration::from_secs(20),
    };

    const MIB: usize = 1 << 20;

    /// Returns the state `seconds` after the first one of a test; memtables are sealed at 16 MiB.
    fn at(start: Instant, seconds: u64, sealed_mib: u64, seeks: u64, active: usize) -> Waiting {
        Waiting {
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
    fn paid_at_last(looks: &[Waiting]) -> Paid {
        let (last, before) = looks.split_last().expect("a look");
        let mut noted = None;
        for &look in before {
            let (paid, next) = Noted::look(noted, look, PATIENCE);
            assert_eq!(paid, Paid::Nothing, "at {look:?}");
            noted = next;
        }
        Noted::look(noted, *last, PATIENCE).0
    }

    #[test]
    fn seeks_pay_for_the_flush_of_memtables_that_go_on_waiting() {
        let start = Instant::now();
        let noted = at(start, 0, 1, 100, 0);
        let paid = |seconds, sealed_mib, seeks, active| {
            paid_at_last(&[noted, at(start, seconds, sealed_mib, seeks, active)])
        };
        let price = SEEKS_PER_INSTALL + 1024;
        // Not yet worth sealing, and full within seconds.
        assert_eq!(paid(9, 1, 100 + price - 1, 3 * MIB), Paid::Nothing);
        assert_eq!(paid(9, 1, 100 + price, 3 * MIB), Paid::Flush);
        assert_eq!(paid(4, 1, 1_000_000, 12 * MIB), Paid::Nothing, "soon full");
        assert_eq!(paid(9, 2, 1_000_000, 3 * MIB), Paid::Nothing, "others came");
        assert_eq!(paid(1, 1, 1_000_000, 1), Paid::Flush, "will last");
        assert_eq!(paid(0, 1, 1_000_000, 1), Paid::Nothing, "who knows yet");
    }

    #[test]
    fn seeks_pay_for_sealing_what_is_seldom_written_to() {
        let start = Instant::now();
        // Seconds after a quarter was full.
        let paid = |seconds, sealed_mib, seeks, written| {
            let noted = at(start, 0, sealed_mib, 100, 4 * MIB);
            let now = at(start, seconds, sealed_mib, seeks, 4 * MIB + written);
            paid_at_last(&[noted, now])
        };
        let price = SEEKS_PER_INSTALL + (4 << 20) / 256;
        assert_eq!(paid(2, 0, 100 + price - 1, 0), Paid::Nothing);
        assert_eq!(paid(2, 0, 100 + price, 0), Paid::SealAndFlush);
        assert_eq!(paid(2, 0, 1_000_000, MIB), Paid::SealAndFlush);
        assert_eq!(paid(2, 0, 1_000_000, 2 * MIB), Paid::Nothing, "soon full");
        // Together with memtables sealed earlier, at the cost of flushing those.
        let price = SEEKS_PER_INSTALL + 1024;
        assert_eq!(paid(2, 1, 100 + price - 1, 0), Paid::Nothing);
        assert_eq!(paid(2, 1, 100 + price, 0), Paid::SealAndFlush);
        assert_eq!(paid(2, 1, 100 + price, 2 * MIB), Paid::Flush, "that alone");
        let little = at(start, 0, 0, 100, 4 * MIB - 1);
        let later = at(start, 9, 0, 1_000_000, 4 * MIB - 1);
        assert_eq!(paid_at_last(&[little, later]), Paid::Nothing);
    }

    #[test]
    fn scans_pay_once_for_each_generation() {
        let start = Instant::now();
        let noted = Noted::look(None, at(start, 0, 0, 0, 4 * MIB), PATIENCE).1;
        let later = at(start, 60, 0, 1_000_000, 4 * MIB);
        let (paid, noted) = Noted::look(noted, later, PATIENCE);
        assert_eq!((paid, noted), (Paid::SealAndFlush, None));
        // Flushed before the next check; since then as many rows as before have been written.
        let after = |seconds, seeks| Waiting {
            generations: 8,
            ..at(start, seconds, 0, seeks, 4 * MIB)
        };
        let before = at(start, 60, 0, 1_000_000, 4 * MIB);
        assert_eq!(
            paid_at_last(&[before, after(120, 2_000_000)]),
            Paid::Nothing
        );
        let looks = [before, after(120, 2_000_000), after(180, 2_000_100)];
        assert_eq!(
            paid_at_last(&looks),
            Paid::Nothing,
            "of these none was sought"
        );
    }

    #[test]
    fn seeks_before_it_was_worth_sealing_and_in_other_keyspaces_pay_nothing() {
        let start = Instant::now();
        let empty = at(start, 0, 0, 0, 0);
        let filled = at(start, 3600, 0, 1_000_000, 5 * MIB);
        assert_eq!(paid_at_last(&[empty, filled]), Paid::Nothing);
        let more = at(start, 3660, 0, 1_000_100, 5 * MIB);
        assert_eq!(paid_at_last(&[empty, filled, more]), Paid::Nothing);
        // A keyspace gets its first rows, and adds all its earlier seeks.
        let one = at(start, 0, 0, 0, 5 * MIB);
        let two = Waiting {
            keyspaces: 3,
            ..at(start, 60, 0, 1_000_000, 5 * MIB)
        };
        assert_eq!(paid_at_last(&[one, two]), Paid::Nothing);
    }

    #[test]
    fn memtables_last_where_writes_are_slow() {
        let start = Instant::now();
        let first = at(start, 0, 1, 0, 4 * MIB);
        let will_last = |seconds, active| {
            let now = at(start, seconds, 1, 0, active);
            let (_, noted) = Noted::look(Some(Noted::begin(first)), now, PATIENCE);
            noted.expect("nothing is paid").lasts
        };
        assert!(!will_last(0, 4 * MIB), "who knows yet");
        assert!(will_last(1, 4 * MIB));
        assert!(will_last(2, 5 * MIB), "22 s");
        assert!(!will_last(2, 6 * MIB), "10 s");
    }

    #[test]
    fn a_compaction_starts_early_while_writes_are_slow() {
        let (db, k) = unwatched();
        for value in [b"one", b"two"] {
            k.put(b"key", value).expect("put");
            db.flush().expect("flush");
        }
        let shared = db.shared();
        let picks = |needless, lasts| {
            let begun = Noted::begin(waiting(shared));
            shared.jobs.state.lock().noted = Some(Noted { lasts, ..begun });
            let mut survey = survey(shared);
            survey.sizes[0].needless_seeks = needless;
            pick(shared, &rules(shared), &survey).is_some()
        };
        // The bytes of such tables cost no more than a few seeks.
        assert!(picks(SEEKS_PER_INSTALL + 100, false) && !picks(SEEKS_PER_INSTALL - 100, false));
        assert!(picks(SEEKS_PER_INSTALL / 4 + 100, true));
        assert!(!picks(SEEKS_PER_INSTALL / 4 - 100, true));
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
        assert_eq!(paid_at_last(&[quiet[0], quiet[1], burst]), Paid::Nothing);
    }
}
