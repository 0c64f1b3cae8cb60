//! Vocabulary and workloads of the laboratory: pure and seeded, no I/O, no clock.
//!
//! Reading order: [`trial`] (phases, clients, operations), [`engine`], [`error`] (the interface of
//! an engine under test), [`kv`] (the interface of an ordered key-value engine), [`tables`] (tables
//! with indexes on it), then the workloads, [`linkbench`], [`kv_sequence`], [`insert_benchmark`],
//! [`large_values`], [`oltp_range`] and the users' own, [`custom`]. [`undo`] is separate: the
//! changes that a simulated power loss reverts.
#![forbid(unsafe_code)]

pub mod custom;
pub mod engine;
pub mod error;
pub mod insert_benchmark;
pub mod kv;
pub mod kv_sequence;
pub mod large_values;
pub mod linkbench;
pub mod model;
pub mod names;
pub mod oltp_range;
pub mod random;
pub mod retry;
pub mod settings;
pub mod tables;
pub mod trial;
pub mod undo;
pub mod units;
