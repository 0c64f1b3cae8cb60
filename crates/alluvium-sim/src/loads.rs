//! Rows loaded straight into tables: ingests of sorted rows, and bulk loads of rows in any order.
//!
//! Each is one commit, durable when it returns, at every durability. The log has a marker of it but
//! not its rows. So the outcome of a failed load is known only after the next opening; until then
//! the history is *uncertain*.

use std::collections::BTreeSet;

use alluvium::{BulkLoad, BulkLoadOptions, Duplicates, Durability, Error, Ingested, Keyspace};

use crate::client::Client;
use crate::history::{Intent, set_unmarked};
use crate::plan::{Key, Where};
use crate::records::Checked;
use crate::state::Stored;
use crate::world::{World, is_exclusive, row};

/// Minimum memory of a bulk load.
const LOAD_MEMORY_BYTES: usize = 64 << 10;
/// Size of a large value: a buffer of the load holds only some of them.
const LARGE_VALUE_BYTES: usize = 9_000;

impl Client {
    pub(crate) fn ingest(&self, place: Where, keys: &[Key]) -> Checked<()> {
        let world = &self.world;
        let Some(keyspace) = world.keyspace(place)? else {
            return Ok(());
        };
        let Some(mut ingest) = world.known(world.db.ingest())? else {
            return Ok(());
        };
        let tag = world.records.history().intend();
        let mut intent = Intent::default();
        for (at, key) in keys.iter().filter(|key| !is_exclusive(key)).enumerate() {
            let stored = world.stored(place, tag, at);
            let put = match stored.until_ms {
                None => ingest.put(&keyspace, key, &stored.value),
                Some(until) => ingest.put_until(&keyspace, key, &stored.value, until),
            };
            if world.known(put)?.is_none() {
                return Ok(());
            }
            intent.writes.push(row(&keyspace, key, Some(&stored)));
        }
        if intent.writes.is_empty() {
            return Ok(());
        }
        let (mark, value) = load_mark(tag);
        let marks = &world.keyspaces[0];
        if world.known(ingest.put(marks, &mark, &value))?.is_none() {
            return Ok(());
        }
        intent
            .writes
            .push(row(marks, &mark, Some(&Stored::lasting(&value))));
        let done = install(world, tag, intent, || ingest.finish())?;
        world.records.count("ingests", u64::from(done));
        Ok(())
    }

    pub(crate) fn bulk_load(
        &self,
        place: Where,
        keys: &[Key],
        large: bool,
        unique: bool,
    ) -> Checked<()> {
        let world = &self.world;
        let Some(keyspace) = world.keyspace(place)? else {
            return Ok(());
        };
        let options = BulkLoadOptions {
            memory_bytes: LOAD_MEMORY_BYTES,
            duplicates: if unique {
                Duplicates::Refuse
            } else {
                Duplicates::LastWins
            },
        };
        let Some(mut load) = world.known(world.db.bulk_load(options))? else {
            return Ok(());
        };
        let tag = world.records.history().intend();
        let keys: Vec<&Key> = keys.iter().filter(|key| !is_exclusive(key)).collect();
        let distinct = keys.iter().collect::<BTreeSet<_>>().len();
        let refused = unique && distinct < keys.len();
        let mut intent = Intent::default();
        for (at, key) in keys.into_iter().enumerate() {
            let mut stored = world.stored(place, tag, at);
            if large {
                stored = enlarged(&stored);
            }
            if let Err(error) = put(&mut load, &keyspace, key, &stored) {
                return judge_refusal(world, &error, refused);
            }
            intent.writes.push(row(&keyspace, key, Some(&stored)));
        }
        if intent.writes.is_empty() {
            return Ok(());
        }
        let (mark, value) = load_mark(tag);
        let marks = &world.keyspaces[0];
        let stored = Stored::lasting(&value);
        if let Err(error) = put(&mut load, marks, &mark, &stored) {
            return judge_refusal(world, &error, refused);
        }
        intent.writes.push(row(marks, &mark, Some(&stored)));
        let mut refusal = None;
        let done = install(world, tag, intent, || {
            load.finish().inspect_err(|error| {
                if matches!(error, Error::DuplicateKey { .. }) {
                    refusal = Some(error.clone());
                }
            })
        });
        if let Some(error) = refusal {
            return judge_refusal(world, &error, refused);
        }
        let done = done?;
        if done && refused && !world.disk.is_dead() {
            return Err("a load without duplicates took a key twice".into());
        }
        world.records.count("bulk loads", u64::from(done));
        Ok(())
    }
}

/// Returns the row that shows whether a load has happened, even if all its other rows have expired.
/// Each load has its own row over no older version, so that the tables of marks may go straight
/// into the last level.
fn load_mark(tag: u64) -> (Vec<u8>, Vec<u8>) {
    (format!("load {tag:06}").into_bytes(), b"done".to_vec())
}

/// Returns a value so large that a few of them fill a buffer. It is not all zeros, since it must
/// not compress to nothing.
fn enlarged(stored: &Stored) -> Stored {
    let own = stored.value.iter().copied().cycle();
    let value = own.zip(0u32..).map(|(byte, at)| byte ^ (at / 7) as u8);
    let value = stored.value.iter().copied().chain(value);
    Stored {
        value: value.take(LARGE_VALUE_BYTES).collect(),
        until_ms: stored.until_ms,
    }
}

fn put(
    load: &mut BulkLoad,
    keyspace: &Keyspace,
    key: &[u8],
    stored: &Stored,
) -> alluvium::Result<()> {
    match stored.until_ms {
        None => load.put(keyspace, key, &stored.value),
        Some(until) => load.put_until(keyspace, key, &stored.value, until),
    }
}

/// Checks that a failed load has a reason: its keys, or a fault of the plan.
fn judge_refusal(world: &World, error: &Error, refused: bool) -> Checked<()> {
    if !matches!(error, Error::DuplicateKey { .. }) {
        return world.tolerate(error);
    }
    world.records.count("bulk loads refused", 1);
    if refused {
        Ok(())
    } else {
        Err(format!("no key came twice: {error}"))
    }
}

/// Installs the loaded rows. Returns whether the load was acknowledged.
fn install(
    world: &World,
    tag: u64,
    intent: Intent,
    finish: impl FnOnce() -> alluvium::Result<Ingested>,
) -> Checked<bool> {
    let rows: BTreeSet<_> = intent.rows().into_iter().collect();
    world.records.history().say(tag, intent);
    set_unmarked(Some(tag));
    let result = finish();
    set_unmarked(None);
    let told = result.as_ref().ok().map(|ingested| ingested.seqno);
    if let Ok(ingested) = &result
        && ingested.rows != rows.len() as u64
    {
        let (told, given) = (ingested.rows, rows.len());
        return Err(format!(
            "{told} rows were loaded of {given} that were given"
        ));
    }
    let seqno = world.committed(tag, result.map(drop), Durability::Sync)?;
    if seqno == told || world.disk.is_dead() {
        Ok(seqno.is_some())
    } else {
        Err(format!("a load says {told:?}, its number is {seqno:?}"))
    }
}
