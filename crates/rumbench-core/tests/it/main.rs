//! The workload against published numbers, and against engines in memory.

mod golden;
mod requests;
mod stationary;
mod workload;
