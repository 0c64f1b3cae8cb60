//! What is measured and how: kernel counters ([`process`], [`server`], [`device`], [`size`]), the machine ([`environment`], [`doctor`]),
//! latency ([`latency`]), arithmetic on results ([`statistics`], [`least_squares`], [`levels`], [`scalability`]), what layouts of data should cost
//! ([`theory`]) and the table that defines every metric ([`metrics`]).

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
