//! The next segment's file, made ahead of time by a thread that nobody waits for.
//!
//! A prepared file has its name and its room, durable, and no header: whatever becomes of it, replay passes it over as
//! a creation that did not finish. The writer turns it into a segment by writing the header, at the moment when it
//! knows where the previous one ended.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::hard_io;
use super::segment::create_room;
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
            .and_then(|()| {
                let synced = self.vfs.sync_dir(&self.dir);
                synced.map_err(|error| hard_io("sync directory", &self.dir, error))
            });
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
