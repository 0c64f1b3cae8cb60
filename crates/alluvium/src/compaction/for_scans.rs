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

/// Sealed memtables that wait for more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    sealed_bytes: u64,
    /// All seeks of scans in the database when this was noted.
    seeks: u64,
    /// When it was noted.
    since: Instant,
    /// Bytes of the memtables that are written to, and how many more are sealed with them.
    active_bytes: usize,
    room_bytes: usize,
}

impl Waiting {
    /// Whether scans have paid for the flush of these memtables since, and no others came, nor will come within `patience` at
    /// the rate of writes since then.
    fn is_paid(self, now: Waiting, patience: Duration) -> bool {
        let price = SEEKS_PER_INSTALL + now.sealed_bytes / FLUSHED_BYTES_PER_SEEK;
        let passed = now.since.saturating_duration_since(self.since);
        let written = now.active_bytes.saturating_sub(self.active_bytes).max(1);
        let next_s = passed.as_secs_f64() * now.room_bytes as f64 / written as f64;
        self.sealed_bytes == now.sealed_bytes
            && now.seeks.saturating_sub(self.seeks) >= price
            && passed >= LOOK_WHILE_USED.min(patience)
            && (passed >= patience || next_s >= patience.as_secs_f64())
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

/// Flushes sealed memtables which no others come to within `patience`, while scans seek in each of them. A call notes what waits, a
/// later one flushes it. `seeks`: [`seeks`] now.
pub(super) fn flush(shared: &Shared, seeks: u64, patience: Duration) {
    let sealed_bytes = shared.sealed_bytes() as u64;
    if sealed_bytes == 0 {
        shared.jobs.state.lock().waiting = None;
        return;
    }
    let active_bytes = shared.log.lock().active_bytes();
    let now = Waiting {
        sealed_bytes,
        seeks,
        since: Instant::now(),
        active_bytes,
        room_bytes: shared.plan().active_bytes.saturating_sub(active_bytes),
    };
    let paid = {
        let noted = &mut shared.jobs.state.lock().waiting;
        let same = noted.filter(|noted| noted.sealed_bytes == sealed_bytes);
        noted.insert(same.unwrap_or(now)).is_paid(now, patience)
    };
    if paid {
        shared.want_flush();
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

    #[test]
    fn seeks_pay_for_the_flush_of_memtables_that_go_on_waiting() {
        const PATIENCE: Duration = Duration::from_secs(5);
        let start = Instant::now();
        // A MiB is written each second, and 4 have room.
        let at = |sealed_bytes, seeks, seconds| Waiting {
            sealed_bytes,
            seeks,
            since: start + Duration::from_secs(seconds),
            active_bytes: (seconds as usize) << 20,
            room_bytes: (4_usize.saturating_sub(seconds as usize)) << 20,
        };
        let noted = at(1 << 20, 100, 0);
        let is_paid = |now| noted.is_paid(now, PATIENCE);
        assert!(!is_paid(noted));
        assert!(!is_paid(at(1 << 20, 100 + 6_023, 9)));
        assert!(is_paid(at(1 << 20, 100 + 6_024, 5)));
        assert!(!is_paid(at(1 << 20, 1_000_000, 4)), "others may come");
        assert!(!is_paid(at(2 << 20, 1_000_000, 9)), "others came");
        let slowly = |seconds| Waiting {
            active_bytes: 1,
            room_bytes: 4 << 20,
            ..at(1 << 20, 1_000_000, seconds)
        };
        assert!(is_paid(slowly(1)), "no others will come soon");
        assert!(!is_paid(slowly(0)), "nobody can know yet");
    }
}
