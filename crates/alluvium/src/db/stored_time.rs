//! Setting back the stored time of a closed database that has recorded a wrong clock.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::recovery::{absolute, hold, lock_to_write};
use crate::version::Manifest;
use crate::vfs::{RealVfs, Vfs};

/// Sets back the stored time of the database in `dir`, in milliseconds since 1970, and returns the
/// time that was stored.
///
/// The time of reads never falls below the stored time. Use this for a database that has recorded a
/// wrong clock, as [`crate::Event::StoredTimeAhead`] reports. Rows that compactions dropped because
/// of the wrong time do not come back. All other rows are visible again until they expire. Durable
/// when the call returns. After a crash either the old or the new time is stored.
///
/// # Errors
///
/// `Locked` if the database is open. `InvalidArgument` if there is no database, and for a time
/// later than the stored one, which only a clock may confirm. `Corruption`, `NewerFormat`,
/// `NoSpace`, `Io`.
pub fn set_stored_time(dir: impl AsRef<Path>, to_ms: u64) -> Result<u64> {
    set_stored_time_on(Arc::new(RealVfs::new()), dir, to_ms)
}

/// Sets back the stored time as [`set_stored_time`] does, on another file system.
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
