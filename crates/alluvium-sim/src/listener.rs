//! Listener for the events of one incarnation, and the rules that they must follow.
//!
//! Flushes and compactions begin before they end, and no more compactions run at once than there
//! are threads. The begin and end events of a write delay, and those of a lack of space, alternate.
//! A table is created once and deleted once. A failure is reported only if the disk has failed a
//! call, and poisoning only once. No event follows the close of the database. Some listeners panic,
//! and some call the database: neither may harm it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium::{Database, Event, EventListener};

use crate::disk::Disk;
use crate::plan::Listening;
use crate::records::{Checked, Records};

/// Listener that checks the events (see the module).
pub struct RecordingListener {
    listening: Listening,
    compactions_max: usize,
    disk: Disk,
    records: Arc<Records>,
    /// Released before a call of the database or of the simulation.
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    events: u64,
    flushing: bool,
    /// Number of running compactions, by keyspace.
    merging: BTreeMap<String, usize>,
    made: BTreeSet<u64>,
    gone: BTreeSet<u64>,
    delayed: bool,
    no_space: bool,
    poisoned: bool,
    closed: bool,
    wrong: Option<String>,
    /// Open database, for listeners that call it.
    database: Option<Database>,
}

impl RecordingListener {
    /// Creates a listener; `None` for [`Listening::Nobody`].
    pub fn new(
        listening: Listening,
        compactions_max: usize,
        disk: &Disk,
        records: &Arc<Records>,
    ) -> Option<Arc<RecordingListener>> {
        (listening != Listening::Nobody).then(|| {
            Arc::new(RecordingListener {
                listening,
                compactions_max,
                disk: disk.clone(),
                records: Arc::clone(records),
                heard: Mutex::default(),
            })
        })
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the listener the open database. Kept only by a listener that calls it.
    pub fn attach(&self, database: &Database) {
        if self.listening == Listening::Calls {
            self.heard().database = Some(database.clone());
        }
    }

    /// Drops the database handle before the database is closed.
    pub fn detach(&self) {
        let database = self.heard().database.take();
        drop(database);
    }

    /// Returns the first violation of the rules, after the database was closed. From now on every
    /// event is a violation. `poisoned`: the database has refused writes because of an earlier
    /// failure.
    pub fn judge(&self, poisoned: bool) -> Checked<()> {
        let mut heard = self.heard();
        heard.closed = true;
        self.records.count("events heard", heard.events);
        if let Some(wrong) = heard.wrong.take() {
            return Err(wrong);
        }
        let running: usize = heard.merging.values().sum();
        if running > 0 {
            return Err(format!(
                "{running} compactions have begun and not ended: {:?}",
                heard.merging
            ));
        }
        if poisoned && !heard.poisoned {
            Err("writes are refused for an earlier failure, and no event reported it".into())
        } else {
            Ok(())
        }
    }
}

impl Heard {
    /// Records an event; the error describes a violation of the rules.
    fn take_up(&mut self, event: &Event, listener: &RecordingListener) -> Result<(), String> {
        let (compactions_max, disk) = (listener.compactions_max, &listener.disk);
        let turn = |state: &mut bool, now: bool| {
            let before = std::mem::replace(state, now);
            (before != now).then_some(()).ok_or("it comes twice")
        };
        match event {
            Event::FlushBegin { .. } => self.flushing = true,
            Event::FlushEnd { .. } => turn(&mut self.flushing, false)?,
            Event::CompactionBegin { keyspace, .. } => {
                *self.merging.entry(keyspace.clone()).or_default() += 1;
                let running: usize = self.merging.values().sum();
                if running > compactions_max {
                    return Err(format!(
                        "{running} compactions run on {compactions_max} threads"
                    ));
                }
            }
            Event::CompactionEnd {
                keyspace, error, ..
            } => {
                let running = self.merging.get_mut(keyspace).filter(|count| **count > 0);
                *running.ok_or("it has not begun")? -= 1;
                if error.is_some() && !disk.has_failed() && !disk.has_flipped() {
                    return Err("nothing has failed".into());
                }
            }
            Event::TableCreated { table, .. } if !self.made.insert(*table) => {
                return Err("its number was given twice".into());
            }
            Event::TableDeleted { table } if !self.gone.insert(*table) => {
                return Err("it went before".into());
            }
            Event::TableCreated { .. } | Event::TableDeleted { .. } => {}
            Event::WriteDelayBegin => turn(&mut self.delayed, true)?,
            Event::WriteDelayEnd => turn(&mut self.delayed, false)?,
            Event::NoSpaceBegin { .. } => turn(&mut self.no_space, true)?,
            Event::NoSpaceEnd => turn(&mut self.no_space, false)?,
            Event::BackgroundFailure { .. } => {
                if !disk.has_failed() {
                    return Err("nothing has failed".into());
                }
            }
            Event::Poisoned { .. } => {
                turn(&mut self.poisoned, true)?;
                if !disk.may_have_poisoned() && !disk.has_flipped() {
                    return Err("nothing has failed".into());
                }
            }
            Event::ClockJump { .. } | Event::StoredTimeAhead { .. } => {
                if !listener.records.clock.has_jumped() {
                    return Err("the clock has never jumped".into());
                }
            }
            other => return Err(format!("unexpected: {other:?}")),
        }
        Ok(())
    }
}

impl EventListener for RecordingListener {
    fn on_event(&self, event: &Event) {
        let mut heard = self.heard();
        heard.events += 1;
        let closed = heard.closed.then(|| "the database is closed".to_owned());
        let taken = heard.take_up(event, self);
        if let Some(wrong) = closed.or(taken.err()) {
            let text = format!("a listener heard {event:?}: {wrong}");
            heard.wrong.get_or_insert(text);
        }
        let (number, database) = (heard.events, heard.database.clone());
        drop(heard);
        if let Some(database) = database {
            // Each call must return, whether the database is open, closing or failed.
            match number % 4 {
                0 => drop(database.flush()),
                1 => drop(database.sync()),
                2 => drop(database.snapshot()),
                _ => drop(database.stats()),
            }
        }
        if self.listening == Listening::Panics && number % 3 == 0 {
            std::panic::resume_unwind(Box::new("a listener that panics"));
        }
    }
}
