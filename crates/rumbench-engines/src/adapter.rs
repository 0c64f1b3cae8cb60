//! Entry points of an engine, as the registry reaches them.

use rumbench_core::engine::{Engine, OpenConfig, Result};

/// Functions that reach an engine's code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Adapter {
    /// Reads variant and settings without opening anything.
    pub check: fn(&OpenConfig) -> Result<()>,
    /// Opens the database with the tables that the configuration names.
    pub open: fn(&OpenConfig) -> Result<Box<dyn Engine>>,
}

/// Log file of a server that the laboratory starts, in the trial's data directory.
pub const SERVER_LOG: &str = "server.log";
