//! Rows that expire: in a keyspace with an expiry each stored value ends with the time at which it is gone.
//!
//! ```text
//! value bytes | u64 milliseconds since 1970, little-endian; all ones: never
//! ```

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

/// Whether and when the rows of a keyspace expire. Exact at read time: an expired row is absent for every read whose
/// snapshot, cursor or call began at or after its time, merged away or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// Rows do not expire and carry no time.
    #[default]
    Never,
    /// Rows expire that were written with `put_until`; each row costs 8 bytes before compression.
    PerRow,
    /// As `PerRow`, and rows written otherwise expire this long after their write call. Milliseconds count.
    After(Duration),
}

/// Bytes behind each value.
pub(crate) const EXPIRY_BYTES: usize = 8;

/// The time of a row that does not expire.
pub(crate) const NEVER: u64 = u64::MAX;

impl Expiry {
    /// Whether stored values end with a time.
    pub(crate) fn is_stored(self) -> bool {
        self != Expiry::Never
    }

    /// The value as it is stored, for a write at `now` that expires at `until` if that is given.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for `until` in a keyspace whose rows do not expire.
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

/// When a stored value of an expiring keyspace expires; `None` for bytes that are no such value.
pub(crate) fn expires_at(stored: &[u8]) -> Option<u64> {
    let (_, time) = stored.split_last_chunk::<EXPIRY_BYTES>()?;
    Some(u64::from_le_bytes(*time))
}

/// The error for a stored value without a time.
pub(crate) fn malformed(keyspace: &str, stored: usize) -> Error {
    let what = "expiry time behind a value of this keyspace";
    Error::corruption(Path::new(keyspace), 0, what, EXPIRY_BYTES, stored)
}

/// Whether a row with this stored value is there at `now_ms`.
pub(crate) fn is_live(keyspace: &str, stored: &[u8], now_ms: u64) -> Result<bool> {
    match expires_at(stored) {
        Some(until) => Ok(now_ms < until),
        None => Err(malformed(keyspace, stored.len())),
    }
}
