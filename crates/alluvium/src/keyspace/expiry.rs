//! Row expiry: in a keyspace with an expiry, each stored value ends with its expiry time.
//!
//! ```text
//! value bytes | u64 milliseconds since 1970, little-endian; all ones: never
//! ```

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

/// Expiry of the rows of a keyspace. Exact at read time: a row is absent if the read's snapshot,
/// cursor or call began at or after the row's expiry time, even before a compaction removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// Rows do not expire and carry no time.
    #[default]
    Never,
    /// Rows written with `put_until` expire; every row costs 8 bytes before compression.
    PerRow,
    /// As `PerRow`, and all other rows expire this long after their write call, in milliseconds.
    After(Duration),
}

/// Bytes of expiry time after each value.
pub(crate) const EXPIRY_BYTES: usize = 8;

/// Expiry time of a row that does not expire.
pub(crate) const NEVER: u64 = u64::MAX;

impl Expiry {
    /// Returns true if stored values end with an expiry time.
    pub(crate) fn is_stored(self) -> bool {
        self != Expiry::Never
    }

    /// Returns the value as it is stored, for a write at `now_ms` with the optional expiry time
    /// `until_ms`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for `until_ms` in a keyspace without expiry.
    pub(crate) fn stored(
        self,
        value: &[u8],
        until_ms: Option<u64>,
        now_ms: impl FnOnce() -> u64,
    ) -> Result<Cow<'_, [u8]>> {
        let own = match self {
            Expiry::Never if until_ms.is_some() => {
                let message = "rows of this keyspace do not expire: create it with an expiry";
                return Err(Error::InvalidArgument(message.into()));
            }
            Expiry::Never => return Ok(Cow::Borrowed(value)),
            Expiry::PerRow => NEVER,
            Expiry::After(ttl) if until_ms.is_none() => {
                let ttl = u64::try_from(ttl.as_millis()).unwrap_or(NEVER);
                now_ms().saturating_add(ttl)
            }
            Expiry::After(_) => NEVER,
        };
        let until = until_ms.unwrap_or(own);
        Ok(Cow::Owned([value, &until.to_le_bytes()].concat()))
    }
}

/// Returns the expiry time of a stored value of an expiring keyspace; `None` for bytes that are no
/// such value.
pub(crate) fn expires_at(stored: &[u8]) -> Option<u64> {
    let (_, time) = stored.split_last_chunk::<EXPIRY_BYTES>()?;
    Some(u64::from_le_bytes(*time))
}

/// Returns the error for a stored value without an expiry time.
pub(crate) fn malformed(keyspace: &str, stored: usize) -> Error {
    let what = "expiry time after a value of this keyspace";
    Error::corruption(Path::new(keyspace), 0, what, EXPIRY_BYTES, stored)
}

/// Returns true if the row with this stored value has not expired at `now_ms`.
pub(crate) fn is_live(keyspace: &str, stored: &[u8], now_ms: u64) -> Result<bool> {
    match expires_at(stored) {
        Some(until) => Ok(now_ms < until),
        None => Err(malformed(keyspace, stored.len())),
    }
}
