//! Measurements and the arithmetic on them.
//!
//! - Kernel counters: [`process`], [`server`], [`device`], [`size`], [`counters`].
//! - The machine: [`environment`], [`doctor`].
//! - Latency: [`latency`].
//! - Arithmetic on results: [`statistics`], [`least_squares`], [`levels`], [`scalability`].
//! - Expected sizes and costs: [`compressed`], [`theory`].
//! - The table that defines every metric: [`metrics`].

pub mod compressed;
pub mod counters;
pub mod device;
pub mod doctor;
pub mod environment;
pub mod latency;
pub mod least_squares;
pub mod levels;
pub mod metrics;
pub mod process;
pub mod scalability;
pub mod server;
pub mod size;
pub mod statistics;
pub mod theory;
