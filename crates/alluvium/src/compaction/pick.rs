//! Which group to merge next, and how: a pure function of sizes, so that it is tested as text.
//!
//! Each keyspace is a list of groups (key ranges); here are those of all keyspaces. A group holds upper tables, newest
//! first, and a run of last-level tables. Two kinds of work:
//!
//! - **Last-level merge** of one whole group, when the upper bytes of the database exceed their budget,
//!   `upper_fraction` of its last levels but at least a floor. The densest group goes first: it has the most upper
//!   bytes per byte to rewrite, and tombstones count several times, because merging them returns space.
//! - **Last-level merge of a group full of tombstones**, also within the budget and before everything else. In a queue,
//!   rows are added at one end of the key range and deleted at the other: the deletes are few bytes and never fill a
//!   budget, but every read of the first row steps over all of them. Such a merge writes at most twice as many entries
//!   as there were tombstones, so deletes pay for it.
//! - **Last-level merge of a group half of which has expired or was kept for a snapshot that is gone, or whose rows point
//!   into value files that are mostly garbage**: nothing else would ever return their space where nobody writes. Such a
//!   merge writes at most as many entries as it drops. Less than half is left to a pass of tidying, or to a caller who asks.
//! - **Last-level merge of a group whose upper tables have cost scans as much as the merge will, or a share of it**, since
//!   the newest of them came, where nothing else is to do: whoever reads much and writes little gets a merged group.
//!   Where flushes come sooner, there would soon be upper tables again, and nothing is done.
//! - **Tier merge** of neighbouring upper tables of a group whose number costs reads: similar sizes together, so
//!   that each entry is rewritten about once per size class.

/// What picking needs to know of one upper table of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UpperSize {
    /// Bytes of the table that lie in this group.
    pub bytes: u64,
    /// Of them, bytes of tombstones (estimated by entry counts).
    pub tombstone_bytes: u64,
}

/// What picking needs to know of one group.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GroupSize {
    /// Upper tables, newest first.
    pub upper: Vec<UpperSize>,
    /// Bytes of its last-level tables.
    pub last_bytes: u64,
    /// Entries of all its tables, tombstones included.
    pub entries: u64,
    /// Tombstones in upper tables that no reader needs any more, so that a last-level merge drops them.
    pub upper_dead: u64,
    /// Entries of the last level that no reader needs any more, tombstones and older versions of rows: an open snapshot had
    /// kept them through an earlier merge.
    pub last_dead: u64,
    /// Entries that have expired for everybody, by estimate.
    pub expired: u64,
    /// Bytes that its rows point to in value files that are to be emptied.
    pub victim_bytes: u64,
    /// Seeks of scans in its tables, beyond one for each scan, since the last flush or merge changed them: what they took, in
    /// seeks whose block is cached.
    pub needless_seeks: u64,
    /// A job owns it.
    pub busy: bool,
}

impl GroupSize {
    /// True if a compaction returns space although nothing was written here: half of it has expired or was kept for a snapshot
    /// that is gone, or it keeps value files that are mostly garbage.
    fn is_worth_clearing(&self) -> bool {
        let is_half = |entries: u64| entries > 0 && entries.saturating_mul(2) >= self.entries;
        !self.busy && (self.victim_bytes > 0 || is_half(self.expired) || is_half(self.last_dead))
    }

    /// The time that scans have spent needlessly in its tables, as a share of what merging it takes.
    fn paid_by_scans(&self) -> f64 {
        let bytes = self.upper_bytes() + self.last_bytes;
        let price = SEEKS_PER_INSTALL + bytes / COMPACTED_BYTES_PER_SEEK;
        self.needless_seeks as f64 / price as f64
    }

    fn upper_bytes(&self) -> u64 {
        self.upper.iter().map(|u| u.bytes).sum()
    }

    /// Tombstones, weighted, for each entry that a last-level merge reads: from 1 on, the group is full of them.
    fn dead_share(&self) -> f64 {
        TOMBSTONE_WEIGHT * self.upper_dead as f64 / self.entries.max(1) as f64
    }
}

/// What to do with a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Merge all upper tables and the last level into a new last level.
    LastLevel,
    /// Merge the upper tables `from..to` (newest is 0) into one upper table.
    Tier { from: usize, to: usize },
}

/// Limits of the policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PickRules {
    /// Upper bytes allowed per last-level byte.
    pub upper_fraction: f64,
    /// Upper bytes always allowed, whatever the last level holds: two flush units.
    pub floor_bytes: u64,
    /// More upper tables than this in one group cost reads too much.
    pub tables_max: usize,
}

/// A picked piece of work: which group of the slice given, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Picked {
    /// Index into the groups given.
    pub group: usize,
    /// What to do with it.
    pub work: Work,
}

/// A tombstone byte counts this many times: it also frees what it hides.
const TOMBSTONE_WEIGHT: f64 = 4.0;
/// The bytes of tables that a merge reads and writes again in the time that one more table costs a short scan: 2 us at
/// 32 MB/s, as measured with everything cached (docs/decisions/0029).
pub(super) const COMPACTED_BYTES_PER_SEEK: u64 = 64;
/// What a merge or a flush costs whatever its size, in seeks: its files are made durable, and so is the manifest.
pub(super) const SEEKS_PER_INSTALL: u64 = 5_000;
/// Tables whose sizes differ by no more than this factor belong to one size class.
const CLASS_FACTOR: u64 = 4;
/// A group with this many times the upper tables that it should have is merged before others go on.
const URGENT_FACTOR: usize = 2;
/// A tier merge of fewer tables rewrites too much for what it saves.
const TIER_WIDTH_MIN: usize = 4;

impl PickRules {
    /// The upper bytes that a database with these last-level bytes may hold.
    pub fn budget(&self, last_bytes: u64) -> u64 {
        ((last_bytes as f64 * self.upper_fraction) as u64).max(self.floor_bytes)
    }

    /// How far the upper bytes are above the budget: 0 at the budget, 1 at twice the budget.
    pub fn debt(&self, upper_bytes: u64, last_bytes: u64) -> f64 {
        let budget = self.budget(last_bytes);
        (upper_bytes as f64 - budget as f64) / budget.max(1) as f64
    }

    /// The most useful piece of work, if there is any.
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

    /// A tier merge that should not wait for a long merge of another group: reads there ask too many tables.
    pub fn pick_urgent(&self, groups: &[GroupSize]) -> Option<Picked> {
        let crowded = |g: &GroupSize| !g.busy && g.upper.len() > URGENT_FACTOR * self.tables_max;
        let group = groups.iter().position(crowded)?;
        let (from, to) = similar_window(&groups[group].upper)?;
        let work = Work::Tier { from, to };
        Some(Picked { group, work })
    }

    /// The next merge where nothing is due: of the group whose merge scans have paid for most, of those that have paid this
    /// share of its price.
    pub fn pick_read_triggered(&self, groups: &[GroupSize], share: f64) -> Option<Picked> {
        let free = |g: &GroupSize| !g.busy && !g.upper.is_empty();
        let paid = groups.iter().map(GroupSize::paid_by_scans).enumerate();
        let paid = paid.filter(|(i, paid)| free(&groups[*i]) && *paid >= share);
        let (group, _) = paid.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let work = Work::LastLevel;
        Some(Picked { group, work })
    }

    /// The next merge for a caller who waits until everything is settled: of a group whose last level has anything that no
    /// reader needs. After it the group has nothing of the kind.
    pub fn pick_reclaim(&self, groups: &[GroupSize]) -> Option<Picked> {
        let group = groups.iter().position(|g| !g.busy && g.last_dead > 0)?;
        let work = Work::LastLevel;
        Some(Picked { group, work })
    }

    /// The next merge where nothing is due and nobody writes: until no group has upper tables, nor anything that a
    /// snapshot had kept. The densest first, for writers may come back at any moment.
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

/// The group with the largest share of tombstones among those that are full of them.
fn full_of_tombstones(groups: &[GroupSize]) -> Option<usize> {
    let full = groups
        .iter()
        .enumerate()
        .filter(|(_, g)| !g.busy && !g.upper.is_empty() && g.dead_share() >= 1.0);
    let most = full.max_by(|(_, a), (_, b)| a.dead_share().total_cmp(&b.dead_share()));
    most.map(|(i, _)| i)
}

/// The widest run of neighbouring tables of one size class; the newest of equally wide ones.
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
mod tests;
