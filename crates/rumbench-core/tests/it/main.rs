//! Workloads against published numbers and golden files, and whole trials on in-memory engines.

mod custom;
mod custom_errors;
mod golden;
mod insert_benchmark;
mod kv_sequence;
mod large_values;
mod oltp_range;
mod requests;
mod stationary;
mod tables;
mod turns;
mod workload;
