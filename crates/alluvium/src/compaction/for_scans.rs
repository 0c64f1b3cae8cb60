//! What is done for the sake of scans alone, once they have paid for it with seeks: see `docs/decisions/0029`.
//!
//! None of it is due: it is done where nothing else is to do, and not at all where [`crate::Options::idle_after`] is `None`.

use crate::compaction::pick::{PickRules, Picked, SEEKS_PER_INSTALL};
use crate::compaction::survey::Survey;
use crate::db::shared::Shared;
use crate::version::group::Group;

/// A flush is only brought forward, and what comes later will be another one: so a seek of a microsecond pays for more
/// bytes than that of a merge does.
const FLUSHED_BYTES_PER_SEEK: u64 = 1024;

/// Sealed memtables that wait for more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    sealed_bytes: u64,
    /// All seeks of scans in the database when this was noted.
    seeks: u64,
}

impl Waiting {
    /// Whether these memtables wait still, and scans have paid for their flush since.
    fn is_paid(self, now: Waiting) -> bool {
        let price = SEEKS_PER_INSTALL + now.sealed_bytes / FLUSHED_BYTES_PER_SEEK;
        self.sealed_bytes == now.sealed_bytes && now.seeks.saturating_sub(self.seeks) >= price
    }
}

/// Flushes sealed memtables which no others come to, while scans seek in each of them. A call notes what waits, a later
/// one flushes it.
pub(super) fn flush(shared: &Shared) {
    let sealed_bytes = shared.sealed_bytes() as u64;
    if sealed_bytes == 0 {
        shared.jobs.state.lock().waiting = None;
        return;
    }
    let trees = shared.catalog.read();
    let seeks = trees.values().map(|tree| tree.counters.seeks.totals().0);
    let now = Waiting {
        sealed_bytes,
        seeks: seeks.sum(),
    };
    drop(trees);
    let paid = {
        let noted = &mut shared.jobs.state.lock().waiting;
        let same = noted.filter(|noted| noted.sealed_bytes == sealed_bytes);
        noted.insert(same.unwrap_or(now)).is_paid(now)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeks_pay_for_the_flush_of_memtables_that_go_on_waiting() {
        let at = |sealed_bytes, seeks| Waiting {
            sealed_bytes,
            seeks,
        };
        let noted = at(1 << 20, 100);
        assert!(!noted.is_paid(noted));
        assert!(!noted.is_paid(at(1 << 20, 100 + 6_023)));
        assert!(noted.is_paid(at(1 << 20, 100 + 6_024)));
        assert!(!noted.is_paid(at(2 << 20, 1_000_000)), "others came");
    }
}
