//! Client that follows the stream of changes, over all incarnations of the database.
//!
//! Each change must be the next commit of the history, with exactly the writes of that commit. So
//! every acknowledged commit comes exactly once and in order, also after a stream is closed and
//! reopened at its position. A stream must not end before a commit that was visible when the read
//! began (durable, if the stream shows durable changes only). Half of the clients ask for durable
//! changes only: no power loss may remove changes that these clients have seen.

use std::collections::BTreeSet;

use alluvium::{Change, ChangeKind, ChangesOptions, Durability, Error, Operation};

use crate::client::Client;
use crate::history::{History, Intent};
use crate::records::Checked;
use crate::state::{Row, Stored, Write, apply};
use crate::transaction::tag_of_xid;
use crate::world::World;

/// Returns whether this client's stream shows durable changes only.
pub fn is_durable_only(client: usize) -> bool {
    client % 2 == 1
}

impl Client {
    pub(crate) fn follow(&mut self, most: usize) -> Checked<()> {
        let world = &*self.world.clone();
        if world.options.durability == Durability::None {
            return Ok(());
        }
        for _ in 0..most {
            if !self.open_stream(world)? {
                return Ok(());
            }
            let position = self.position(world);
            let Some(stream) = &mut self.stream else {
                return Ok(());
            };
            // Newest commit that the stream must not miss. Taken before the read, because the
            // stream may miss a commit that arrives during the read.
            let owed = if is_durable_only(self.number) {
                world.records.history().floor(false)
            } else {
                world.db.visible_seqno()
            };
            let next = match stream.next() {
                Ok(next) => next,
                Err(error) => return self.interrupted(world, &error),
            };
            if world.disk.is_dead() {
                return Ok(());
            }
            let stands_at = stream.next_seqno();
            let history = world.records.history();
            match &next {
                Some(change) => judge(world, &history, change, position)?,
                None => judge_end(&history, position, owed.min(world.db.visible_seqno()))?,
            }
            drop(history);
            let seen = next.as_ref().map_or(0, |change| change.seqno + 1);
            self.resume_at(world, seen.max(stands_at));
            if next.is_none() {
                return Ok(());
            }
            world.records.count("changes compared", 1);
        }
        Ok(())
    }

    fn position(&self, world: &World) -> u64 {
        let outside = world.records.outside();
        outside.positions.get(&self.number).copied().unwrap_or(1)
    }

    fn resume_at(&self, world: &World, seqno: u64) {
        let mut outside = world.records.outside();
        outside.positions.insert(self.number, seqno);
    }

    /// Opens a stream if there is none. Returns whether there is one now.
    fn open_stream(&mut self, world: &World) -> Checked<bool> {
        if self.stream.is_some() {
            return Ok(true);
        }
        let options = ChangesOptions {
            durable_only: is_durable_only(self.number),
            ..ChangesOptions::default()
        };
        let position = self.position(world);
        match world.db.changes_with(position, options) {
            Ok(stream) => {
                world.records.count("streams of changes opened", 1);
                self.stream = Some(stream);
                Ok(true)
            }
            Err(error) => self.interrupted(world, &error).map(|()| false),
        }
    }

    /// Handles an error: the client keeps its position. Only after `ChangesLost` it goes on after
    /// the newest visible or durable commit, because the log no longer has the next ones.
    fn interrupted(&mut self, world: &World, error: &Error) -> Checked<()> {
        world.tolerate(error)?;
        if matches!(error, Error::ChangesLost { .. }) {
            self.stream = None;
            let next = if is_durable_only(self.number) {
                // Not the visible number: a visible commit need not be durable.
                world.records.history().floor(false) + 1
            } else {
                world.db.visible_seqno() + 1
            };
            self.resume_at(world, next.max(self.position(world)));
        }
        Ok(())
    }
}

/// Checks that a stream has not ended before commit `owed`.
fn judge_end(history: &History, position: u64, owed: u64) -> Checked<()> {
    if owed < position || history.is_uncertain(owed) {
        return Ok(());
    }
    match history.next_tagged(position, owed) {
        None => Ok(()),
        Some(missed) => Err(format!(
            "a stream of changes ends before commit {missed}, although {owed} was there before"
        )),
    }
}

/// Checks that a change is the next one, with the writes of its commit.
fn judge(world: &World, history: &History, change: &Change, position: u64) -> Checked<()> {
    let seqno = change.seqno;
    if seqno < position {
        return Err(format!("change {seqno} comes again, {position} was next"));
    }
    if history.is_uncertain(seqno) {
        return Ok(());
    }
    if let Some(missed) = history.next_tagged(position, seqno)
        && missed < seqno
    {
        return Err(format!(
            "change {seqno} follows, and commit {missed} was passed over"
        ));
    }
    let tag = history.tag_at(seqno);
    match (&change.kind, tag) {
        (ChangeKind::Commit { operations, xid }, Some(tag)) => {
            let prepared = xid.as_deref().map(tag_of_xid).transpose()?;
            if prepared.is_some_and(|told| told != tag) {
                return Err(format!(
                    "commit {seqno} of {tag} comes as that of {prepared:?}"
                ));
            }
            judge_operations(world, history, seqno, operations)
        }
        (ChangeKind::Ingest { keyspaces }, Some(tag)) => {
            // A row that a transaction has put and deleted may be told or not.
            let rows = history.intent(tag).map_or(0..=0, Intent::rows_told);
            let told: u64 = keyspaces.iter().map(|(_, rows)| rows).sum();
            if rows.contains(&told) {
                Ok(())
            } else {
                Err(format!("ingest {seqno} of {rows:?} rows comes as {told}"))
            }
        }
        // An ingest that failed in its last step, so the history has no client's commit for it.
        (ChangeKind::Ingest { .. }, None) => Ok(()),
        (ChangeKind::Commit { .. }, None) => {
            Err(format!("no client committed {seqno}: {change:?}"))
        }
        (_, None) => Ok(()),
        (_, Some(tag)) => Err(format!("commit {seqno} of {tag} comes as {change:?}")),
    }
}

/// Applies the operations to the state before the commit and compares the result with the state
/// after it. Only keyspaces that last for the whole run are compared.
fn judge_operations(
    world: &World,
    history: &History,
    seqno: u64,
    operations: &[Operation],
) -> Checked<()> {
    let lasting: BTreeSet<u32> = world.keyspaces.iter().map(|k| k.id().0).collect();
    let mut writes = Vec::new();
    for operation in operations {
        writes.push(match operation {
            Operation::Put {
                keyspace,
                key,
                value,
                until_ms,
            } => {
                let stored = Stored {
                    until_ms: *until_ms,
                    ..Stored::lasting(value)
                };
                Write::Row((keyspace.id.0, key.clone()), Some(stored))
            }
            Operation::Delete { keyspace, key } => Write::Row((keyspace.id.0, key.clone()), None),
            Operation::DeleteRange {
                keyspace,
                start,
                end,
            } => Write::Range(keyspace.id.0, start.clone(), end.clone()),
            other => return Err(format!("an unknown operation {other:?}")),
        });
    }
    let (mut made, after) = ((*history.at(seqno - 1)).clone(), history.at(seqno));
    apply(&mut made, &writes);
    // Rows that have expired or that a filter may have removed are not compared. If a transaction
    // inserts and deletes such a row, the log omits both, so the older row stays in `made`.
    let now_ms = world.watch.latest_ms();
    let of_lasting = |(row, stored): &(&Row, &Stored)| {
        let is_there = stored.is_there(now_ms) && !history.may_be_filtered(row, stored);
        lasting.contains(&row.0) && is_there
    };
    let same = made
        .iter()
        .filter(of_lasting)
        .eq(after.iter().filter(of_lasting));
    if same {
        Ok(())
    } else {
        Err(format!(
            "change {seqno} is not what its commit did: {operations:?}"
        ))
    }
}
