//! Retries of conflicting transactions; their time counts in the latency of the operation.

use crate::error::EngineError;
use crate::trial::Done;

/// Most attempts of one transaction; after that its conflict is an error.
pub const ATTEMPTS_MAX: u32 = 1000;

/// Runs a transaction until it does not conflict, at most [`ATTEMPTS_MAX`] times. Returns its
/// result and the number of retries. `backoff` is called before attempt number 2, 3, ...
pub(crate) fn retried_with<T>(
    backoff: fn(u32),
    mut transaction: impl FnMut() -> Result<T, EngineError>,
) -> Result<(T, u64), EngineError> {
    let mut attempt = 1;
    loop {
        match transaction() {
            Ok(result) => return Ok((result, u64::from(attempt - 1))),
            Err(EngineError::Retry(_)) if attempt < ATTEMPTS_MAX => attempt += 1,
            Err(EngineError::Retry(why)) => {
                let why = format!("{why} (the last of {ATTEMPTS_MAX} attempts)");
                return Err(EngineError::Retry(why));
            }
            Err(error) => return Err(error),
        }
        backoff(attempt);
    }
}

/// Like [`retried_with`], for a commit of a known number of rows.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_an_error_when_it_has_been_met_as_often_as_is_allowed() {
        let (mut runs, mut last) = (0, 0);
        let refused = retried_with(
            |_| {},
            || -> Result<(), EngineError> {
                runs += 1;
                Err(EngineError::Retry("locked".to_string()))
            },
        );
        let expected = "locked (the last of 1000 attempts)";
        assert!(matches!(refused, Err(EngineError::Retry(why)) if why == expected));
        assert_eq!(runs, ATTEMPTS_MAX);
        let done = retried(
            |_| {},
            7,
            || {
                last += 1;
                match last {
                    ATTEMPTS_MAX => Ok(()),
                    _ => Err(EngineError::Retry("locked".to_string())),
                }
            },
        );
        let done = done.unwrap();
        assert_eq!((done.rows, done.retries), (7, u64::from(ATTEMPTS_MAX) - 1));
    }
}
