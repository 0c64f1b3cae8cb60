//! What is done for the sake of scans alone, once they have paid for it with seeks: see `docs/decisions/0029`.
//!
//! None of it is due: it is done where nothing else is to do, and not at all where [`crate::Options::idle_after`] is `None`.

use std::time::Duration;

use crate::base::SeqNo;
use crate::compaction::pick::{PickRules, Picked, SEEKS_PER_INSTALL};
use crate::compaction::survey::Survey;
use crate::db::shared::Shared;
use crate::sync::time::Instant;
use crate::version::group::Group;

/// How soon somebody looks again whether scans have paid for a merge, while the database is used: a merge is worth most at
/// once, and nobody tells that it is paid. A database that is not used is looked at less often.
pub(super) const LOOK_WHILE_USED: Duration = Duration::from_millis(500);

/// A flush is only brought forward, and what comes later will be another one: so a seek of a microsecond pays for more
/// bytes than that of a merge does.
const FLUSHED_BYTES_PER_SEEK: u64 = 1024;

/// The same for memtables that are written to, where no sealed ones are flushed at the same time: what is written later will
/// be one more flush then, and so there will be more merges.
const SEALED_BYTES_PER_SEEK: u64 = 64;

/// Where less than this share of their bytes is used, memtables are not sealed for scans: a table costs them as much.
const WORTH_SEALING: usize = 4;

/// Memtables that wait for more to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    sealed_bytes: u64,
    /// All seeks of scans in the database when this was noted.
    seeks: u64,
    /// When it was noted.
    since: Instant,
    /// Bytes of the memtables that are written to, and of how many they are sealed.
    active_bytes: usize,
    full_bytes: usize,
}

/// How long memtables that are written to have to go on being so, for scans to pay for anything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// To flush what is sealed without them.
    pub flush: Duration,
    /// To seal them too.
    pub seal: Duration,
}

/// What scans have paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paid {
    Nothing,
    Flush,
    SealAndFlush,
}

impl Waiting {
    /// Whether `now` is what was noted, with no more than rows that came to it.
    fn goes_on(self, now: Waiting) -> bool {
        self.sealed_bytes == now.sealed_bytes && self.active_bytes <= now.active_bytes
    }

    /// What scans have paid for since this was noted: nothing where other memtables were sealed, or will be soon at the
    /// rate of writes since then.
    fn paid(self, now: Waiting, patience: Patience) -> Paid {
        let passed = now.since.saturating_duration_since(self.since);
        if !self.goes_on(now) || passed < LOOK_WHILE_USED.min(patience.flush) {
            return Paid::Nothing;
        }
        let written = (now.active_bytes - self.active_bytes).max(1);
        let room = now.full_bytes.saturating_sub(now.active_bytes);
        let full_s = passed.as_secs_f64() * room as f64 / written as f64;
        let last = |most: Duration| full_s >= most.as_secs_f64();
        let worth_sealing = now.active_bytes >= now.full_bytes / WORTH_SEALING;
        let seal = worth_sealing && last(patience.seal);
        let (due, seeks) = match now.sealed_bytes {
            0 => (seal, now.active_bytes as u64 / SEALED_BYTES_PER_SEEK),
            sealed => (
                passed >= patience.flush || last(patience.flush),
                sealed / FLUSHED_BYTES_PER_SEEK,
            ),
        };
        let price = SEEKS_PER_INSTALL + seeks;
        match due && now.seeks.saturating_sub(self.seeks) >= price {
            false => Paid::Nothing,
            true if seal => Paid::SealAndFlush,
            true => Paid::Flush,
        }
    }
}

/// What the use of a database has come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    visible: SeqNo,
    seeks: u64,
}

/// Whether somebody has written or sought since the last call. `seeks`: [`seeks`] now.
pub(super) fn is_used(shared: &Shared, visible: SeqNo, seeks: u64) -> bool {
    let now = Used { visible, seeks };
    let before = &mut shared.jobs.state.lock().used;
    std::mem::replace(before, now) != now
}

/// All seeks of scans in the database.
pub(super) fn seeks(shared: &Shared) -> u64 {
    let trees = shared.catalog.read();
    trees
        .values()
        .map(|tree| tree.counters.seeks.totals().0)
        .sum()
}

/// Flushes memtables to which nothing is added for a while, while scans seek in each of them. A call notes what waits, a
/// later one flushes it. `seeks`: [`seeks`] now.
pub(super) fn flush(shared: &Shared, seeks: u64, patience: Patience) {
    let now = Waiting {
        sealed_bytes: shared.sealed_bytes() as u64,
        seeks,
        since: Instant::now(),
        active_bytes: shared.log.lock().active_bytes(),
        full_bytes: shared.plan().active_bytes,
    };
    let paid = {
        let noted = &mut shared.jobs.state.lock().waiting;
        let same = noted.filter(|noted| noted.goes_on(now));
        noted.insert(same.unwrap_or(now)).paid(now, patience)
    };
    match paid {
        Paid::Nothing => {}
        // Those that find no space would only pile up behind one another.
        Paid::SealAndFlush if !shared.flush_lacks_space() => shared.seal_and_flush(),
        Paid::Flush | Paid::SealAndFlush => shared.want_flush(),
    }
}

/// What has to be free on the device for a merge that is not due: as much as it may take, and as much again that it leaves.
/// It is not worth a refused commit.
pub(super) fn room_for(group: &Group) -> u64 {
    2 * (group.upper_bytes() + group.last_bytes())
}

/// A merge that scans have paid for, where there is room for it. Otherwise they pay again.
pub(super) fn pick(shared: &Shared, rules: &PickRules, survey: &Survey) -> Option<Picked> {
    let picked = rules.pick_for_scans(&survey.sizes)?;
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
    use crate::vfs::MemVfs;
    use crate::{CursorOptions, Database, KeyspaceOptions, Options};

    #[test]
    fn a_database_is_used_while_somebody_writes_or_seeks() {
        // Nobody else looks.
        let options = Options {
            idle_after: None,
            ..Options::default()
        };
        let db = Database::open_on(Arc::new(MemVfs::new()), "db", options).expect("open");
        let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
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

    /// A state `seconds` after the first one of a test, in which memtables are sealed with 16 MiB.
    fn at(start: Instant, seconds: u64, sealed_mib: u64, seeks: u64, active: usize) -> Waiting {
        Waiting {
            sealed_bytes: sealed_mib << 20,
            seeks,
            since: start + Duration::from_secs(seconds),
            active_bytes: active,
            full_bytes: 16 * MIB,
        }
    }

    #[test]
    fn seeks_pay_for_the_flush_of_memtables_that_go_on_waiting() {
        let start = Instant::now();
        let noted = at(start, 0, 1, 100, 0);
        let paid = |seconds, sealed_mib, seeks, active| {
            noted.paid(at(start, seconds, sealed_mib, seeks, active), PATIENCE)
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
            noted.paid(now, PATIENCE)
        };
        let price = SEEKS_PER_INSTALL + (4 << 20) / 64;
        assert_eq!(paid(2, 0, 100 + price - 1, 0), Paid::Nothing);
        assert_eq!(paid(2, 0, 100 + price, 0), Paid::SealAndFlush);
        assert_eq!(paid(2, 0, 1_000_000, MIB), Paid::SealAndFlush);
        assert_eq!(paid(2, 0, 1_000_000, 2 * MIB), Paid::Nothing, "soon full");
        // With what was sealed before, at the price of that.
        let price = SEEKS_PER_INSTALL + 1024;
        assert_eq!(paid(2, 1, 100 + price - 1, 0), Paid::Nothing);
        assert_eq!(paid(2, 1, 100 + price, 0), Paid::SealAndFlush);
        assert_eq!(paid(2, 1, 100 + price, 2 * MIB), Paid::Flush, "that alone");
        let little = at(start, 0, 0, 100, 4 * MIB - 1);
        let later = at(start, 9, 0, 1_000_000, 4 * MIB - 1);
        assert_eq!(little.paid(later, PATIENCE), Paid::Nothing);
    }
}
