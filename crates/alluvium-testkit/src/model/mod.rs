//! Reference model of a database: ordered maps with every version ever written, and the order of
//! all commits.
//!
//! The number of a commit is the number of commits so far, so a snapshot is the number of the last
//! commit that it sees. After a crash the database must have the state at *some* commit that is not
//! older than the last one promised to be durable: [`Model::find_prefix`].
//!
//! The engine's own sequence numbers are not compared, since it may use more than one per commit.

mod prefix;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

pub use prefix::Mismatch;

/// Number of a commit. The empty database is at 0.
pub type Commit = u64;

/// Rows of one keyspace.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// All keyspaces, by name.
pub type State = BTreeMap<String, Rows>;

/// Direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// One write. In a batch, a later write sees and overrides the earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets a key, whether it exists or not.
    Put(Vec<u8>, Vec<u8>),
    /// Sets a key that is known to be absent.
    Insert(Vec<u8>, Vec<u8>),
    /// Removes a key, whether it exists or not.
    Delete(Vec<u8>),
    /// Removes all keys from the first (inclusive) to the second (exclusive).
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// Versions of a key: each commit that changed it, with the value since then or `None` for absence.
type Versions = Vec<(Commit, Option<Vec<u8>>)>;

/// One life of a keyspace: a name that is dropped and created again has two.
#[derive(Debug, Clone)]
struct Life {
    name: String,
    created: Commit,
    dropped: Option<Commit>,
    rows: BTreeMap<Vec<u8>, Versions>,
}

impl Life {
    fn exists_at(&self, at: Commit) -> bool {
        self.created <= at && self.dropped.is_none_or(|dropped| at < dropped)
    }

    fn value_at(&self, key: &[u8], at: Commit) -> Option<&[u8]> {
        value_at(self.rows.get(key)?, at)
    }
}

fn value_at(versions: &Versions, at: Commit) -> Option<&[u8]> {
    let seen = versions.partition_point(|(commit, _)| *commit <= at);
    versions[..seen].last()?.1.as_deref()
}

/// Changes of one commit, for walking back.
#[derive(Debug, Clone)]
enum Change {
    /// Keys of one or more lives (index into `lives`).
    Rows(BTreeSet<(usize, Vec<u8>)>),
    /// A keyspace was created or dropped.
    Keyspaces,
}

/// Reference model of a database. See the [module](self).
#[derive(Debug, Clone, Default)]
pub struct Model {
    lives: Vec<Life>,
    /// `log[n - 1]` is commit `n`.
    log: Vec<Change>,
}

impl Model {
    /// Creates an empty database without keyspaces.
    pub fn new() -> Model {
        Model::default()
    }

    /// Returns the number of the last commit: a snapshot taken now.
    pub fn last_commit(&self) -> Commit {
        self.log.len() as Commit
    }

    /// Returns the names of the keyspaces that exist now, in order.
    pub fn keyspaces(&self) -> Vec<&str> {
        let now = self.last_commit();
        let existing = self.lives.iter().filter(|life| life.exists_at(now));
        let names: BTreeSet<&str> = existing.map(|life| life.name.as_str()).collect();
        names.into_iter().collect()
    }

    /// Creates a keyspace, as a separate commit.
    ///
    /// # Panics
    /// If it exists.
    pub fn create_keyspace(&mut self, name: &str) -> Commit {
        let now = self.last_commit();
        assert!(self.life_at(name, now).is_none(), "keyspace {name} exists");
        self.log.push(Change::Keyspaces);
        self.lives.push(Life {
            name: name.to_string(),
            created: now + 1,
            dropped: None,
            rows: BTreeMap::new(),
        });
        now + 1
    }

    /// Drops a keyspace with its rows, as a separate commit.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn drop_keyspace(&mut self, name: &str) -> Commit {
        let now = self.last_commit();
        let life = self.existing(name, now);
        self.log.push(Change::Keyspaces);
        self.lives[life].dropped = Some(now + 1);
        now + 1
    }

    /// Applies writes, each with the name of its keyspace, as one commit.
    ///
    /// # Panics
    /// If a keyspace does not exist, or the key of an insert exists.
    pub fn commit<'w>(&mut self, writes: impl IntoIterator<Item = (&'w str, &'w Write)>) -> Commit {
        let now = self.last_commit();
        let next = now + 1;
        let mut touched = BTreeSet::new();
        for (name, write) in writes {
            let life = self.existing(name, now);
            for (key, value) in self.effects(life, write, next) {
                set(&mut self.lives[life].rows, &key, next, value);
                touched.insert((life, key));
            }
        }
        self.log.push(Change::Rows(touched));
        next
    }

    /// Returns the value of a key for a snapshot.
    pub fn get(&self, keyspace: &str, key: &[u8], at: Commit) -> Option<&[u8]> {
        self.life_at(keyspace, at)?.value_at(key, at)
    }

    /// Returns the rows between two bounds for a snapshot, in the order of `direction`, at most
    /// `limit`.
    pub fn scan(
        &self,
        keyspace: &str,
        (start, end): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        limit: usize,
        at: Commit,
    ) -> Vec<(&[u8], &[u8])> {
        let Some(life) = self.life_at(keyspace, at) else {
            return Vec::new();
        };
        // `BTreeMap::range` panics if the bounds enclose nothing.
        if is_empty(start, end) {
            return Vec::new();
        }
        let versions = life.rows.range::<[u8], _>((start, end));
        let rows = versions.filter_map(|(key, versions)| {
            let value = value_at(versions, at)?;
            Some((key.as_slice(), value))
        });
        match direction {
            Direction::Forward => rows.take(limit).collect(),
            Direction::Backward => rows.rev().take(limit).collect(),
        }
    }

    /// Returns the whole state at a commit.
    pub fn state_at(&self, at: Commit) -> State {
        let existing = self.lives.iter().filter(|life| life.exists_at(at));
        let rows = |life: &Life| {
            let rows = life.rows.iter();
            let rows = rows.filter_map(|(key, versions)| {
                Some((key.clone(), value_at(versions, at)?.to_vec()))
            });
            (life.name.clone(), rows.collect())
        };
        existing.map(rows).collect()
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        self.state_at(self.last_commit())
    }

    /// Discards all commits after `at`, as those lost by a crash.
    ///
    /// # Panics
    /// If `at` has not happened.
    pub fn rewind(&mut self, at: Commit) {
        assert!(at <= self.last_commit(), "commit {at} has not happened");
        self.log.truncate(at as usize);
        // Lives are in order of creation, so the indexes in the log remain valid.
        self.lives.retain(|life| life.created <= at);
        for life in &mut self.lives {
            life.dropped = life.dropped.filter(|dropped| *dropped <= at);
            life.rows.retain(|_, versions| {
                versions.retain(|(commit, _)| *commit <= at);
                !versions.is_empty()
            });
        }
    }

    fn life_at(&self, name: &str, at: Commit) -> Option<&Life> {
        let mut lives = self.lives.iter();
        lives.find(|life| life.name == name && life.exists_at(at))
    }

    fn existing(&self, name: &str, at: Commit) -> usize {
        let mut lives = self.lives.iter();
        let found = lives.position(|life| life.name == name && life.exists_at(at));
        found.unwrap_or_else(|| panic!("keyspace {name} does not exist"))
    }

    /// Returns the keys that a write sets or removes.
    fn effects<'w>(
        &self,
        life: usize,
        write: &'w Write,
        at: Commit,
    ) -> Vec<(Vec<u8>, Option<&'w [u8]>)> {
        match write {
            Write::Put(key, value) => vec![(key.clone(), Some(value))],
            Write::Insert(key, value) => {
                let present = self.lives[life].value_at(key, at).is_some();
                assert!(
                    !present,
                    "insert of a key that exists: {}",
                    key.escape_ascii()
                );
                vec![(key.clone(), Some(value))]
            }
            Write::Delete(key) => vec![(key.clone(), None)],
            Write::DeleteRange(start, end) => {
                let keys = self.live_keys(life, start, end, at);
                keys.into_iter().map(|key| (key, None)).collect()
            }
        }
    }

    fn live_keys(&self, life: usize, start: &[u8], end: &[u8], at: Commit) -> Vec<Vec<u8>> {
        if start >= end {
            return Vec::new();
        }
        let range = (Bound::Included(start), Bound::Excluded(end));
        let versions = self.lives[life].rows.range::<[u8], _>(range);
        let live = versions.filter(|(_, versions)| value_at(versions, at).is_some());
        live.map(|(key, _)| key.clone()).collect()
    }
}

/// Sets a key at a commit, over the result of earlier writes of the same commit.
fn set(rows: &mut BTreeMap<Vec<u8>, Versions>, key: &[u8], at: Commit, value: Option<&[u8]>) {
    let versions = rows.entry(key.to_vec()).or_default();
    versions.retain(|(commit, _)| *commit < at);
    versions.push((at, value.map(<[u8]>::to_vec)));
}

fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (
            Bound::Included(start) | Bound::Excluded(start),
            Bound::Included(end) | Bound::Excluded(end),
        ) => start >= end,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
