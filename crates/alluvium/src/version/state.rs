//! State that all edits add up to: keyspaces, their groups, and the tables listed in them. Plain
//! data, no files.
//!
//! Applying an edit checks it. An edit that contradicts the state was damaged or comes from a
//! defect in the engine, and neither may go unnoticed. After a refused edit the state is half
//! changed and must not be used any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::edit::{GroupEdit, KeyspaceRecord, PreparedTables, TableRecord, VersionEdit};
use super::groups::{GroupState, Groups};
use crate::base::{KeyspaceId, SegmentId, SeqNo, TableId};

/// State after all edits so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestState {
    /// Smallest table id never used.
    pub next_table: TableId,
    /// Smallest segment id not known to be used.
    pub next_segment: SegmentId,
    /// Smallest keyspace id never used.
    pub next_keyspace: KeyspaceId,
    /// No entry of a table has a higher seqno.
    pub last_seqno: SeqNo,
    /// Oldest log segment that replay needs; 0 until an edit sets it.
    pub oldest_segment: SegmentId,
    /// Last confirmed time in milliseconds since 1970; the time of reads never falls below it.
    pub read_clock_ms: u64,
    /// Unresolved prepared transactions of a copy that was not opened for writing yet.
    pub prepared: Vec<Vec<u8>>,
    /// Undecided transactions that are prepared in tables: by id, their tables with the keyspace of
    /// each.
    pub prepared_tables: BTreeMap<Vec<u8>, Vec<(KeyspaceId, TableRecord)>>,
    /// Keyspaces that exist, by id.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceState>,
    /// For each table, its file and the number of groups and prepared transactions that list it.
    tables: BTreeMap<TableId, Listing>,
    /// Keyspace of each name, so that an edit that creates one need not scan all the others.
    names: BTreeMap<String, KeyspaceId>,
}

/// State of one keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceState {
    /// Current name.
    pub name: String,
    /// Options, encoded by the keyspace module.
    pub options: Vec<u8>,
    /// Place of its creation in the commit order.
    pub created_seqno: SeqNo,
    /// Seqno up to which everything is in tables.
    pub flushed_seqno: SeqNo,
    /// Groups by their low key; the first low key is empty.
    pub groups: Groups,
}

/// Reason why an edit does not fit the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected} expected, {found} found")]
pub struct Inconsistency {
    /// Content that the state allows.
    pub expected: &'static str,
    /// Content of the edit.
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
            read_clock_ms: 0,
            prepared: Vec::new(),
            prepared_tables: BTreeMap::new(),
            keyspaces: BTreeMap::new(),
            tables: BTreeMap::new(),
            names: BTreeMap::new(),
        }
    }
}

impl ManifestState {
    /// Returns the ids of all tables that a group or a prepared transaction lists; files with other
    /// ids are not part of the database.
    pub fn table_ids(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.keys().copied()
    }

    /// Returns true if any group lists the table.
    #[cfg(test)]
    pub fn lists_table(&self, table: TableId) -> bool {
        self.tables.contains_key(&table)
    }

    /// Applies one edit.
    ///
    /// # Errors
    ///
    /// [`Inconsistency`] if the edit contradicts the state, which is unusable afterwards.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<(), Inconsistency> {
        let first_new_keyspace = self.next_keyspace;
        raise(&mut self.next_table, edit.next_table);
        raise(&mut self.next_segment, edit.next_segment);
        raise(&mut self.next_keyspace, edit.next_keyspace);
        raise(&mut self.last_seqno, edit.last_seqno);
        raise(&mut self.oldest_segment, edit.oldest_segment);
        raise(&mut self.read_clock_ms, edit.read_clock_ms);
        if edit.prepared_logged {
            self.prepared.clear();
        }
        self.prepared.extend_from_slice(&edit.prepared);
        for &(id, _) in &edit.dropped {
            self.drop_keyspace(id)?;
        }
        self.rename(&edit.renamed)?;
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
        for prepared in &edit.prepared_tables {
            self.prepare(prepared)?;
        }
        let mut touched = BTreeSet::new();
        for group in &edit.groups {
            self.apply_group(group, &mut touched)?;
        }
        // After the groups: a table that moves into one stays listed.
        for xid in &edit.resolved {
            self.resolve(xid)?;
        }
        touched
            .into_iter()
            .try_for_each(|(id, low)| self.check_group(id, &low))
    }

    /// Returns one edit that makes an empty state equal to this one.
    pub fn to_edit(&self) -> VersionEdit {
        let mut edit = VersionEdit {
            next_table: Some(self.next_table),
            next_segment: Some(self.next_segment),
            next_keyspace: Some(self.next_keyspace),
            last_seqno: Some(self.last_seqno),
            oldest_segment: Some(self.oldest_segment),
            read_clock_ms: (self.read_clock_ms > 0).then_some(self.read_clock_ms),
            prepared: self.prepared.clone(),
            ..VersionEdit::default()
        };
        let prepared = self.prepared_tables.iter();
        edit.prepared_tables
            .extend(prepared.map(|(xid, tables)| PreparedTables {
                xid: xid.clone(),
                tables: tables.clone(),
            }));
        for (&keyspace, state) in &self.keyspaces {
            edit.created.push(KeyspaceRecord {
                id: keyspace,
                name: state.name.clone(),
                options: state.options.clone(),
                created_seqno: state.created_seqno,
            });
            edit.flushed_seqno.push((keyspace, state.flushed_seqno));
            let mut previous: &[u8] = &[];
            for (low, group) in state.groups.iter() {
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

    fn prepare(&mut self, prepared: &PreparedTables) -> Result<(), Inconsistency> {
        let PreparedTables { xid, tables } = prepared;
        let known = self.prepared_tables.insert(xid.clone(), tables.clone());
        if known.is_some() {
            return refuse("a new prepared transaction", xid.escape_ascii());
        }
        tables.iter().try_for_each(|(id, table)| {
            self.keyspace(*id)?;
            self.list(table)
        })
    }

    fn resolve(&mut self, xid: &[u8]) -> Result<(), Inconsistency> {
        let Some(tables) = self.prepared_tables.remove(xid) else {
            return refuse("a prepared transaction to resolve", xid.escape_ascii());
        };
        tables
            .iter()
            .try_for_each(|(_, table)| self.unlist(table.id))
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
        // Also true if the edit creates two keyspaces with one id.
        let reused = record.id < first_new || self.keyspaces.contains_key(&record.id);
        if reused || record.id >= self.next_keyspace {
            return refuse("a new keyspace id below the next one", record.id);
        }
        self.take_name(record.id, &record.name)?;
        let state = KeyspaceState {
            name: record.name.clone(),
            options: record.options.clone(),
            created_seqno: record.created_seqno,
            flushed_seqno: 0,
            groups: Groups::one(),
        };
        self.keyspaces.insert(record.id, state);
        Ok(())
    }

    fn drop_keyspace(&mut self, id: KeyspaceId) -> Result<(), Inconsistency> {
        let Some(state) = self.keyspaces.remove(&id) else {
            return refuse("an existing keyspace to drop", id);
        };
        self.names.remove(&state.name);
        for table in state.groups.values().flat_map(GroupState::tables) {
            self.unlist(table.id)?;
        }
        Ok(())
    }

    /// Renames keyspaces. All of them first give up their old names, so that two keyspaces may swap
    /// names.
    fn rename(&mut self, renamed: &[(KeyspaceId, String)]) -> Result<(), Inconsistency> {
        for (id, _) in renamed {
            let old = self.keyspace(*id)?.name.clone();
            self.names.remove(&old);
        }
        for (id, name) in renamed {
            self.keyspace(*id)?.name.clone_from(name);
        }
        for (id, _) in renamed {
            let name = self.keyspace(*id)?.name.clone();
            self.take_name(*id, &name)?;
        }
        Ok(())
    }

    fn take_name(&mut self, id: KeyspaceId, name: &str) -> Result<(), Inconsistency> {
        match self.names.insert(name.to_owned(), id) {
            Some(other) if other != id => {
                refuse("distinct keyspace names", format!("{name} twice"))
            }
            _ => Ok(()),
        }
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
        if at <= low || keyspace.groups.high_of(low).is_some_and(|high| at >= high) {
            return refuse("a border inside the group", group_name(id, at));
        }
        keyspace.groups.add(at);
        Ok(())
    }

    /// Joins a group to its left neighbor and returns the neighbor's low key.
    fn join(&mut self, id: KeyspaceId, low: &[u8]) -> Result<Vec<u8>, Inconsistency> {
        let groups = &mut self.keyspace(id)?.groups;
        let Some((left, group)) = groups.take(low) else {
            return refuse("a group with a left neighbor", group_name(id, low));
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

    /// Checks that the last level of a group lies inside its range, in order.
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
        let high = groups.high_of(low);
        let outside = group.last.iter().find(|table| {
            &table.first_key[..] < low || high.is_some_and(|high| &table.last_key[..] >= high)
        });
        match outside {
            Some(table) => refuse("last-level tables inside their group", table.id),
            None => Ok(()),
        }
    }
}

impl GroupState {
    fn add_upper(&mut self, run: u64, table: &TableRecord) -> Result<(), Inconsistency> {
        self.check_unlisted(table.id)?;
        let place = self.upper.partition_point(|(other_run, other)| {
            *other_run > run || (*other_run == run && other.first_key < table.first_key)
        });
        insert(&mut self.upper, place, (run, table.clone()));
        Ok(())
    }

    fn add_last(&mut self, table: &TableRecord) -> Result<(), Inconsistency> {
        self.check_unlisted(table.id)?;
        let place = self
            .last
            .partition_point(|other| other.first_key < table.first_key);
        insert(&mut self.last, place, table.clone());
        Ok(())
    }

    fn check_unlisted(&self, table: TableId) -> Result<(), Inconsistency> {
        if self.tables().any(|other| other.id == table) {
            return refuse("a table that the group does not list yet", table);
        }
        Ok(())
    }

    /// Appends the edits that fill an empty group with these tables.
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

/// Inserts without room for more at first: most keyspaces have one table.
fn insert<T>(list: &mut Vec<T>, place: usize, item: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.insert(place, item);
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

fn group_name(id: KeyspaceId, low: &[u8]) -> String {
    format!("{id} at key {}", low.escape_ascii())
}

#[cfg(test)]
mod tests;
