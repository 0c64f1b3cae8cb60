//! Operations as text, one line each, for the log of a failing test.

use std::fmt;
use std::ops::Bound;

use super::{Move, Op};
use crate::model::Write;

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Commit(writes) | Op::Ingest(writes) => {
                let ingest = matches!(self, Op::Ingest(_));
                write!(f, "{}", if ingest { "ingest" } else { "commit" })?;
                writes
                    .iter()
                    .try_for_each(|(name, write)| write!(f, " [{name} {write}]"))
            }
            Op::Get {
                keyspace,
                key,
                snapshot,
            } => {
                write!(
                    f,
                    "get {keyspace} \"{}\"{}",
                    key.escape_ascii(),
                    Through(*snapshot)
                )
            }
            Op::Scan {
                keyspace,
                range,
                direction,
                limit,
                snapshot,
            } => {
                let (start, end) = (Shown(&range.0), Shown(&range.1));
                write!(
                    f,
                    "scan {keyspace} {start}..{end} {direction:?} limit={limit}{}",
                    Through(*snapshot)
                )
            }
            Op::Snapshot => write!(f, "snapshot"),
            Op::DropSnapshot(index) => write!(f, "drop snapshot {index}"),
            Op::Flush => write!(f, "flush"),
            Op::Compact(name) => write!(f, "compact {name}"),
            Op::OpenCursor { keyspace, snapshot } => {
                write!(f, "cursor {keyspace}{}", Through(*snapshot))
            }
            Op::MoveCursor(index, to) => write!(f, "move {index} {to}"),
            Op::CloseCursor(index) => write!(f, "close {index}"),
            Op::Reopen => write!(f, "reopen"),
            Op::Crash => write!(f, "crash"),
            Op::CreateKeyspace(name) => write!(f, "create {name}"),
            Op::DropKeyspace(name) => write!(f, "drop {name}"),
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The number at the start identifies a value.
        let number = |value: &[u8]| {
            value
                .split(|byte| *byte == b'.')
                .next()
                .map_or(0, <[u8]>::len)
        };
        let (verb, key, value) = match self {
            Write::Put(key, value) => ("put", key, value),
            Write::Insert(key, value) => ("insert", key, value),
            Write::Delete(key) => return write!(f, "delete \"{}\"", key.escape_ascii()),
            Write::DeleteRange(start, end) => {
                let (start, end) = (start.escape_ascii(), end.escape_ascii());
                return write!(f, "delete \"{start}\"..\"{end}\"");
            }
        };
        let (start, bytes) = (value[..number(value).min(24)].escape_ascii(), value.len());
        write!(
            f,
            "{verb} \"{}\" {start} ({bytes} bytes)",
            key.escape_ascii()
        )
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Move::First => write!(f, "first"),
            Move::Last => write!(f, "last"),
            Move::Seek(key) => write!(f, "at \"{}\"", key.escape_ascii()),
            Move::SeekBefore(key) => write!(f, "before \"{}\"", key.escape_ascii()),
            Move::Next => write!(f, "next"),
            Move::Prev => write!(f, "prev"),
        }
    }
}

struct Through(Option<usize>);

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|index| write!(f, " snapshot={index}"))
    }
}

struct Shown<'a>(&'a Bound<Vec<u8>>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Bound::Included(key) => write!(f, "=\"{}\"", key.escape_ascii()),
            Bound::Excluded(key) => write!(f, "\"{}\"", key.escape_ascii()),
            Bound::Unbounded => Ok(()),
        }
    }
}
