//! Fold: which versions of one key a compaction keeps, and in which form. Pure: the one place that
//! may drop an entry.
//!
//! A merge hands over all versions of a key that its inputs hold, newest first, and gets back the
//! versions to write. Rules, in this order:
//!
//! 1. **Cancel.** A delete directly above an `insert`, both at or below the drop horizon, vanish
//!    together: the caller of `insert` promised that the key was absent, so no older version can
//!    reappear. Only inserts cancel, never covering puts. Range deletes do not cancel either: they
//!    stay where they are.
//! 2. **Shadow.** A version is dropped when every read point sees a newer one. An insert that
//!    shadows another version becomes a covering put. Otherwise a later delete would cancel it and
//!    bring back the older version from a lower table.
//! 3. **Bottom.** This rule applies if the inputs hold everything older than their newest entry for
//!    the key. A delete that is the oldest version kept has nothing left to hide and is dropped,
//!    once it is at or below the horizon (conflict checks of older snapshots need it until then).
//!    Sequence numbers at or below the horizon are stored as 0: no open transaction can compare
//!    with them.

use crate::base::{SeqNo, ValueKind};
use crate::read_points::DropPoints;

/// One version of the key under consideration; `at` is the caller's handle for its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub seqno: SeqNo,
    pub kind: ValueKind,
    pub at: usize,
}

/// Facts about the merge as a whole.
pub(crate) struct FoldRules<'a> {
    /// Read points, which decide on the versions that may be dropped.
    pub points: &'a DropPoints,
    /// True if the inputs hold everything older than their newest entry, for all keys of the merge.
    pub bottom: bool,
}

/// Numbers of versions that folds dropped, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FoldCounts {
    pub shadowed: u64,
    pub canceled_pairs: u64,
    pub tombstones: u64,
}

impl FoldRules<'_> {
    /// Folds the versions of one key that [`FoldRules::cancel`] left, in place. They are newest
    /// first, with strictly descending sequence numbers. Range deletes over the key are versions of
    /// it.
    pub fn fold(&self, versions: &mut Vec<Version>, counts: &mut FoldCounts) {
        debug_assert!(versions.windows(2).all(|w| w[0].seqno > w[1].seqno));
        if let [only] = versions.as_slice() {
            // The common case: nothing to compare, only the bottom rules apply.
            let mut only = *only;
            let gone = self.finish_oldest(&mut only, counts);
            versions.clear();
            if !gone {
                versions.push(only);
            }
            return;
        }
        self.shadow(versions, counts);
        if let Some(oldest) = versions.last_mut() {
            let mut last = *oldest;
            if self.finish_oldest(&mut last, counts) {
                versions.pop();
            } else {
                *oldest = last;
            }
        }
    }

    /// Removes pairs of an insert and the delete above it.
    pub fn cancel(&self, versions: &mut Vec<Version>, counts: &mut FoldCounts) {
        let horizon = self.points.horizon();
        let mut i = 0;
        while i + 1 < versions.len() {
            let (newer, older) = (versions[i], versions[i + 1]);
            let pair = newer.kind == ValueKind::Delete && older.kind.is_insert();
            if pair && newer.seqno <= horizon {
                versions.drain(i..i + 2);
                counts.canceled_pairs += 1;
                // The version above the pair is now above the version below the pair.
                i = i.saturating_sub(1);
            } else {
                i += 1;
            }
        }
    }

    fn shadow(&self, versions: &mut Vec<Version>, counts: &mut FoldCounts) {
        let mut kept = 0;
        for i in 0..versions.len() {
            let version = versions[i];
            // Compares with the next newer version of all, kept or not: read points between the two
            // decide.
            let droppable = i > 0 && self.points.can_drop(version.seqno, versions[i - 1].seqno);
            if droppable {
                let above = &mut versions[kept - 1];
                above.kind = above.kind.covering();
                counts.shadowed += 1;
            } else {
                versions[kept] = version;
                kept += 1;
            }
        }
        versions.truncate(kept);
    }

    /// Applies the bottom rules to the oldest version kept; returns true if it is dropped.
    fn finish_oldest(&self, oldest: &mut Version, counts: &mut FoldCounts) -> bool {
        if !self.bottom || oldest.seqno > self.points.horizon() {
            return false;
        }
        if matches!(oldest.kind, ValueKind::Delete | ValueKind::RangeDelete) {
            counts.tombstones += 1;
            return true;
        }
        oldest.seqno = 0;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the versions of one key.
    fn versions(text: &str) -> Vec<Version> {
        // "d9 i7 p3": newest first.
        let kind = |c| match c {
            'i' => ValueKind::Insert,
            'p' => ValueKind::Put,
            _ => ValueKind::Delete,
        };
        text.split_whitespace()
            .map(|w| {
                let seqno = w[1..].parse().unwrap();
                Version {
                    seqno,
                    kind: kind(w.chars().next().unwrap()),
                    at: seqno as usize,
                }
            })
            .collect()
    }

    fn shown(versions: &[Version]) -> String {
        let letter = |k| match k {
            ValueKind::Insert => 'i',
            ValueKind::Put => 'p',
            _ => 'd',
        };
        let words: Vec<_> = versions
            .iter()
            .map(|v| format!("{}{}", letter(v.kind), v.seqno))
            .collect();
        words.join(" ")
    }

    fn fold(text: &str, visible: SeqNo, registered: &[SeqNo], bottom: bool) -> String {
        let points = DropPoints::new(visible, registered.to_vec());
        let mut list = versions(text);
        let rules = FoldRules {
            points: &points,
            bottom,
        };
        rules.cancel(&mut list, &mut FoldCounts::default());
        rules.fold(&mut list, &mut FoldCounts::default());
        shown(&list)
    }

    #[test]
    fn compactions_above_the_last_level_follow_the_rules() {
        for (input, registered, expected) in [
            ("p9 p7 p3", &[][..], "p9"),
            ("p9 p7 p3", &[7][..], "p9 p7"),
            ("p9 p7 p3", &[5, 8][..], "p9 p7 p3"),
            ("d9 i7", &[][..], ""),
            ("d9 i7", &[8][..], "d9 i7"),
            ("d9 i7 d5", &[][..], "d5"),
            ("i9 d7 i5", &[][..], "i9"),
            ("i9 d7", &[][..], "p9"),
            ("d9 p7", &[][..], "d9"),
            ("d9 i7 d5 i3", &[][..], ""),
            ("d200 i7", &[][..], "d200 i7"),
            ("d9", &[][..], "d9"),
        ] {
            assert_eq!(
                fold(input, 100, registered, false),
                expected,
                "{input} with {registered:?}"
            );
        }
    }

    #[test]
    fn compactions_into_the_last_level_drop_tombstones_and_seqnos_at_or_below_the_horizon() {
        for (input, registered, expected) in [
            ("p9 p7", &[][..], "p0"),
            ("d9 p7", &[][..], ""),
            ("d9 p7", &[8][..], "d9 p0"),
            ("d9", &[8][..], "d9"),
            ("p200 d9", &[][..], "p200"),
            ("p200", &[][..], "p200"),
            ("p9", &[5][..], "p9"),
            ("p200 p9", &[][..], "p200 p0"),
        ] {
            assert_eq!(
                fold(input, 100, registered, true),
                expected,
                "{input} with {registered:?}"
            );
        }
    }

    /// Returns the value that a reader at `point` sees in sources given newest first.
    fn visible(sources: &[Vec<Version>], point: SeqNo) -> Option<usize> {
        let hit = sources.iter().flatten().find(|v| v.seqno <= point)?;
        (hit.kind != ValueKind::Delete).then_some(hit.at)
    }

    /// Enumerates histories of one key (each step a put, a legal insert or a delete), all sets of
    /// read points, and all ways to merge adjacent sources down to one. Every registered point
    /// keeps seeing the same value, and deleted rows never return.
    #[test]
    fn no_compaction_order_of_any_short_history_changes_the_view_of_a_read_point() {
        for length in 1..=5u32 {
            for code in 0..3u32.pow(length) {
                let mut history = Vec::new();
                let mut present = false;
                let mut legal = true;
                for step in 0..length {
                    let kind = [ValueKind::Put, ValueKind::Insert, ValueKind::Delete]
                        [(code / 3u32.pow(step) % 3) as usize];
                    legal &= !(kind == ValueKind::Insert && present);
                    present = kind != ValueKind::Delete;
                    let seqno = u64::from(step + 1) * 10;
                    history.push(Version {
                        seqno,
                        kind,
                        at: seqno as usize,
                    });
                }
                if legal {
                    check_history(&history);
                }
            }
        }
    }

    fn check_history(history: &[Version]) {
        let n = history.len();
        for mask in 0..1u32 << n {
            let registered: Vec<SeqNo> = (0..n)
                .filter(|i| mask >> i & 1 == 1)
                .map(|i| history[i].seqno + 5)
                .collect();
            let sources: Vec<_> = history.iter().rev().map(|v| vec![*v]).collect();
            let expected: Vec<_> = registered.iter().map(|p| visible(&sources, *p)).collect();
            merge_all_ways(&sources, &registered, &expected, history);
        }
    }

    fn merge_all_ways(
        sources: &[Vec<Version>],
        registered: &[SeqNo],
        expected: &[Option<usize>],
        history: &[Version],
    ) {
        let newest = history.len() as u64 * 10 + 5;
        let last = visible(&[history.iter().rev().copied().collect()], newest);
        let seen: Vec<_> = registered.iter().map(|p| visible(sources, *p)).collect();
        assert_eq!(seen, expected, "{history:?} {registered:?} {sources:?}");
        assert_eq!(
            visible(sources, newest),
            last,
            "{history:?} {registered:?} {sources:?}"
        );
        for from in 0..sources.len() {
            for to in from + 2..=sources.len() {
                for drop_points in 0..2 {
                    // A snapshot may be closed between two merges: then nothing is registered any
                    // more.
                    let points = if drop_points == 0 {
                        registered.to_vec()
                    } else {
                        Vec::new()
                    };
                    let rules_points = DropPoints::new(newest, points.clone());
                    let mut merged: Vec<_> = sources[from..to].iter().flatten().copied().collect();
                    let rules = FoldRules {
                        points: &rules_points,
                        bottom: to == sources.len(),
                    };
                    rules.cancel(&mut merged, &mut FoldCounts::default());
                    rules.fold(&mut merged, &mut FoldCounts::default());
                    let mut next: Vec<_> = sources[..from].to_vec();
                    next.push(merged);
                    next.extend_from_slice(&sources[to..]);
                    let still: Vec<_> = points.iter().map(|p| visible(sources, *p)).collect();
                    merge_all_ways(&next, &points, &still, history);
                }
            }
        }
    }
}
