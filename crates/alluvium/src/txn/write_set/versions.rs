//! Versions of a write set: those kept for savepoints and views, rollback, and reclaiming space.
//!
//! Every write has a stamp. An overwrite moves the old version to `history` if a live savepoint or
//! an open view may still need it; otherwise it is in place. A rollback restores the versions in
//! the history after the savepoint's mark, in reverse. It then cuts arena, entries and history at
//! the mark: all three only grow at their end. A [`View`] is a stamp: a cursor sees the writes made
//! before it was opened and no later ones. Otherwise an update that moves rows forward would find
//! them again.

use super::{
    COMPACT_BYTES_MIN, Replaced, Savepoint, SavepointId, Version, View, WriteSet, make_room,
};
use crate::base::ValueKind;
use crate::error::{Error, Result};
use crate::memory::Charge;

impl WriteSet {
    /// Marks the present state.
    pub fn savepoint(&mut self) -> SavepointId {
        let id = SavepointId(self.next_savepoint);
        self.next_savepoint += 1;
        self.savepoints.push(Savepoint {
            id,
            stamp: self.stamp,
            arena: self.arena.len(),
            entries: self.entries.len(),
            history: self.history.len(),
            ranges: self.ranges.clone(),
        });
        id
    }

    /// Returns to the state at a savepoint. It stays; later ones are removed. Open views lose the
    /// undone writes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the savepoint was released, or an earlier one was rolled back
    /// to; nothing changes then.
    pub fn rollback_to(&mut self, savepoint: SavepointId) -> Result<()> {
        let Some(place) = self.savepoints.iter().position(|s| s.id == savepoint) else {
            return Err(Error::InvalidArgument(
                "the savepoint was released or rolled back past".to_owned(),
            ));
        };
        self.savepoints.truncate(place + 1);
        let (arena, entries, history) = {
            let mark = &self.savepoints[place];
            (mark.arena, mark.entries, mark.history)
        };
        self.ranges.clone_from(&self.savepoints[place].ranges);
        for replaced in self.history.split_off(history).into_iter().rev() {
            self.set_head(replaced.entry, replaced.version);
        }
        for entry in entries..self.entries.len() {
            self.uncount(entry as u32);
            let (keyspace, key) = (self.entries[entry].keyspace, self.entries[entry].key);
            let found = self.find(keyspace, self.bytes_of(key));
            debug_assert!(found.is_ok(), "every entry is in the index");
            if let Ok(position) = found {
                self.index.remove(position);
            }
        }
        self.entries.truncate(entries);
        self.arena.truncate(arena);
        Ok(())
    }

    /// Removes a savepoint and all later ones, and keeps the writes. Does nothing if it was removed
    /// already.
    pub fn release(&mut self, savepoint: SavepointId) {
        if let Some(place) = self.savepoints.iter().position(|s| s.id == savepoint) {
            self.savepoints.truncate(place);
            self.compact();
        }
    }

    /// Opens a view of the present state. Versions overwritten later are kept until it is closed.
    pub fn open_view(&mut self) -> View {
        self.views.push(self.stamp);
        View(self.stamp)
    }

    /// Closes a view, once for each time it was opened.
    pub fn close_view(&mut self, view: View) {
        if let Some(place) = self.views.iter().position(|&stamp| stamp == view.0) {
            self.views.swap_remove(place);
            self.compact();
        }
        if self.retired.is_some() && self.views.is_empty() {
            *self = WriteSet::new();
        }
    }

    /// Frees all memory as soon as no view is open: the transaction has its writes elsewhere.
    /// `charge` is for the memory.
    pub fn retire(&mut self, charge: Option<Charge>) {
        if self.views.is_empty() {
            *self = WriteSet::new();
        } else {
            self.retired = Some(charge);
        }
    }

    pub(super) fn replace(&mut self, entry: u32, kind: Option<ValueKind>, value: &[u8]) {
        let old = self.entries[entry as usize].head;
        let (value, older) = if self.is_needed(old.stamp) {
            let place = u32::try_from(self.history.len()).expect("fewer than 2^32 versions");
            make_room(&mut self.history, 1);
            self.history.push(Replaced {
                entry,
                version: old,
            });
            (self.store(value), Some(place))
        } else if value.len() <= old.value.len as usize {
            (self.store_at(old.value.offset, value), old.older)
        } else {
            (self.store(value), old.older)
        };
        let stamp = self.stamp;
        self.set_head(
            entry,
            Version {
                stamp,
                value,
                kind,
                older,
            },
        );
    }

    /// Returns true if a live savepoint or an open view may read a version with this stamp.
    fn is_needed(&self, stamp: u64) -> bool {
        let newest_savepoint = self.savepoints.last().map(|savepoint| savepoint.stamp);
        let newest_view = self.views.iter().copied().max();
        newest_savepoint.max(newest_view) >= Some(stamp)
    }

    pub(super) fn version_at(&self, entry: u32, view: View) -> Option<&Version> {
        let mut version = &self.entries[entry as usize].head;
        // Stamps fall from each version to the one before it.
        while version.stamp > view.0 {
            version = &self.history[version.older? as usize].version;
        }
        Some(version)
    }

    pub(super) fn footprint(&self) -> usize {
        self.arena.len() + self.history.len() * size_of::<Replaced>()
    }

    /// Reclaims the space of overwritten versions, if they take more than half and no savepoint or
    /// view needs them.
    ///
    /// The next check comes after the footprint has doubled, so the copying stays within a constant
    /// factor of the writes.
    pub(super) fn compact(&mut self) {
        let needed = !self.savepoints.is_empty() || !self.views.is_empty();
        if needed || self.footprint() < self.compact_at {
            return;
        }
        if self.footprint() > 2 * self.bytes {
            let old = std::mem::take(&mut self.arena);
            self.history.clear();
            for entry in &mut self.entries {
                for span in [&mut entry.key, &mut entry.head.value] {
                    let offset = self.arena.len();
                    self.arena.extend_from_slice(&old[span.range()]);
                    span.offset = offset;
                }
                entry.head.older = None;
            }
        }
        self.compact_at = COMPACT_BYTES_MIN.max(2 * self.footprint());
    }
}
