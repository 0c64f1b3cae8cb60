//! Error of an engine call, classified by how a client reacts to it.

/// Result of every engine call.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Error of an engine call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A conflict, deadlock or lock timeout: roll back and run the whole transaction again.
    #[error("conflict, retry the transaction: {0}")]
    Retry(String),
    /// The engine, variant or setting does not exist or is not available in this build.
    #[error("{0}")]
    Unsupported(String),
    /// The engine gave an answer that cannot be right. A wrong answer never becomes a number in a
    /// result.
    #[error("wrong answer: {0}")]
    Wrong(String),
    /// Any other error, in the engine's own words.
    #[error("{context}: {source}")]
    Failed {
        /// The attempted call, with engine and file.
        context: String,
        /// The engine's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl EngineError {
    /// Creates an [`EngineError::Failed`] with the engine's own error as its source.
    pub fn failed(
        context: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> EngineError {
        EngineError::Failed {
            context: context.into(),
            source: source.into(),
        }
    }
}
