//! Which group to merge next, and how: a pure function of sizes, so that it is tested as text.
//!
//! Each keyspace is a list of groups (key ranges); here are those of all keyspaces. A group holds upper tables, newest
//! first, and a run of last-level tables. Two kinds of work:
//!
//! - **Last-level merge** of one whole group, when the upper bytes of the database exceed their budget,
//!   `upper_fraction` of its last levels but at least a floor. The densest group goes first: it has the most upper
//!   bytes per byte to rewrite, and tombstones count several times, because merging them returns space.
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
    /// A job owns it.
    pub busy: bool,
}

impl GroupSize {
    fn upper_bytes(&self) -> u64 {
        self.upper.iter().map(|u| u.bytes).sum()
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
/// Tables whose sizes differ by no more than this factor belong to one size class.
const CLASS_FACTOR: u64 = 4;
/// A tier merge of fewer tables rewrites too much for what it saves.
const TIER_WIDTH_MIN: usize = 4;

impl PickRules {
    /// The upper bytes that a database with these last-level bytes may hold.
    pub fn budget(&self, last_bytes: u64) -> u64 {
        ((last_bytes as f64 * self.upper_fraction) as u64).max(self.floor_bytes)
    }

    /// How far the upper bytes are above the budget: 0 at the budget, 1 at twice the budget.
    pub fn debt(&self, groups: &[GroupSize]) -> f64 {
        let upper: u64 = groups.iter().map(GroupSize::upper_bytes).sum();
        let budget = self.budget(groups.iter().map(|g| g.last_bytes).sum());
        (upper as f64 - budget as f64) / budget.max(1) as f64
    }

    /// The most useful piece of work, if there is any.
    pub fn pick(&self, groups: &[GroupSize]) -> Option<Picked> {
        let over_budget = self.debt(groups) > 0.0;
        let densest = (over_budget).then(|| self.densest(groups)).flatten();
        if let Some(group) = densest {
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
mod tests {
    use super::*;

    const RULES: PickRules = PickRules {
        upper_fraction: 0.15,
        floor_bytes: 100,
        tables_max: 6,
    };

    fn group(upper: &[u64], last_bytes: u64) -> GroupSize {
        let upper = upper
            .iter()
            .map(|&bytes| UpperSize {
                bytes,
                tombstone_bytes: 0,
            })
            .collect();
        GroupSize {
            upper,
            last_bytes,
            busy: false,
        }
    }

    #[test]
    fn nothing_is_picked_within_the_budget() {
        assert_eq!(RULES.pick(&[group(&[100], 0)]), None);
        assert_eq!(RULES.pick(&[group(&[150], 500), group(&[], 500)]), None);
    }

    #[test]
    fn the_densest_group_goes_first_and_busy_ones_are_left_alone() {
        let mut groups = [group(&[100], 1000), group(&[100], 500), group(&[60], 0)];
        assert_eq!(
            RULES.pick(&groups),
            Some(Picked {
                group: 2,
                work: Work::LastLevel
            })
        );
        groups[2].busy = true;
        assert_eq!(
            RULES.pick(&groups),
            Some(Picked {
                group: 1,
                work: Work::LastLevel
            })
        );
    }

    #[test]
    fn a_group_full_of_tombstones_beats_a_denser_one() {
        let mut groups = [group(&[200], 1000), group(&[300], 1000)];
        groups[0].upper[0].tombstone_bytes = 200;
        assert_eq!(
            RULES.pick(&groups),
            Some(Picked {
                group: 0,
                work: Work::LastLevel
            })
        );
    }

    #[test]
    fn many_small_upper_tables_are_tiered_by_size_class() {
        let groups = [group(&[10, 12, 9, 30, 10, 200, 900], 100_000)];
        assert_eq!(
            RULES.pick(&groups),
            Some(Picked {
                group: 0,
                work: Work::Tier { from: 0, to: 5 }
            })
        );
    }
}
