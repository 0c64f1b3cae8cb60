//! Turns the errors of libraries into the laboratory's, out of the hot path.

use rumbench_core::engine::EngineError;
use rumbench_core::kv::MapId;

/// A closure for `map_err` that names what was attempted. The conversion is cold: calls that succeed pay a branch.
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

/// The error for a map that the schema does not have: a mistake of the workload.
#[cold]
pub(crate) fn no_map(map: MapId) -> EngineError {
    EngineError::Unsupported(format!("the schema has no map {}", map.0))
}

/// The error for closing an engine that a connection or a store still uses.
#[cold]
pub(crate) fn still_open(engine: &str) -> EngineError {
    EngineError::Unsupported(format!(
        "{engine} cannot be closed while a connection or a store of it is alive"
    ))
}
