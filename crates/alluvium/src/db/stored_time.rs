//! The stored time of a closed database, set back after a wrong clock was recorded.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::recovery::{absolute, hold, lock_to_write};
use crate::version::Manifest;
use crate::vfs::{RealVfs, Vfs};

/// Sets back the time that is stored in the database in `dir`, below which the time of reads never falls: for a
/// database that has recorded a wrong clock, as [`crate::Event::StoredTimeAhead`] tells. Milliseconds since 1970. Returns
/// the time that was stored. Rows that compactions dropped by the wrong time do not come back; those that are there are
/// found again until their own time. Durable when the call returns; after a crash one or the other time is stored.
///
/// # Errors
///
/// `Locked` if the database is open; `InvalidArgument` if there is none, and for a time that is later than the stored one,
/// which only a clock may confirm; `Corruption`, `NewerFormat`, `NoSpace`, `Io`.
pub fn set_stored_time(dir: impl AsRef<Path>, to_ms: u64) -> Result<u64> {
    set_stored_time_on(Arc::new(RealVfs::new()), dir, to_ms)
}

/// As [`set_stored_time`], on a file system of the caller's.
pub fn set_stored_time_on(vfs: Arc<dyn Vfs>, dir: impl AsRef<Path>, to_ms: u64) -> Result<u64> {
    let dir = &absolute(&*vfs, dir.as_ref())?;
    if !Manifest::exists(&*vfs, dir)? {
        let message = format!("there is no database in {}", dir.display());
        return Err(Error::InvalidArgument(message));
    }
    let vfs = hold(&*vfs, dir)?;
    let _lock = lock_to_write(&*vfs, dir)?;
    let (_, state) = Manifest::read(&*vfs, dir)?;
    let stored_ms = state.read_clock_ms;
    if to_ms > stored_ms {
        let message = format!(
            "the stored time is {stored_ms} ms: it can be set back, not forward to {to_ms} ms"
        );
        return Err(Error::InvalidArgument(message));
    }
    if to_ms < stored_ms {
        Manifest::open_changed(vfs, dir, |state| state.read_clock_ms = to_ms)?;
    }
    Ok(stored_ms)
}
