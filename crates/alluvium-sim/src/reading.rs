//! Reads: performing them, their expected results in a state, and the full content of a database.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use alluvium::{Cursor, CursorOptions, Database, Keyspace, Snapshot, Transaction, Value};

use crate::filter::{Fate, fate};
use crate::plan::{Move, Read, Where};
use crate::state::{Row, State, Stored};
use crate::time::Watch;

/// Result of a read: for each of its moves a row, or `None`.
pub type Seen = Vec<Option<(Vec<u8>, Vec<u8>)>>;

/// Source of a read.
pub enum Source<'a> {
    /// Newest state.
    Newest,
    /// State of a snapshot.
    Snapshot(&'a Snapshot),
    /// State of a transaction, with its own writes.
    Transaction(&'a Transaction),
}

/// Formats a read's rows for a message: keys and the beginnings of values.
pub fn shown(seen: &Seen) -> String {
    let row = |row: &Option<(Vec<u8>, Vec<u8>)>| match row {
        None => "nothing".to_owned(),
        Some((key, value)) => {
            let start = &value[..value.len().min(12)];
            format!("{}={}", key.escape_ascii(), start.escape_ascii())
        }
    };
    seen.iter().map(row).collect::<Vec<_>>().join(", ")
}

/// Returns the expected result of a read in a state, at a time.
pub fn expected(read: &Read, id: u32, state: &State, now_ms: u64) -> Seen {
    let owned = |(row, stored): (&Row, &Stored)| (row.1.clone(), stored.value.to_vec());
    let is_there = |(_, stored): &(&Row, &Stored)| stored.is_there(now_ms);
    let moves = match read {
        Read::Get(_, key) => {
            let row = state.get_key_value(&(id, key.to_vec()));
            return vec![row.filter(is_there).map(owned)];
        }
        Read::Walk(_, moves) => moves,
    };
    let rows = state.range((id, Vec::new())..(id + 1, Vec::new()));
    let rows: Vec<_> = rows.filter(is_there).collect();
    let below = |key: &[u8]| rows.partition_point(|(row, _)| row.1[..] < *key);
    let mut at: Option<usize> = None;
    let mut seen = Seen::new();
    for step in moves {
        at = match step {
            Move::First => Some(0),
            Move::Last => rows.len().checked_sub(1),
            Move::Seek(key) => Some(below(key)),
            Move::SeekBefore(key) => below(key).checked_sub(1),
            Move::Next => at.map(|at| at + 1),
            Move::Prev => at.and_then(|at| at.checked_sub(1)),
        };
        let row = at
            .and_then(|at| rows.get(at))
            .map(|(row, stored)| owned((row, stored)));
        let ended = row.is_none();
        seen.push(row);
        if ended {
            break;
        }
    }
    seen
}

/// Returns whether a row may be read with this value; `filtered`: the compaction filter may have
/// replaced it.
fn shows_as(stored: &Stored, value: &[u8], filtered: bool) -> bool {
    *stored.value == *value
        || filtered && matches!(fate(&stored.value), Fate::Replaced(other) if other == value)
}

/// Returns whether a read may have this result in a state, at a time, if the compaction filter may
/// have removed or replaced some rows of the keyspace and not others.
pub fn admits_filtered(read: &Read, id: u32, state: &State, now_ms: u64, seen: &Seen) -> bool {
    let rows = state.range((id, Vec::new())..(id + 1, Vec::new()));
    let rows: Vec<_> = rows.filter(|(_, stored)| stored.is_there(now_ms)).collect();
    let below = |key: &[u8]| rows.partition_point(|(row, _)| row.1[..] < *key);
    let may_go = |at: usize| fate(&rows[at].1.value) == Fate::Removed;
    // Finds the index of a row that was seen. Outer `None`: the result is impossible, because a row
    // that was skipped must have been returned. Inner `None`: no row.
    let meets = |found: &Option<(Vec<u8>, Vec<u8>)>, passed: &mut dyn Iterator<Item = usize>| {
        for at in passed {
            match found {
                Some((key, value)) if rows[at].0.1 == *key => {
                    return shows_as(rows[at].1, value, true).then_some(Some(at));
                }
                _ if may_go(at) => {}
                _ => return None,
            }
        }
        found.is_none().then_some(None)
    };
    let moves = match read {
        Read::Get(_, key) => {
            let from = below(key);
            let upto = from + usize::from(rows.get(from).is_some_and(|(row, _)| row.1 == **key));
            return seen.len() == 1 && meets(&seen[0], &mut (from..upto)).is_some();
        }
        Read::Walk(_, moves) => moves,
    };
    let mut at: Option<usize> = None;
    for (step, found) in moves.iter().zip(seen) {
        let len = rows.len();
        let met = match step {
            Move::First => meets(found, &mut (0..len)),
            Move::Last => meets(found, &mut (0..len).rev()),
            Move::Seek(key) => meets(found, &mut (below(key)..len)),
            Move::SeekBefore(key) => meets(found, &mut (0..below(key)).rev()),
            Move::Next => meets(found, &mut (at.map_or(len, |at| at + 1)..len)),
            Move::Prev => meets(found, &mut (0..at.unwrap_or(0)).rev()),
        };
        match met {
            None => return false,
            Some(place) => at = place,
        }
    }
    let ended = seen.last().is_some_and(Option::is_none);
    seen.len() == moves.len() || ended && seen.len() < moves.len()
}

/// Performs a read. Also returns the commit that a cursor reports as its state.
pub fn perform(
    read: &Read,
    keyspace: &Keyspace,
    source: &Source<'_>,
) -> alluvium::Result<(Seen, Option<u64>)> {
    match read {
        Read::Get(_, key) => {
            let value: Option<Value> = match source {
                Source::Newest => keyspace.get(key)?,
                Source::Snapshot(snapshot) => snapshot.get(keyspace, key)?,
                Source::Transaction(transaction) => transaction.get(keyspace, key)?,
            };
            Ok((
                vec![value.map(|value| (key.to_vec(), value.to_vec()))],
                None,
            ))
        }
        Read::Walk(_, moves) => {
            let options = CursorOptions::default();
            let mut cursor = match source {
                Source::Newest => keyspace.cursor(options)?,
                Source::Snapshot(snapshot) => snapshot.cursor(keyspace, options)?,
                Source::Transaction(transaction) => transaction.cursor(keyspace, options)?,
            };
            Ok((walk(&mut cursor, moves)?, Some(cursor.seqno())))
        }
    }
}

fn walk(cursor: &mut Cursor, moves: &[Move]) -> alluvium::Result<Seen> {
    let mut seen = Seen::new();
    for step in moves {
        let found = match step {
            Move::First => cursor.seek_first(),
            Move::Last => cursor.seek_last(),
            Move::Seek(key) => cursor.seek(key),
            Move::SeekBefore(key) => cursor.seek_before(key),
            Move::Next => cursor.next(),
            Move::Prev => cursor.prev(),
        };
        let found = found?;
        seen.push(found.then(|| (cursor.key().to_vec(), cursor.value().to_vec())));
        if !found {
            break;
        }
    }
    Ok(seen)
}

impl Read {
    /// Returns the keyspace that it reads.
    pub fn place(&self) -> Where {
        match self {
            Read::Get(place, _) | Read::Walk(place, _) => *place,
        }
    }
}

/// Content of a database.
#[derive(Debug)]
pub struct Content {
    /// Ids of its keyspaces.
    pub ids: Vec<u32>,
    /// Rows of all keyspaces.
    pub rows: BTreeMap<Row, Vec<u8>>,
    /// Times between which it was read, in milliseconds.
    pub read_at: RangeInclusive<u64>,
}

/// Reads the whole database, with the times of the reads from `watch`.
pub fn content(db: &Database, watch: &Watch) -> alluvium::Result<Content> {
    let began = watch.moment(db);
    let (mut ids, mut rows) = (Vec::new(), BTreeMap::new());
    for name in db.keyspace_names()? {
        let Some(keyspace) = db.existing_keyspace(&name)? else {
            continue;
        };
        let id = keyspace.id().0;
        ids.push(id);
        let mut cursor = keyspace.cursor(CursorOptions::default())?;
        let mut found = cursor.seek_first()?;
        while found {
            rows.insert((id, cursor.key().to_vec()), cursor.value().to_vec());
            found = cursor.next()?;
        }
    }
    Ok(Content {
        ids,
        rows,
        read_at: watch.since(db, began),
    })
}

impl Content {
    /// Returns whether a state has exactly this content at one of these times, in the keyspaces of
    /// the content. Rows of keyspace `filtered` may have passed through the filter or not.
    pub fn is_of(&self, state: &State, times: &[u64], filtered: Option<u32>) -> bool {
        let shows = |now_ms: u64| {
            let rows = state
                .iter()
                .filter(|((id, _), stored)| self.ids.contains(id) && stored.is_there(now_ms));
            let mut found = self.rows.iter().peekable();
            for (row, stored) in rows {
                let same = found.next_if(|(own, value)| {
                    *own == row && shows_as(stored, value, filtered == Some(row.0))
                });
                let may_be_absent = filtered == Some(row.0) && fate(&stored.value) == Fate::Removed;
                if same.is_none() && !may_be_absent {
                    return false;
                }
            }
            found.next().is_none()
        };
        times.iter().any(|now_ms| shows(*now_ms))
    }
}

/// Formats the first few rows in which a content differs from a state, at the one of these times
/// with the fewest differences.
pub fn difference(state: &State, found: &Content, times: &[u64]) -> String {
    let at_each = times
        .iter()
        .map(|now_ms| (now_ms, differing(state, found, *now_ms)));
    let nearest = at_each.min_by_key(|(_, lines)| lines.len());
    let (now_ms, lines) = nearest.unwrap_or((&0, Vec::new()));
    let shown = lines[..lines.len().min(6)].join("; ");
    format!("at {now_ms} ms: {shown}")
}

fn differing(state: &State, found: &Content, now_ms: u64) -> Vec<String> {
    let start = |value: Option<&[u8]>| match value {
        None => "nothing".to_owned(),
        Some(value) => value[..value.len().min(16)].escape_ascii().to_string(),
    };
    let wanted = |row: &Row| {
        let stored = state.get(row).filter(|stored| stored.is_there(now_ms));
        stored.map(|stored| &stored.value[..])
    };
    let is = |row: &Row| found.rows.get(row).map(|value| &value[..]);
    let mut rows: Vec<_> = state.keys().chain(found.rows.keys()).collect();
    rows.sort();
    rows.dedup();
    let differ = rows
        .into_iter()
        .filter(|row| found.ids.contains(&row.0) && wanted(row) != is(row));
    let lines = differ.map(|row| {
        let (wanted, is) = (start(wanted(row)), start(is(row)));
        format!(
            "keyspace {} {}: {is} instead of {wanted}",
            row.0,
            row.1.escape_ascii()
        )
    });
    lines.collect()
}
