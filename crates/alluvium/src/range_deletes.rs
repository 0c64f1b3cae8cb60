//! The range deletes of one source (a memtable, a table, a merge), cut into fragments that do not overlap.
//!
//! A range delete with seqno `t` hides every entry of its range whose seqno is below `t`; entries of its own commit
//! are not hidden. A fragment has every seqno that covers all of it, so a reader finds with one binary search what
//! hides a key at its read point. Fragments are shared between copies: the list of an active memtable is replaced at
//! each range delete, while readers keep the old one.

use std::sync::Arc;

use crate::base::SeqNo;

/// A range of keys with the range deletes that cover all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Inclusive.
    pub start: Box<[u8]>,
    /// Exclusive, above `start`.
    pub end: Box<[u8]>,
    /// Falling, at least one.
    pub seqnos: Box<[SeqNo]>,
}

/// See the module. Fragments are in key order and do not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeDeletes {
    fragments: Vec<Arc<Fragment>>,
}

impl Fragment {
    /// The newest range delete that a reader at `read_point` sees here.
    pub fn newest_at(&self, read_point: SeqNo) -> Option<SeqNo> {
        let newer = self.seqnos.partition_point(|&seqno| seqno > read_point);
        self.seqnos.get(newer).copied()
    }

    /// The newest of all.
    pub fn newest(&self) -> SeqNo {
        self.seqnos.first().copied().unwrap_or(0)
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        &*self.start <= key && key < &*self.end
    }

    fn part(&self, start: &[u8], end: &[u8]) -> Arc<Fragment> {
        Arc::new(Fragment {
            start: start.into(),
            end: end.into(),
            seqnos: self.seqnos.clone(),
        })
    }

    fn with(&self, start: &[u8], end: &[u8], seqno: SeqNo) -> Arc<Fragment> {
        let mut seqnos = self.seqnos.to_vec();
        let at = seqnos.partition_point(|&s| s > seqno);
        if seqnos.get(at) != Some(&seqno) {
            seqnos.insert(at, seqno);
        }
        Arc::new(Fragment {
            start: start.into(),
            end: end.into(),
            seqnos: seqnos.into(),
        })
    }
}

impl RangeDeletes {
    /// Those of these fragments, which are in order and do not overlap; `None` where they are not or one is malformed.
    pub fn from_fragments(fragments: Vec<Fragment>) -> Option<RangeDeletes> {
        let in_order = fragments.windows(2).all(|w| w[0].end <= w[1].start);
        let sound = |f: &Fragment| {
            f.start < f.end && !f.seqnos.is_empty() && f.seqnos.windows(2).all(|w| w[0] > w[1])
        };
        (in_order && fragments.iter().all(sound)).then(|| RangeDeletes {
            fragments: fragments.into_iter().map(Arc::new).collect(),
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// In key order.
    pub fn fragments(&self) -> &[Arc<Fragment>] {
        &self.fragments
    }

    /// Adds a range delete. An empty range adds nothing. Cost: a copy of the list, and of the fragments that it meets.
    pub fn add(&mut self, start: &[u8], end: &[u8], seqno: SeqNo) {
        if start >= end {
            return;
        }
        let from = self.fragments.partition_point(|f| &*f.end <= start);
        let to = self.fragments.partition_point(|f| &*f.start < end);
        let mut cut = Vec::with_capacity(2 * (to - from) + 1);
        let fresh = |start: &[u8], end: &[u8]| {
            Arc::new(Fragment {
                start: start.into(),
                end: end.into(),
                seqnos: [seqno].into(),
            })
        };
        let mut done: &[u8] = start;
        for old in &self.fragments[from..to] {
            if &*old.start < start {
                cut.push(old.part(&old.start, start));
            } else if done < &*old.start {
                cut.push(fresh(done, &old.start));
            }
            let (low, high) = (start.max(&old.start), end.min(&old.end));
            cut.push(old.with(low, high, seqno));
            if end < &*old.end {
                cut.push(old.part(end, &old.end));
            }
            done = high;
        }
        if done < end {
            cut.push(fresh(done, end));
        }
        self.fragments.splice(from..to, cut);
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &RangeDeletes) {
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        for fragment in &other.fragments {
            for &seqno in &fragment.seqnos {
                self.add(&fragment.start, &fragment.end, seqno);
            }
        }
    }

    /// The fragment that `key` lies in.
    pub fn find(&self, key: &[u8]) -> Option<&Arc<Fragment>> {
        let at = self.fragments.partition_point(|f| &*f.end <= key);
        self.fragments.get(at).filter(|f| &*f.start <= key)
    }

    /// The newest range delete over `key` that a reader at `read_point` sees; 0 when there is none.
    pub fn deleted_at(&self, key: &[u8], read_point: SeqNo) -> SeqNo {
        let fragment = self.find(key);
        fragment
            .and_then(|f| f.newest_at(read_point))
            .unwrap_or_default()
    }

    /// A key from `start` to `end` (exclusive; `None`: all the rest) that a range delete above `snapshot` covers, if
    /// there is one.
    pub fn newer_in(&self, start: &[u8], end: Option<&[u8]>, snapshot: SeqNo) -> Option<Vec<u8>> {
        let from = self.fragments.partition_point(|f| &*f.end <= start);
        let mut inside = self.fragments[from..]
            .iter()
            .take_while(|f| end.is_none_or(|end| &*f.start < end));
        let newer = inside.find(|f| f.newest() > snapshot)?;
        Some(newer.start.as_ref().max(start).to_vec())
    }

    /// The part of them at or above `low` and below `high` (`None`: no limit).
    pub fn clipped(&self, low: &[u8], high: Option<&[u8]>) -> RangeDeletes {
        let from = self.fragments.partition_point(|f| &*f.end <= low);
        let to = high.map_or(self.fragments.len(), |high| {
            self.fragments.partition_point(|f| &*f.start < high)
        });
        let inside = self.fragments.get(from..to).unwrap_or_default();
        let clip = |f: &Arc<Fragment>| {
            let start = low.max(&f.start);
            let end = high.map_or(&*f.end, |high| high.min(&f.end));
            match start == &*f.start && end == &*f.end {
                true => Arc::clone(f),
                false => f.part(start, end),
            }
        };
        RangeDeletes {
            fragments: inside.iter().map(clip).collect(),
        }
    }

    /// Drops what no reader tells from a newer range delete over the same keys: `can_drop(older, newer)`. Neighbours
    /// that have become alike are joined.
    pub fn thin(&mut self, can_drop: impl Fn(SeqNo, SeqNo) -> bool) {
        let mut thinned: Vec<Arc<Fragment>> = Vec::with_capacity(self.fragments.len());
        for fragment in &self.fragments {
            // Compared with the next newer one of all, kept or not, as versions of a key are.
            let older = fragment.seqnos.windows(2);
            let kept = older.filter(|w| !can_drop(w[1], w[0])).map(|w| w[1]);
            let seqnos: Box<[SeqNo]> = std::iter::once(fragment.newest()).chain(kept).collect();
            match thinned.last_mut() {
                Some(last) if last.end == fragment.start && last.seqnos == seqnos => {
                    *last = last.part(&last.start, &fragment.end);
                }
                _ if seqnos == fragment.seqnos => thinned.push(Arc::clone(fragment)),
                _ => thinned.push(Arc::new(Fragment {
                    start: fragment.start.clone(),
                    end: fragment.end.clone(),
                    seqnos,
                })),
            }
        }
        self.fragments = thinned;
    }

    /// Whether every key from `first` to `last` (inclusive) is hidden from everybody in an entry as new as `newest`,
    /// by range deletes at or below `horizon`.
    pub fn hide_all(&self, first: &[u8], last: &[u8], newest: SeqNo, horizon: SeqNo) -> bool {
        let at = self.fragments.partition_point(|f| &*f.end <= first);
        let mut reached: Option<&[u8]> = None;
        // Ends with the fragments: each one must begin where the one before it ended.
        for fragment in self.fragments.get(at..).unwrap_or_default() {
            let joined = match reached {
                None => &*fragment.start <= first,
                Some(end) => &*fragment.start == end,
            };
            if !joined || fragment.newest_at(horizon).is_none_or(|s| s <= newest) {
                return false;
            }
            if last < &*fragment.end {
                return true;
            }
            reached = Some(&fragment.end);
        }
        false
    }

    /// The smallest and the largest seqno.
    pub fn seqno_range(&self) -> Option<(SeqNo, SeqNo)> {
        let newest = self.fragments.iter().map(|f| f.newest()).max()?;
        let oldest = self.fragments.iter().filter_map(|f| f.seqnos.last());
        Some((oldest.copied().min()?, newest))
    }

    /// The first start and the last end.
    pub fn key_range(&self) -> Option<(&[u8], &[u8])> {
        let (first, last) = (self.fragments.first()?, self.fragments.last()?);
        Some((&first.start, &last.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(ranges: &RangeDeletes) -> String {
        let words = ranges.fragments.iter().map(|f| {
            let key = |k: &[u8]| String::from_utf8_lossy(k).into_owned();
            let seqnos: Vec<String> = f.seqnos.iter().map(u64::to_string).collect();
            format!("{}-{}@{}", key(&f.start), key(&f.end), seqnos.join(","))
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn ranges(text: &str) -> RangeDeletes {
        let mut ranges = RangeDeletes::default();
        for word in text.split_whitespace() {
            let (keys, seqno) = word.split_once('@').unwrap();
            let (start, end) = keys.split_once('-').unwrap();
            ranges.add(start.as_bytes(), end.as_bytes(), seqno.parse().unwrap());
        }
        ranges
    }

    #[test]
    fn overlapping_ranges_are_cut_where_one_begins_or_ends() {
        for (added, expected) in [
            ("b-d@1", "b-d@1"),
            ("b-b@1 d-a@2", ""),
            ("b-d@1 b-d@3 b-d@2", "b-d@3,2,1"),
            ("b-d@1 d-f@2", "b-d@1 d-f@2"),
            ("b-f@1 c-d@2", "b-c@1 c-d@2,1 d-f@1"),
            ("c-d@1 b-f@2", "b-c@2 c-d@2,1 d-f@2"),
            ("b-d@1 e-g@2 c-f@3", "b-c@1 c-d@3,1 d-e@3 e-f@3,2 f-g@2"),
            ("b-d@1 b-d@1", "b-d@1"),
        ] {
            assert_eq!(shown(&ranges(added)), expected, "{added}");
        }
    }

    #[test]
    fn a_reader_meets_the_newest_range_delete_at_its_point() {
        let ranges = ranges("b-f@5 c-d@9");
        for (key, point, expected) in [
            ("a", 10, 0),
            ("b", 4, 0),
            ("b", 5, 5),
            ("c", 8, 5),
            ("c", 9, 9),
            ("d", 9, 5),
            ("f", 9, 0),
        ] {
            let found = ranges.deleted_at(key.as_bytes(), point);
            assert_eq!(found, expected, "{key} at {point}");
        }
    }

    #[test]
    fn clipping_keeps_what_lies_inside() {
        let ranges = ranges("b-d@1 e-g@2");
        let clip = |low: &str, high| shown(&ranges.clipped(low.as_bytes(), high));
        assert_eq!(clip("", None), "b-d@1 e-g@2");
        assert_eq!(clip("c", Some(b"f")), "c-d@1 e-f@2");
        assert_eq!(clip("d", Some(b"e")), "");
        assert_eq!(clip("f", None), "f-g@2");
    }

    #[test]
    fn thinning_keeps_what_a_read_point_tells_apart_and_joins_the_rest() {
        let mut thinned = ranges("b-f@1 c-d@2 b-f@5");
        thinned.thin(|older, _| older != 2);
        assert_eq!(shown(&thinned), "b-c@5 c-d@5,2 d-f@5");
        thinned.thin(|_, _| true);
        assert_eq!(shown(&thinned), "b-f@5");
    }

    #[test]
    fn only_a_gapless_cover_above_the_newest_entry_hides_all() {
        let ranges = ranges("b-d@5 d-f@7 g-k@9");
        for (first, last, newest, horizon, expected) in [
            ("b", "e", 4, 9, true),
            ("b", "f", 4, 9, false),
            ("c", "h", 4, 9, false),
            ("b", "e", 5, 9, false),
            ("d", "e", 6, 9, true),
            ("d", "e", 6, 6, false),
            ("a", "c", 4, 9, false),
            ("k", "l", 4, 9, false),
        ] {
            let found = ranges.hide_all(first.as_bytes(), last.as_bytes(), newest, horizon);
            assert_eq!(found, expected, "{first}..={last} with {newest}");
        }
    }
}
