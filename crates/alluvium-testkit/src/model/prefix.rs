//! Finds the commit that a state read back belongs to.
//!
//! The state is compared with the newest commit first. Each step back then compares only the keys
//! that the undone commit had changed. Thousands of commits are checked in the time of reading the
//! log.

use std::collections::BTreeSet;
use std::fmt;

use super::{Change, Commit, Life, Model, State};

/// Maximum number of wrong rows that a [`Mismatch`] shows.
const SHOWN_MAX: usize = 10;

/// Error: none of the allowed commits has the state that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Commit with the fewest differences.
    pub closest: Commit,
    /// Number of rows and keyspaces that differ from it.
    pub differences: usize,
    /// Descriptions of the first differences.
    pub shown: Vec<String>,
    /// Set if the state is that of an older commit: promised commits were lost.
    pub lost_back_to: Option<Commit>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(commit) = self.lost_back_to {
            return write!(
                f,
                "promised commits are lost: the state is that of commit {commit}"
            );
        }
        let Mismatch {
            closest,
            differences,
            ..
        } = self;
        write!(
            f,
            "the state belongs to no commit; {differences} differences from commit {closest}:"
        )?;
        self.shown
            .iter()
            .try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for Mismatch {}

/// Row (or with `None` as key, keyspace) that differs between the model at some commit and the
/// found state.
type Place = (String, Option<Vec<u8>>);

impl Model {
    /// Returns the newest commit, not older than `at_least`, with a state equal to `actual`.
    pub fn find_prefix(&self, actual: &State, at_least: Commit) -> Result<Commit, Mismatch> {
        let newest = self.last_commit();
        let mut differing = self.compare(actual, newest);
        let mut closest = (differing.len(), newest);
        for commit in (0..=newest).rev() {
            if commit < newest {
                self.step_back(actual, commit, &mut differing);
            }
            if differing.is_empty() && commit >= at_least {
                return Ok(commit);
            }
            if differing.is_empty() {
                return Err(self.mismatch(actual, at_least, Some(commit)));
            }
            if commit >= at_least && differing.len() < closest.0 {
                closest = (differing.len(), commit);
            }
        }
        Err(self.mismatch(actual, closest.1, None))
    }

    fn mismatch(&self, actual: &State, closest: Commit, lost_back_to: Option<Commit>) -> Mismatch {
        let differing = self.compare(actual, closest);
        let shown = differing.iter().take(SHOWN_MAX);
        Mismatch {
            closest,
            differences: differing.len(),
            shown: shown
                .map(|place| self.describe(place, actual, closest))
                .collect(),
            lost_back_to,
        }
    }

    /// Returns all places where `actual` differs from the state at a commit.
    fn compare(&self, actual: &State, at: Commit) -> BTreeSet<Place> {
        let expected = self.state_at(at);
        let mut differing = BTreeSet::new();
        let names: BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
        for name in names {
            let (Some(left), Some(right)) = (expected.get(name), actual.get(name)) else {
                differing.insert((name.clone(), None));
                continue;
            };
            let keys: BTreeSet<&Vec<u8>> = left.keys().chain(right.keys()).collect();
            let wrong = keys
                .into_iter()
                .filter(|key| left.get(*key) != right.get(*key));
            differing.extend(wrong.map(|key| (name.clone(), Some(key.clone()))));
        }
        differing
    }

    /// Turns the differences from commit `to + 1` into those from commit `to`.
    fn step_back(&self, actual: &State, to: Commit, differing: &mut BTreeSet<Place>) {
        match &self.log[to as usize] {
            Change::Keyspaces => *differing = self.compare(actual, to),
            Change::Rows(rows) => {
                for (life, key) in rows {
                    let life = &self.lives[*life];
                    let Some(found) = actual.get(&life.name) else {
                        continue;
                    };
                    let place = (life.name.clone(), Some(key.clone()));
                    if life.value_at(key, to) == found.get(key).map(Vec::as_slice) {
                        differing.remove(&place);
                    } else {
                        differing.insert(place);
                    }
                }
            }
        }
    }

    fn describe(&self, (name, key): &Place, actual: &State, at: Commit) -> String {
        let life: Option<&Life> = self.life_at(name, at);
        let Some(key) = key else {
            let (expected, found) = (life.is_some(), actual.contains_key(name));
            return format!(
                "keyspace {name}: expected {}, found {}",
                existence(expected),
                existence(found)
            );
        };
        let expected = life.and_then(|life| life.value_at(key, at));
        let found = actual.get(name).and_then(|rows| rows.get(key));
        let (expected, found) = (shown(expected), shown(found.map(Vec::as_slice)));
        format!(
            "{name} \"{}\": expected {expected}, found {found}",
            key.escape_ascii()
        )
    }
}

fn existence(exists: bool) -> &'static str {
    if exists { "it" } else { "none" }
}

/// Formats a value for people: its beginning and length.
fn shown(value: Option<&[u8]>) -> String {
    const BYTES_SHOWN: usize = 24;
    match value {
        None => "nothing".to_string(),
        Some(value) if value.len() <= BYTES_SHOWN => format!("\"{}\"", value.escape_ascii()),
        Some(value) => {
            let start = value[..BYTES_SHOWN].escape_ascii();
            format!("\"{start}...\" ({} bytes)", value.len())
        }
    }
}
