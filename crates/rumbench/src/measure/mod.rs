//! What is measured and how: kernel counters ([`process`], [`device`], [`size`]), the machine ([`environment`]),
//! latency ([`latency`]), arithmetic on results ([`statistics`]) and the table that defines every metric ([`metrics`]).

pub mod compressed;
pub mod device;
pub mod environment;
pub mod latency;
pub mod metrics;
pub mod process;
pub mod size;
pub mod statistics;
