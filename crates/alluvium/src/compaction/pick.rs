//! Picks the next group to compact, and how: a pure function of sizes, so it is tested as text.
//!
//! Each keyspace is a list of groups (key ranges); the input holds the groups of all keyspaces. A
//! group has upper tables, newest first, and a run of last-level tables. There are two kinds of
//! compaction, and several reasons for the first:
//!
//! - **Last-level compaction** of one whole group, when the upper bytes of the database exceed
//!   their budget, `upper_fraction` of its last levels but at least a floor. The densest group goes
//!   first. It has the most upper bytes per byte to rewrite; tombstones count several times,
//!   because compacting them frees space.
//! - **Last-level compaction of a group full of tombstones**, also within the budget and before
//!   everything else. In a queue, rows are added at one end of the key range and deleted at the
//!   other. The deletes are few bytes and never fill a budget, but every read of the first row
//!   steps over all of them. Such a compaction writes at most twice as many entries as there were
//!   tombstones, so its work is proportional to the deletes.
//! - **Last-level compaction to reclaim space**: half of the group has expired or was kept for a
//!   snapshot that is gone, or its rows point into value files that are mostly garbage. Without
//!   writes nothing else would ever free this space. Such a compaction writes at most as many
//!   entries as it drops. Less than half is left to an idle pass, or to a caller that asks.
//! - **Read-triggered last-level compaction**, if there is no other work: since the newest upper
//!   table was added, extra seeks of scans have cost as much time as the compaction will, or a
//!   share of it. So a group with many reads and few writes becomes one level. If flushes come
//!   sooner than that, there would soon be upper tables again, and nothing is done.
//! - **Tier compaction** of adjacent upper tables of a group with so many that reads suffer. It
//!   combines similar sizes, so each entry is rewritten about once per size class.

/// Sizes of one upper table of a group, as input for picking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UpperSize {
    /// Size of the part of the table that lies in this group.
    pub bytes: u64,
    /// Tombstones among these bytes, estimated by entry counts.
    pub tombstone_bytes: u64,
}

/// Sizes of one group, as input for picking.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GroupSize {
    /// Upper tables, newest first.
    pub upper: Vec<UpperSize>,
    /// Size of its last-level tables, in bytes.
    pub last_bytes: u64,
    /// Entries of all its tables, tombstones included.
    pub entries: u64,
    /// Tombstones in upper tables that no reader needs any more, so that a last-level compaction
    /// drops them.
    pub upper_dead: u64,
    /// Entries of the last level that no reader needs any more: tombstones and older versions of
    /// rows that an open snapshot kept through an earlier compaction.
    pub last_dead: u64,
    /// Entries that have expired for all readers, by estimate.
    pub expired: u64,
    /// Bytes that its rows point to in value files that are to be emptied.
    pub victim_bytes: u64,
    /// Cost of the extra seeks of scans in its tables, beyond one seek for each scan, since a flush
    /// or a compaction last changed the tables. In units of a seek in a cached block.
    pub needless_seeks: u64,
    /// True if a job owns the group.
    pub busy: bool,
}

impl GroupSize {
    /// Returns true if a compaction frees space even without new writes to the group. Half of the
    /// group has expired or was kept for a closed snapshot, or it keeps value files that are mostly
    /// garbage.
    fn is_worth_clearing(&self) -> bool {
        let is_half = |entries: u64| entries > 0 && entries.saturating_mul(2) >= self.entries;
        !self.busy && (self.victim_bytes > 0 || is_half(self.expired) || is_half(self.last_dead))
    }

    /// Returns the time that extra seeks of scans have cost, as a share of the time to compact the
    /// group.
    fn paid_by_scans(&self) -> f64 {
        let bytes = self.upper_bytes() + self.last_bytes;
        let price = SEEKS_PER_INSTALL + bytes / COMPACTED_BYTES_PER_SEEK;
        self.needless_seeks as f64 / price as f64
    }

    /// Returns the size of its upper tables, in bytes.
    pub fn upper_bytes(&self) -> u64 {
        self.upper.iter().map(|u| u.bytes).sum()
    }

    /// Returns the number of tombstones, weighted, for each entry that a last-level compaction
    /// reads; at 1 and above the group is full of tombstones.
    fn dead_share(&self) -> f64 {
        TOMBSTONE_WEIGHT * self.upper_dead as f64 / self.entries.max(1) as f64
    }
}

/// Kind of compaction of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Compact all upper tables and the last level into a new last level.
    LastLevel,
    /// Compact the upper tables `from..to` (the newest is 0) into one upper table.
    Tier { from: usize, to: usize },
}

/// Limits of the policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PickRules {
    /// Upper bytes allowed per last-level byte.
    pub upper_fraction: f64,
    /// Upper bytes always allowed, regardless of the last level: two flush units.
    pub floor_bytes: u64,
    /// Number of upper tables in one group above which reads suffer too much.
    pub tables_max: usize,
}

/// Picked work: a group of the given slice, and the kind of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Picked {
    /// Index into the given groups.
    pub group: usize,
    /// Kind of compaction.
    pub work: Work,
}

/// Weight of a tombstone byte: compacting it also frees the rows that it hides.
const TOMBSTONE_WEIGHT: f64 = 4.0;
/// Bytes of tables that a compaction reads and writes again in the time that one more table costs a
/// short scan: 2 us at 32 MB/s, as measured with everything cached (docs/decisions/0029).
pub(super) const COMPACTED_BYTES_PER_SEEK: u64 = 64;
/// Fixed cost of a compaction or a flush, in seeks: its files and the manifest are made durable.
pub(super) const SEEKS_PER_INSTALL: u64 = 5_000;
/// Tables with sizes that differ by no more than this factor belong to one size class.
const CLASS_FACTOR: u64 = 4;
/// Factor over `tables_max` from which a group is compacted before other jobs go on.
const URGENT_FACTOR: usize = 2;
/// Least width of a tier compaction: with fewer tables it rewrites too much for the seeks it saves.
const TIER_WIDTH_MIN: usize = 4;

impl PickRules {
    /// Returns the upper bytes that a database with these last-level bytes may hold.
    pub fn budget(&self, last_bytes: u64) -> u64 {
        ((last_bytes as f64 * self.upper_fraction) as u64).max(self.floor_bytes)
    }

    /// Returns the excess of the upper bytes over the budget: 0 at the budget, 1 at twice the
    /// budget.
    pub fn debt(&self, upper_bytes: u64, last_bytes: u64) -> f64 {
        let budget = self.budget(last_bytes);
        (upper_bytes as f64 - budget as f64) / budget.max(1) as f64
    }

    /// Picks the most useful work; `None` if no work is due.
    pub fn pick(&self, groups: &[GroupSize]) -> Option<Picked> {
        let upper_bytes = groups.iter().map(GroupSize::upper_bytes).sum();
        let last_bytes = groups.iter().map(|g| g.last_bytes).sum();
        let over_budget = self.debt(upper_bytes, last_bytes) > 0.0;
        let whole = full_of_tombstones(groups).or_else(|| {
            let densest = over_budget.then(|| self.densest(groups));
            densest.flatten()
        });
        let whole = whole.or_else(|| groups.iter().position(GroupSize::is_worth_clearing));
        if let Some(group) = whole {
            return Some(Picked {
                group,
                work: Work::LastLevel,
            });
        }
        let crowded = groups
            .iter()
            .enumerate()
            .filter(|(_, g)| !g.busy && g.upper.len() > self.tables_max)
            .max_by_key(|(_, g)| g.upper.len());
        let (group, size) = crowded?;
        let work = match similar_window(&size.upper) {
            Some((from, to)) => Work::Tier { from, to },
            None => Work::LastLevel,
        };
        Some(Picked { group, work })
    }

    /// Picks a tier compaction that should not wait for a long compaction of another group: reads
    /// of its group consult too many tables.
    pub fn pick_urgent(&self, groups: &[GroupSize]) -> Option<Picked> {
        let crowded = |g: &GroupSize| !g.busy && g.upper.len() > URGENT_FACTOR * self.tables_max;
        let group = groups.iter().position(crowded)?;
        let (from, to) = similar_window(&groups[group].upper)?;
        let work = Work::Tier { from, to };
        Some(Picked { group, work })
    }

    /// Picks a read-triggered compaction, for when no work is due. Takes the group with the highest
    /// cost of extra seeks relative to its compaction, if that ratio is at least `share`.
    pub fn pick_read_triggered(&self, groups: &[GroupSize], share: f64) -> Option<Picked> {
        let free = |g: &GroupSize| !g.busy && !g.upper.is_empty();
        let paid = groups.iter().map(GroupSize::paid_by_scans).enumerate();
        let paid = paid.filter(|(i, paid)| free(&groups[*i]) && *paid >= share);
        let (group, _) = paid.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let work = Work::LastLevel;
        Some(Picked { group, work })
    }

    /// Picks the next compaction for a caller of `settle`: a group with entries in the last level
    /// that no reader needs. After the compaction the group has no such entries.
    pub fn pick_reclaim(&self, groups: &[GroupSize]) -> Option<Picked> {
        let group = groups.iter().position(|g| !g.busy && g.last_dead > 0)?;
        let work = Work::LastLevel;
        Some(Picked { group, work })
    }

    /// Picks the next compaction for a time without writes and without due work, until no group has
    /// upper tables or entries that only a snapshot had kept. The densest group goes first, because
    /// writes may resume at any moment.
    pub fn pick_idle(&self, groups: &[GroupSize]) -> Option<Picked> {
        let kept = |g: &GroupSize| !g.busy && g.upper.is_empty() && g.last_dead > 0;
        let group = self.densest(groups);
        let group = group.or_else(|| groups.iter().position(kept));
        let group = group.or_else(|| groups.iter().position(GroupSize::is_worth_clearing))?;
        let work = Work::LastLevel;
        Some(Picked { group, work })
    }

    fn densest(&self, groups: &[GroupSize]) -> Option<usize> {
        let density = |g: &GroupSize| {
            let upper = g.upper_bytes() as f64;
            let dead: f64 = g.upper.iter().map(|u| u.tombstone_bytes as f64).sum();
            (upper + TOMBSTONE_WEIGHT * dead) / (upper + g.last_bytes as f64).max(1.0)
        };
        let free = groups
            .iter()
            .enumerate()
            .filter(|(_, g)| !g.busy && !g.upper.is_empty());
        let best = free.max_by(|(_, a), (_, b)| density(a).total_cmp(&density(b)));
        best.map(|(i, _)| i)
    }
}

/// Returns the group with the largest share of tombstones among those that are full of them.
fn full_of_tombstones(groups: &[GroupSize]) -> Option<usize> {
    let full = groups
        .iter()
        .enumerate()
        .filter(|(_, g)| !g.busy && !g.upper.is_empty() && g.dead_share() >= 1.0);
    let most = full.max_by(|(_, a), (_, b)| a.dead_share().total_cmp(&b.dead_share()));
    most.map(|(i, _)| i)
}

/// Returns the widest run of adjacent tables of one size class; the newest of equally wide ones.
fn similar_window(upper: &[UpperSize]) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    for from in 0..upper.len() {
        let (mut least, mut most) = (u64::MAX, 0);
        for to in from + 1..=upper.len() {
            least = least.min(upper[to - 1].bytes);
            most = most.max(upper[to - 1].bytes);
            if most > least.saturating_mul(CLASS_FACTOR) {
                break;
            }
            let wider = best.is_none_or(|(f, t)| to - from > t - f);
            if to - from >= TIER_WIDTH_MIN && wider {
                best = Some((from, to));
            }
        }
    }
    best
}

#[cfg(test)]
pub(super) mod tests;
