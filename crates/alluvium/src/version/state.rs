//! What all edits add up to: keyspaces, their groups, the tables listed in them. Plain data, no files.
//!
//! Applying an edit checks it: an edit that contradicts the state was damaged or comes from a mistake in the engine, and
//! neither may go on unnoticed. After a refused edit the state is half changed and must not be used any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Bound;

use super::edit::{GroupEdit, KeyspaceRecord, TableRecord, VersionEdit};
use crate::base::{KeyspaceId, SegmentId, SeqNo, TableId};

/// The sum of all edits so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestState {
    /// The smallest table id never used.
    pub next_table: TableId,
    /// The smallest segment id not known to be used.
    pub next_segment: SegmentId,
    /// The smallest keyspace id never used.
    pub next_keyspace: KeyspaceId,
    /// No entry of a table has a higher seqno.
    pub last_seqno: SeqNo,
    /// The oldest log segment that replay needs; 0 while no edit has said.
    pub oldest_segment: SegmentId,
    /// The keyspaces that exist.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceState>,
    /// How often, and as which file, each table is listed.
    tables: BTreeMap<TableId, Listing>,
}

/// One keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceState {
    /// Its name.
    pub name: String,
    /// Its options, encoded by the keyspace module.
    pub options: Vec<u8>,
    /// Its place in the commit order.
    pub created_seqno: SeqNo,
    /// Everything up to this seqno is in tables.
    pub flushed_seqno: SeqNo,
    /// The groups by their low key; the first one's is empty.
    pub groups: BTreeMap<Vec<u8>, GroupState>,
}

/// The tables of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Upper tables with their runs, newest run first, tables of one run in key order.
    pub upper: Vec<(u64, TableRecord)>,
    /// The last level, in key order, without overlaps.
    pub last: Vec<TableRecord>,
}

/// Why an edit does not fit the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected} expected, {found} found")]
pub struct Inconsistency {
    /// What the state allows.
    pub expected: &'static str,
    /// What the edit says.
    pub found: String,
}

fn refuse<T>(expected: &'static str, found: impl Display) -> Result<T, Inconsistency> {
    Err(Inconsistency {
        expected,
        found: found.to_string(),
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Listing {
    uid: u64,
    count: u64,
}

impl Default for ManifestState {
    fn default() -> ManifestState {
        ManifestState {
            next_table: TableId(1),
            next_segment: SegmentId(1),
            next_keyspace: KeyspaceId(1),
            last_seqno: 0,
            oldest_segment: SegmentId(0),
            keyspaces: BTreeMap::new(),
            tables: BTreeMap::new(),
        }
    }
}

impl ManifestState {
    /// The ids of all tables that are listed anywhere: files with other ids are not part of the database.
    pub fn table_ids(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.keys().copied()
    }

    /// Whether a table is listed anywhere.
    pub fn lists_table(&self, table: TableId) -> bool {
        self.tables.contains_key(&table)
    }

    /// Applies one edit.
    ///
    /// # Errors
    ///
    /// [`Inconsistency`] if it contradicts the state, which is useless afterwards.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<(), Inconsistency> {
        let first_new_keyspace = self.next_keyspace;
        raise(&mut self.next_table, edit.next_table);
        raise(&mut self.next_segment, edit.next_segment);
        raise(&mut self.next_keyspace, edit.next_keyspace);
        raise(&mut self.last_seqno, edit.last_seqno);
        raise(&mut self.oldest_segment, edit.oldest_segment);
        for &(id, _) in &edit.dropped {
            self.drop_keyspace(id)?;
        }
        for (id, name) in &edit.renamed {
            self.keyspace(*id)?.name.clone_from(name);
        }
        for record in &edit.created {
            self.create_keyspace(record, first_new_keyspace)?;
        }
        for (id, options) in &edit.options_changed {
            self.keyspace(*id)?.options.clone_from(options);
        }
        for &(id, seqno) in &edit.flushed_seqno {
            let flushed = &mut self.keyspace(id)?.flushed_seqno;
            if seqno < *flushed {
                return refuse("a flushed seqno that does not fall", seqno);
            }
            *flushed = seqno;
        }
        let mut touched = BTreeSet::new();
        for group in &edit.groups {
            self.apply_group(group, &mut touched)?;
        }
        self.check_names(edit)?;
        touched
            .into_iter()
            .try_for_each(|(id, low)| self.check_group(id, &low))
    }

    /// One edit that makes an empty state equal to this one.
    pub fn to_edit(&self) -> VersionEdit {
        let mut edit = VersionEdit {
            next_table: Some(self.next_table),
            next_segment: Some(self.next_segment),
            next_keyspace: Some(self.next_keyspace),
            last_seqno: Some(self.last_seqno),
            oldest_segment: Some(self.oldest_segment),
            ..VersionEdit::default()
        };
        for (&keyspace, state) in &self.keyspaces {
            edit.created.push(KeyspaceRecord {
                id: keyspace,
                name: state.name.clone(),
                options: state.options.clone(),
                created_seqno: state.created_seqno,
            });
            edit.flushed_seqno.push((keyspace, state.flushed_seqno));
            let mut previous: &[u8] = &[];
            for (low, group) in &state.groups {
                if !low.is_empty() {
                    edit.groups.push(GroupEdit::Split {
                        keyspace,
                        low: previous.to_vec(),
                        at: low.clone(),
                    });
                }
                previous = low;
                group.list(keyspace, low, &mut edit.groups);
            }
        }
        edit
    }

    fn keyspace(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceState, Inconsistency> {
        match self.keyspaces.get_mut(&id) {
            Some(keyspace) => Ok(keyspace),
            None => refuse("an existing keyspace", id),
        }
    }

    fn create_keyspace(
        &mut self,
        record: &KeyspaceRecord,
        first_new: KeyspaceId,
    ) -> Result<(), Inconsistency> {
        // Also true where the edit creates two keyspaces with one id.
        let reused = record.id < first_new || self.keyspaces.contains_key(&record.id);
        if reused || record.id >= self.next_keyspace {
            return refuse("a new keyspace id below the next one", record.id);
        }
        let state = KeyspaceState {
            name: record.name.clone(),
            options: record.options.clone(),
            created_seqno: record.created_seqno,
            flushed_seqno: 0,
            groups: BTreeMap::from([(Vec::new(), GroupState::default())]),
        };
        self.keyspaces.insert(record.id, state);
        Ok(())
    }

    fn drop_keyspace(&mut self, id: KeyspaceId) -> Result<(), Inconsistency> {
        let Some(state) = self.keyspaces.remove(&id) else {
            return refuse("an existing keyspace to drop", id);
        };
        for table in state.groups.values().flat_map(GroupState::tables) {
            self.unlist(table.id)?;
        }
        Ok(())
    }

    fn check_names(&self, edit: &VersionEdit) -> Result<(), Inconsistency> {
        if edit.created.is_empty() && edit.renamed.is_empty() {
            return Ok(());
        }
        let mut names = BTreeSet::new();
        for state in self.keyspaces.values() {
            if !names.insert(&state.name) {
                return refuse("distinct keyspace names", format!("{} twice", state.name));
            }
        }
        Ok(())
    }

    fn apply_group(
        &mut self,
        edit: &GroupEdit,
        touched: &mut BTreeSet<(KeyspaceId, Vec<u8>)>,
    ) -> Result<(), Inconsistency> {
        let (id, low) = (edit.keyspace(), edit.low());
        touched.insert((id, low.to_vec()));
        match edit {
            GroupEdit::AddUpper { table, run, .. } => {
                self.group(id, low)?.add_upper(*run, table)?;
                self.list(table)
            }
            GroupEdit::AddLast { table, .. } => {
                self.group(id, low)?.add_last(table)?;
                self.list(table)
            }
            GroupEdit::RemoveUpper { table, .. } => {
                let upper = &mut self.group(id, low)?.upper;
                take(upper, |(_, listed)| listed.id == *table, *table)?;
                self.unlist(*table)
            }
            GroupEdit::RemoveLast { table, .. } => {
                let last = &mut self.group(id, low)?.last;
                take(last, |listed| listed.id == *table, *table)?;
                self.unlist(*table)
            }
            GroupEdit::Split { at, .. } => {
                touched.insert((id, at.clone()));
                self.split(id, low, at)
            }
            GroupEdit::Join { .. } => {
                let left = self.join(id, low)?;
                touched.insert((id, left));
                Ok(())
            }
        }
    }

    fn group(&mut self, id: KeyspaceId, low: &[u8]) -> Result<&mut GroupState, Inconsistency> {
        match self.keyspace(id)?.groups.get_mut(low) {
            Some(group) => Ok(group),
            None => refuse("an existing group", group_name(id, low)),
        }
    }

    fn split(&mut self, id: KeyspaceId, low: &[u8], at: &[u8]) -> Result<(), Inconsistency> {
        self.group(id, low)?;
        let keyspace = self.keyspace(id)?;
        if at <= low || next_low(&keyspace.groups, low).is_some_and(|next| at >= next) {
            return refuse("a border inside the group", group_name(id, at));
        }
        keyspace.groups.insert(at.to_vec(), GroupState::default());
        Ok(())
    }

    /// Returns the left neighbour's low key.
    fn join(&mut self, id: KeyspaceId, low: &[u8]) -> Result<Vec<u8>, Inconsistency> {
        let groups = &mut self.keyspace(id)?.groups;
        let bounds = (Bound::Unbounded, Bound::Excluded(low));
        let left = groups.range::<[u8], _>(bounds).next_back();
        let left = left.map(|(left, _)| left.clone());
        let (Some(left), Some(group)) = (left, groups.remove(low)) else {
            return refuse("a group with a left neighbour", group_name(id, low));
        };
        let mut listed_twice = Vec::new();
        let target = self.group(id, &left)?;
        for (run, table) in group.upper {
            if target.upper.contains(&(run, table.clone())) {
                listed_twice.push(table.id);
            } else {
                target.add_upper(run, &table)?;
            }
        }
        for table in &group.last {
            target.add_last(table)?;
        }
        listed_twice
            .into_iter()
            .try_for_each(|table| self.unlist(table))?;
        Ok(left)
    }

    fn list(&mut self, table: &TableRecord) -> Result<(), Inconsistency> {
        if table.id >= self.next_table {
            return refuse("a table id below the next one", table.id);
        }
        let listing = self.tables.entry(table.id).or_insert(Listing {
            uid: table.uid,
            count: 0,
        });
        if listing.uid != table.uid {
            return refuse("one file for each table id", table.id);
        }
        listing.count += 1;
        Ok(())
    }

    fn unlist(&mut self, table: TableId) -> Result<(), Inconsistency> {
        match self.tables.get_mut(&table) {
            Some(listing) if listing.count > 1 => listing.count -= 1,
            Some(_) => drop(self.tables.remove(&table)),
            None => return refuse("a listed table", table),
        }
        Ok(())
    }

    /// The last level of a group lies inside its range, in order.
    fn check_group(&self, id: KeyspaceId, low: &[u8]) -> Result<(), Inconsistency> {
        let groups = self.keyspaces.get(&id).map(|keyspace| &keyspace.groups);
        let Some((groups, group)) = groups.and_then(|groups| Some((groups, groups.get(low)?)))
        else {
            // Joined or dropped by the same edit.
            return Ok(());
        };
        for pair in group.last.windows(2) {
            if pair[0].last_key >= pair[1].first_key {
                let found = format!("{} and {}", pair[0].id, pair[1].id);
                return refuse("last-level tables without overlap", found);
            }
        }
        let next = next_low(groups, low);
        let outside = group.last.iter().find(|table| {
            &table.first_key[..] < low || next.is_some_and(|next| &table.last_key[..] >= next)
        });
        match outside {
            Some(table) => refuse("last-level tables inside their group", table.id),
            None => Ok(()),
        }
    }
}

impl GroupState {
    /// All tables of the group.
    pub fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        self.upper.iter().map(|(_, table)| table).chain(&self.last)
    }

    fn add_upper(&mut self, run: u64, table: &TableRecord) -> Result<(), Inconsistency> {
        self.check_unlisted(table.id)?;
        let place = self.upper.partition_point(|(other_run, other)| {
            *other_run > run || (*other_run == run && other.first_key < table.first_key)
        });
        self.upper.insert(place, (run, table.clone()));
        Ok(())
    }

    fn add_last(&mut self, table: &TableRecord) -> Result<(), Inconsistency> {
        self.check_unlisted(table.id)?;
        let place = self
            .last
            .partition_point(|other| other.first_key < table.first_key);
        self.last.insert(place, table.clone());
        Ok(())
    }

    fn check_unlisted(&self, table: TableId) -> Result<(), Inconsistency> {
        if self.tables().any(|other| other.id == table) {
            return refuse("a table that the group does not list yet", table);
        }
        Ok(())
    }

    /// The edits that fill an empty group.
    fn list(&self, keyspace: KeyspaceId, low: &[u8], out: &mut Vec<GroupEdit>) {
        out.extend(self.upper.iter().map(|(run, table)| GroupEdit::AddUpper {
            keyspace,
            low: low.to_vec(),
            table: table.clone(),
            run: *run,
        }));
        out.extend(self.last.iter().map(|table| GroupEdit::AddLast {
            keyspace,
            low: low.to_vec(),
            table: table.clone(),
        }));
    }
}

fn raise<T: Ord>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value.filter(|value| *value > *slot) {
        *slot = value;
    }
}

fn take<T>(
    list: &mut Vec<T>,
    is_it: impl Fn(&T) -> bool,
    table: TableId,
) -> Result<(), Inconsistency> {
    match list.iter().position(is_it) {
        Some(place) => drop(list.remove(place)),
        None => return refuse("a table that the group lists", table),
    }
    Ok(())
}

fn next_low<'a>(groups: &'a BTreeMap<Vec<u8>, GroupState>, low: &[u8]) -> Option<&'a [u8]> {
    let bounds = (Bound::Excluded(low), Bound::Unbounded);
    let mut above = groups.range::<[u8], _>(bounds);
    above.next().map(|(next, _)| &next[..])
}

fn group_name(id: KeyspaceId, low: &[u8]) -> String {
    format!("{id} at key {}", low.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYSPACE: KeyspaceId = KeyspaceId(1);

    fn table(id: u64, first: &str, last: &str) -> TableRecord {
        TableRecord {
            id: TableId(id),
            uid: id,
            file_bytes: 0,
            entries: 0,
            tombstones: 0,
            raw_bytes: 0,
            first_key: first.into(),
            last_key: last.into(),
            min_seqno: 1,
            max_seqno: 2,
            global_seqno: None,
        }
    }

    fn add_upper(low: &str, table: TableRecord, run: u64) -> GroupEdit {
        GroupEdit::AddUpper {
            keyspace: KEYSPACE,
            low: low.into(),
            table,
            run,
        }
    }

    fn add_last(low: &str, table: TableRecord) -> GroupEdit {
        GroupEdit::AddLast {
            keyspace: KEYSPACE,
            low: low.into(),
            table,
        }
    }

    fn remove_last(low: &str, table: u64) -> GroupEdit {
        GroupEdit::RemoveLast {
            keyspace: KEYSPACE,
            low: low.into(),
            table: TableId(table),
        }
    }

    fn remove_upper(low: &str, table: u64) -> GroupEdit {
        GroupEdit::RemoveUpper {
            keyspace: KEYSPACE,
            low: low.into(),
            table: TableId(table),
        }
    }

    fn split(low: &str, at: &str) -> GroupEdit {
        GroupEdit::Split {
            keyspace: KEYSPACE,
            low: low.into(),
            at: at.into(),
        }
    }

    fn join(low: &str) -> GroupEdit {
        GroupEdit::Join {
            keyspace: KEYSPACE,
            low: low.into(),
        }
    }

    fn groups(groups: Vec<GroupEdit>) -> VersionEdit {
        VersionEdit {
            groups,
            ..VersionEdit::default()
        }
    }

    fn create(id: u32, name: &str) -> VersionEdit {
        VersionEdit {
            next_table: Some(TableId(100)),
            next_keyspace: Some(KeyspaceId(id + 1)),
            created: vec![KeyspaceRecord {
                id: KeyspaceId(id),
                name: name.to_owned(),
                options: vec![7],
                created_seqno: 3,
            }],
            ..VersionEdit::default()
        }
    }

    fn one_keyspace() -> ManifestState {
        let mut state = ManifestState::default();
        state.apply(&create(1, "links")).unwrap();
        state
    }

    /// Tables of each group, upper ones first: `low: 5 4 | 2 3`.
    fn picture(state: &ManifestState) -> Vec<String> {
        let groups = &state.keyspaces[&KEYSPACE].groups;
        let ids = |tables: &mut dyn Iterator<Item = &TableRecord>| {
            let ids: Vec<String> = tables.map(|table| table.id.0.to_string()).collect();
            ids.join(" ")
        };
        groups
            .iter()
            .map(|(low, group)| {
                let upper = ids(&mut group.upper.iter().map(|(_, table)| table));
                let last = ids(&mut group.last.iter());
                format!("{}: {upper} | {last}", low.escape_ascii())
            })
            .collect()
    }

    #[test]
    fn groups_list_upper_tables_newest_first_and_the_last_level_in_key_order() {
        let mut state = one_keyspace();
        let edit = groups(vec![
            add_upper("", table(1, "k", "p"), 10),
            add_upper("", table(2, "a", "z"), 12),
            add_upper("", table(3, "a", "j"), 10),
            add_last("", table(5, "m", "z")),
            add_last("", table(4, "a", "l")),
        ]);
        state.apply(&edit).unwrap();
        assert_eq!(picture(&state), [": 2 3 1 | 4 5"]);
        let edit = groups(vec![
            remove_upper("", 3),
            remove_upper("", 2),
            remove_last("", 4),
        ]);
        state.apply(&edit).unwrap();
        assert_eq!(picture(&state), [": 1 | 5"]);
        let listed: Vec<u64> = state.table_ids().map(|id| id.0).collect();
        assert_eq!(listed, [1, 5]);
    }

    #[test]
    fn a_split_starts_empty_and_a_join_unites() {
        let mut state = one_keyspace();
        let (upper, right) = (table(1, "a", "z"), table(3, "m", "z"));
        let before = groups(vec![
            add_upper("", upper.clone(), 9),
            add_last("", table(2, "a", "l")),
            add_last("", right.clone()),
        ]);
        state.apply(&before).unwrap();
        let edit = groups(vec![
            split("", "m"),
            add_upper("m", upper, 9),
            add_upper("m", table(4, "n", "o"), 11),
            remove_last("", 3),
            add_last("m", right),
        ]);
        state.apply(&edit).unwrap();
        assert_eq!(picture(&state), [": 1 | 2", "m: 4 1 | 3"]);
        state.apply(&groups(vec![join("m")])).unwrap();
        assert_eq!(picture(&state), [": 4 1 | 2 3"]);
        // The shared table is listed once now: one removal forgets it.
        state.apply(&groups(vec![remove_upper("", 1)])).unwrap();
        assert!(!state.lists_table(TableId(1)));
    }

    #[test]
    fn keyspaces_are_created_renamed_and_dropped_with_their_tables() {
        let mut state = one_keyspace();
        state.apply(&create(2, "nodes")).unwrap();
        let table = groups(vec![add_last("", table(1, "a", "b"))]);
        state.apply(&table).unwrap();
        let swap = VersionEdit {
            renamed: vec![
                (KeyspaceId(1), "nodes".to_owned()),
                (KeyspaceId(2), "links".to_owned()),
            ],
            options_changed: vec![(KeyspaceId(2), vec![8])],
            flushed_seqno: vec![(KeyspaceId(2), 40)],
            ..VersionEdit::default()
        };
        state.apply(&swap).unwrap();
        let links = &state.keyspaces[&KeyspaceId(2)];
        assert_eq!(links.name, "links");
        assert_eq!((&links.options[..], links.flushed_seqno), (&[8][..], 40));
        // The same name may live on in a new keyspace from the same edit on.
        let mut replace = create(3, "nodes");
        replace.dropped = vec![(KeyspaceId(1), 50)];
        state.apply(&replace).unwrap();
        assert_eq!(state.keyspaces.len(), 2);
        assert_eq!(state.table_ids().count(), 0);
    }

    #[test]
    fn numbers_only_rise() {
        let mut state = one_keyspace();
        let numbers = |n| VersionEdit {
            next_table: Some(TableId(n)),
            next_segment: Some(SegmentId(n)),
            last_seqno: Some(n),
            oldest_segment: Some(SegmentId(n)),
            ..VersionEdit::default()
        };
        state.apply(&numbers(200)).unwrap();
        let high = state.clone();
        state.apply(&numbers(150)).unwrap();
        assert_eq!(state, high);
    }

    #[test]
    fn one_edit_rebuilds_the_whole_state() {
        let mut state = one_keyspace();
        let edit = groups(vec![
            split("", "m"),
            split("m", "t"),
            add_upper("", table(1, "a", "z"), 9),
            add_upper("m", table(1, "a", "z"), 9),
            add_last("t", table(2, "t", "u")),
        ]);
        state.apply(&edit).unwrap();
        state.apply(&create(5, "counts")).unwrap();
        let mut again = ManifestState::default();
        again.apply(&state.to_edit()).unwrap();
        assert_eq!(again, state);
    }

    #[test]
    fn contradictions_are_refused() {
        let mut other_file = table(1, "a", "b");
        other_file.uid = 99;
        let flushed = |seqno| VersionEdit {
            flushed_seqno: vec![(KEYSPACE, seqno)],
            ..VersionEdit::default()
        };
        let drop_unknown = VersionEdit {
            dropped: vec![(KeyspaceId(7), 1)],
            ..VersionEdit::default()
        };
        let mut above_next = create(9, "late");
        above_next.next_keyspace = None;
        let refused = [
            ("absent table", groups(vec![remove_upper("", 50)])),
            ("absent last table", groups(vec![remove_last("", 50)])),
            (
                "listed twice",
                groups(vec![add_upper("", table(1, "a", "b"), 8)]),
            ),
            (
                "two files, one id",
                groups(vec![split("", "m"), add_last("m", other_file)]),
            ),
            (
                "id not handed out",
                groups(vec![add_last("", table(100, "x", "y"))]),
            ),
            ("overlap", groups(vec![add_last("", table(3, "e", "k"))])),
            ("touching", groups(vec![add_last("", table(3, "f", "k"))])),
            (
                "outside the group",
                groups(vec![split("", "m"), add_last("m", table(3, "k", "n"))]),
            ),
            ("cut by a border", groups(vec![split("", "d")])),
            ("border twice", groups(vec![split("", "m"), split("", "m")])),
            ("border at the start", groups(vec![split("", "")])),
            (
                "border beyond the group",
                groups(vec![split("", "m"), split("", "n")]),
            ),
            ("first group joined", groups(vec![join("")])),
            (
                "unknown group",
                groups(vec![add_last("q", table(3, "r", "s"))]),
            ),
            ("name taken", create(2, "links")),
            ("keyspace id used", create(1, "other")),
            ("keyspace id not handed out", above_next),
            ("unknown keyspace", drop_unknown),
            ("flushed falls", flushed(10)),
        ];
        let mut state = one_keyspace();
        let edit = groups(vec![
            add_upper("", table(1, "a", "b"), 9),
            add_last("", table(2, "c", "f")),
        ]);
        state.apply(&edit).unwrap();
        state.apply(&flushed(20)).unwrap();
        for (what, edit) in refused {
            assert!(state.clone().apply(&edit).is_err(), "{what}");
        }
        // A dropped keyspace's id stays used.
        let dropped = VersionEdit {
            dropped: vec![(KEYSPACE, 30)],
            ..VersionEdit::default()
        };
        state.apply(&dropped).unwrap();
        assert!(state.apply(&create(1, "again")).is_err());
    }
}
