//! Errors of SQLite's calls.

use rumbench_core::engine::EngineError;
use rusqlite::ErrorCode;

#[cold]
pub(super) fn convert(context: &'static str, error: rusqlite::Error) -> EngineError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            EngineError::Retry(error.to_string())
        }
        _ => EngineError::failed(context, error),
    }
}

/// Returns a closure for `map_err` that adds the failed operation. A busy database becomes
/// [`EngineError::Retry`].
pub(super) fn sqlite_error(context: &'static str) -> impl FnOnce(rusqlite::Error) -> EngineError {
    move |error| convert(context, error)
}
