//! Groups of one keyspace in the manifest's state, by their low keys, with their tables.
//!
//! A sorted list: most keyspaces have one group, large ones some dozens. With thousands of
//! keyspaces, a map's node for each would take more memory than everything else stored for the
//! keyspace.

use std::ops::Index;

use super::edit::TableRecord;

/// Tables of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Upper tables with their runs, newest run first, tables of one run in key order.
    pub upper: Vec<(u64, TableRecord)>,
    /// The last level, in key order, without overlaps.
    pub last: Vec<TableRecord>,
}

impl GroupState {
    /// Returns all tables of the group.
    pub fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        self.upper.iter().map(|(_, table)| table).chain(&self.last)
    }
}

/// Sorted list of groups, one keyspace's key ranges with their tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// In the order of the low keys, which are distinct.
    list: Vec<(Vec<u8>, GroupState)>,
}

impl Groups {
    /// Returns the groups of a new keyspace: one group without tables, for all keys.
    pub fn one() -> Groups {
        // The macro allocates for one; a push would for four.
        Groups {
            list: vec![(Vec::new(), GroupState::default())],
        }
    }

    /// Returns low keys and groups, in key order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Vec<u8>, &GroupState)> {
        self.list.iter().map(|(low, group)| (low, group))
    }

    /// Returns the groups, in key order.
    pub fn values(&self) -> impl Iterator<Item = &GroupState> {
        self.list.iter().map(|(_, group)| group)
    }

    /// Returns the file bytes of the last level.
    pub fn last_bytes(&self) -> u64 {
        let last = self.values().flat_map(|group| &group.last);
        last.map(|record| record.file_bytes).sum()
    }

    /// Returns the group that begins at `low`.
    pub fn get(&self, low: &[u8]) -> Option<&GroupState> {
        let place = self.place(low).ok()?;
        Some(&self.list[place].1)
    }

    /// Returns the low key of the group with `key` in its range; `None` only if there are no
    /// groups.
    pub fn low_of(&self, key: &[u8]) -> Option<&Vec<u8>> {
        let after = self.list.partition_point(|(low, _)| &low[..] <= key);
        Some(&self.list[after.checked_sub(1)?].0)
    }

    /// Returns the end of the group at `low`: the low key of its right neighbor.
    pub fn high_of(&self, low: &[u8]) -> Option<&[u8]> {
        self.lows_after(low).next().map(Vec::as_slice)
    }

    /// Returns the low keys above `key`, in order.
    pub fn lows_after(&self, key: &[u8]) -> impl Iterator<Item = &Vec<u8>> {
        let after = self.list.partition_point(|(low, _)| &low[..] <= key);
        self.list[after..].iter().map(|(low, _)| low)
    }

    pub(crate) fn get_mut(&mut self, low: &[u8]) -> Option<&mut GroupState> {
        let place = self.place(low).ok()?;
        Some(&mut self.list[place].1)
    }

    /// Adds an empty group at `low`, unless one begins there.
    pub(super) fn add(&mut self, low: &[u8]) {
        if let Err(place) = self.place(low) {
            self.list
                .insert(place, (low.to_vec(), GroupState::default()));
        }
    }

    /// Removes the group at `low` and returns it with the low key of its left neighbor. `None`, and
    /// no change, if there is no such group or neighbor.
    pub(super) fn take(&mut self, low: &[u8]) -> Option<(Vec<u8>, GroupState)> {
        let place = self.place(low).ok()?;
        let left = self.list[place.checked_sub(1)?].0.clone();
        Some((left, self.list.remove(place).1))
    }

    fn place(&self, low: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|(other, _)| other[..].cmp(low))
    }
}

impl Index<&[u8]> for Groups {
    type Output = GroupState;

    /// Returns the group that begins at `low`.
    ///
    /// # Panics
    ///
    /// Panics if no group begins at `low`.
    fn index(&self, low: &[u8]) -> &GroupState {
        self.get(low).expect("a group begins there")
    }
}

impl FromIterator<(Vec<u8>, GroupState)> for Groups {
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, GroupState)>>(groups: I) -> Groups {
        let mut list: Vec<_> = groups.into_iter().collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        Groups { list }
    }
}
