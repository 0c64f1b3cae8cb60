//! Reads: doing them, what they must show in a state, and everything that a database holds.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use alluvium::simulation;
use alluvium::{Cursor, CursorOptions, Database, Keyspace, Snapshot, Transaction, Value};

use crate::history::{Row, State, Stored};
use crate::plan::{Move, Read, Where};

/// What a read has shown: a row, or none, for each of its moves.
pub type Seen = Vec<Option<(Vec<u8>, Vec<u8>)>>;

/// Where a read reads.
pub enum Source<'a> {
    /// The newest state.
    Newest,
    /// A snapshot.
    Snapshot(&'a Snapshot),
    /// A transaction.
    Transaction(&'a Transaction),
}

/// A read's rows for a message: keys and the beginnings of values.
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

/// The time of the simulation's clock, in milliseconds.
pub fn now_ms() -> u64 {
    simulation::now_ns().unwrap_or(0) / 1_000_000
}

/// What a read must show in a state, at a time.
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

/// Does a read. With it comes the commit that a cursor says it shows.
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
    /// Where it reads.
    pub fn place(&self) -> Where {
        match self {
            Read::Get(place, _) | Read::Walk(place, _) => *place,
        }
    }
}

/// What a database holds.
#[derive(Debug)]
pub struct Content {
    /// The ids of its keyspaces.
    pub ids: Vec<u32>,
    /// Their rows.
    pub rows: BTreeMap<Row, Vec<u8>>,
    /// When it was read, in milliseconds.
    pub read_at: RangeInclusive<u64>,
}

/// Reads everything.
pub fn content(db: &Database) -> alluvium::Result<Content> {
    let began = now_ms();
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
        read_at: began..=now_ms(),
    })
}

impl Content {
    /// Whether a state shows exactly this at one of these times, as far as its keyspaces go.
    pub fn is_of(&self, state: &State, times: &[u64]) -> bool {
        let shows = |now_ms: u64| {
            let rows = state
                .iter()
                .filter(|((id, _), stored)| self.ids.contains(id) && stored.is_there(now_ms));
            let rows = rows.map(|(row, stored)| (row, &stored.value[..]));
            rows.eq(self.rows.iter().map(|(row, value)| (row, &value[..])))
        };
        times.iter().any(|now_ms| shows(*now_ms))
    }
}

/// The rows in which a content differs from a state, the first few.
pub fn difference(state: &State, found: &Content) -> String {
    let now_ms = *found.read_at.end();
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
    let lines = differ.take(6).map(|row| {
        let (wanted, is) = (start(wanted(row)), start(is(row)));
        format!(
            "keyspace {} {}: {is} instead of {wanted}",
            row.0,
            row.1.escape_ascii()
        )
    });
    lines.collect::<Vec<_>>().join("; ")
}
