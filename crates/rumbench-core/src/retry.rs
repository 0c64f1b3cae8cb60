//! Transactions that conflict are run again, inside their latency.

use crate::engine::EngineError;
use crate::trial::Done;

/// Times that one transaction is run before its conflict is an error.
pub const ATTEMPTS_MAX: u32 = 1000;

/// Runs a transaction until it does not conflict, at most [`ATTEMPTS_MAX`] times; returns its result and how often it
/// was run again. `backoff` is called before attempt number 2, 3, ...
pub(crate) fn retried_with<T>(
    backoff: fn(u32),
    mut transaction: impl FnMut() -> Result<T, EngineError>,
) -> Result<(T, u64), EngineError> {
    let mut attempt = 1;
    loop {
        match transaction() {
            Ok(result) => return Ok((result, u64::from(attempt - 1))),
            Err(EngineError::Retry(_)) if attempt < ATTEMPTS_MAX => attempt += 1,
            Err(error) => return Err(error),
        }
        backoff(attempt);
    }
}

/// As [`retried_with`], for a commit of a known number of rows.
pub(crate) fn retried(
    backoff: fn(u32),
    rows: u64,
    transaction: impl FnMut() -> Result<(), EngineError>,
) -> Result<Done, EngineError> {
    let ((), retries) = retried_with(backoff, transaction)?;
    Ok(Done {
        rows,
        retries,
        ..Done::default()
    })
}
