//! Conversion of library errors into the laboratory's, outside the hot path.

use rumbench_core::engine::EngineError;
use rumbench_core::kv::MapId;

/// Returns a closure for `map_err` that adds the failed operation. The conversion is cold: a
/// successful call costs one branch.
pub(crate) fn failed<E>(context: &'static str) -> impl FnOnce(E) -> EngineError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    #[cold]
    fn convert(
        context: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    ) -> EngineError {
        EngineError::Failed {
            context: context.to_string(),
            source,
        }
    }
    move |error| convert(context, error.into())
}

/// Returns the error for a map missing in the schema, which is a bug of the workload.
#[cold]
pub(crate) fn no_map(map: MapId) -> EngineError {
    EngineError::Unsupported(format!("the schema has no map {}", map.0))
}

/// Returns the error for closing an engine that a connection or a store still uses.
#[cold]
pub(crate) fn still_open(engine: &str) -> EngineError {
    EngineError::Unsupported(format!(
        "{engine} cannot be closed while a connection or a store of it is alive"
    ))
}
