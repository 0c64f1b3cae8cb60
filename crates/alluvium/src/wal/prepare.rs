//! Files of segments to come, made ahead of time by a thread that nobody waits for.
//!
//! A prepared file has its name and its room, durable, and no header: whatever becomes of it, replay passes it over as
//! a creation that did not finish. The writer turns it into a segment by writing the header, at the moment when it
//! knows where the previous one ended.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::segment::create_room;
use super::{hard_io, sync_dir};
use crate::base::SegmentId;
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};

/// What is to be prepared: see [`super::WalWriter::plan_next`].
#[derive(Debug)]
pub struct SegmentPlan {
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) dir: PathBuf,
    pub(super) segment: SegmentId,
    pub(super) bytes: u64,
    /// The writer's.
    pub(super) failure: Arc<OnceLock<Error>>,
}

/// A file that waits to become a segment.
#[derive(Debug)]
pub struct PreparedSegment {
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) segment: SegmentId,
    pub(super) bytes: u64,
    vfs: Arc<dyn Vfs>,
}

impl SegmentPlan {
    /// Creates the file, durable on return. `None`: it could not be created or found no room, and nothing happened;
    /// the writer will try by itself. Costs two syncs.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] after a failed sync is final for the log: the directory may hold names that matter, and a later
    /// sync of it could report success all the same.
    pub fn create(self) -> Result<Option<PreparedSegment>> {
        let (vfs, bytes) = (&*self.vfs, self.bytes);
        let Ok((file, _)) = create_room(vfs, &self.dir, self.segment, bytes, bytes) else {
            return Ok(None);
        };
        let synced = file
            .sync()
            .map_err(|error| hard_io("sync", file.path(), error))
            .and_then(|()| sync_dir(vfs, &self.dir));
        synced.map_err(|error| self.failure.get_or_init(|| error).clone())?;
        Ok(Some(PreparedSegment {
            file,
            segment: self.segment,
            bytes: self.bytes,
            vfs: self.vfs,
        }))
    }
}

impl PreparedSegment {
    /// Removes the file, which is not needed. A leftover is harmless, and goes with the segments before it.
    pub fn remove(self) {
        let _ = self.vfs.remove(self.file.path());
    }
}

/// The prepared files of a writer, oldest first.
#[derive(Debug)]
pub(super) struct Stock {
    ready: VecDeque<PreparedSegment>,
    /// How many to have ready where there is ample space; otherwise it is one.
    wanted: usize,
    ample: bool,
    /// A plan was handed out.
    planned: bool,
    /// One could not be made, or the log is closing; not tried again before the next roll.
    refused: bool,
}

/// The most files that are kept ready, for writers that fill segments faster than a busy device creates one. They take room
/// of the device: more of them would last longer and cost more space than is promised under saturating writers.
const READY_MAX: usize = 6;

impl Default for Stock {
    fn default() -> Stock {
        Stock {
            ready: VecDeque::new(),
            wanted: 1,
            ample: false,
            planned: false,
            refused: false,
        }
    }
}

impl Stock {
    /// Whether another file is to be planned.
    pub(super) fn wants_more(&self) -> bool {
        let wanted = if self.ample { self.wanted } else { 1 };
        !self.planned && !self.refused && self.ready.len() < wanted
    }

    /// Says whether more than one file may lie ready: where space is short, tables need it more.
    pub(super) fn set_ample(&mut self, ample: bool) {
        self.ample = ample;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// A plan is handed out.
    pub(super) fn plan(&mut self) {
        self.planned = true;
    }

    /// Takes what became of the plan, while the log is in the segment `current`. Returns a file that came too late.
    pub(super) fn offer(
        &mut self,
        prepared: Option<PreparedSegment>,
        current: SegmentId,
    ) -> Option<PreparedSegment> {
        let planned = std::mem::replace(&mut self.planned, false);
        match prepared {
            None => {
                self.refused |= planned;
                None
            }
            // Numbers rise along the log: one that was passed is not used any more.
            Some(late) if late.segment < current || self.refused => Some(late),
            Some(prepared) => {
                self.ready.push_back(prepared);
                None
            }
        }
    }

    /// The file for a roll that needs this many bytes. Where none is ready, more will be from now on.
    pub(super) fn take(&mut self, needed: u64) -> Option<PreparedSegment> {
        self.refused = false;
        if self.ready.is_empty() {
            self.wanted = (self.wanted * 2).min(READY_MAX);
        }
        let first = self.ready.pop_front()?;
        if first.bytes >= needed {
            return Some(first);
        }
        // The roll takes a new number, above those of all of them.
        first.remove();
        self.ready.drain(..).for_each(PreparedSegment::remove);
        None
    }

    /// Gives up all files, those that are on their way too.
    pub(super) fn close(&mut self) -> Vec<PreparedSegment> {
        self.refused = true;
        self.ready.drain(..).collect()
    }
}
