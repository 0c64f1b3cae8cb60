//! The groups of one keyspace in the manifest's state, by their low keys.
//!
//! A sorted list: most keyspaces have one group, large ones some dozens, and a map's node would cost each of thousands of
//! keyspaces more than all else that is kept of it.

use std::ops::Index;

use super::state::GroupState;

/// A sorted list of groups; see the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// In the order of the low keys, which differ.
    list: Vec<(Vec<u8>, GroupState)>,
}

impl Groups {
    /// One group without tables, for all keys: what a new keyspace has.
    pub fn one() -> Groups {
        // The macro allocates for one; a push would for four.
        Groups {
            list: vec![(Vec::new(), GroupState::default())],
        }
    }

    /// Low keys and groups, in key order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Vec<u8>, &GroupState)> {
        self.list.iter().map(|(low, group)| (low, group))
    }

    /// The groups, in key order.
    pub fn values(&self) -> impl Iterator<Item = &GroupState> {
        self.list.iter().map(|(_, group)| group)
    }

    /// File bytes of the last level.
    pub fn last_bytes(&self) -> u64 {
        let last = self.values().flat_map(|group| &group.last);
        last.map(|record| record.file_bytes).sum()
    }

    /// The group that begins at `low`.
    pub fn get(&self, low: &[u8]) -> Option<&GroupState> {
        let place = self.place(low).ok()?;
        Some(&self.list[place].1)
    }

    /// The low key of the group whose range holds `key`. `None` without groups alone.
    pub fn low_of(&self, key: &[u8]) -> Option<&Vec<u8>> {
        let after = self.list.partition_point(|(low, _)| &low[..] <= key);
        Some(&self.list[after.checked_sub(1)?].0)
    }

    /// Where the group at `low` ends: the low key of its right neighbour.
    pub fn high_of(&self, low: &[u8]) -> Option<&[u8]> {
        self.lows_after(low).next().map(Vec::as_slice)
    }

    /// The low keys above `key`, in order.
    pub fn lows_after(&self, key: &[u8]) -> impl Iterator<Item = &Vec<u8>> {
        let after = self.list.partition_point(|(low, _)| &low[..] <= key);
        self.list[after..].iter().map(|(low, _)| low)
    }

    pub(super) fn get_mut(&mut self, low: &[u8]) -> Option<&mut GroupState> {
        let place = self.place(low).ok()?;
        Some(&mut self.list[place].1)
    }

    /// Adds an empty group at `low`, where none begins yet.
    pub(super) fn add(&mut self, low: &[u8]) {
        if let Err(place) = self.place(low) {
            self.list
                .insert(place, (low.to_vec(), GroupState::default()));
        }
    }

    /// Takes the group at `low` away and returns it with the low key of its left neighbour, if it has one.
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

    /// # Panics
    ///
    /// Where no group begins at `low`.
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
