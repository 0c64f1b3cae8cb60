//! Isolation levels judged by the histories that clients record: see `alluvium_testkit::anomalies`.
//!
//! `interleavings` runs small transactions in every order of their steps, so its result does not
//! depend on chance: each level allows exactly its own anomalies, and the weaker levels do show
//! them. `threads` runs random transactions in real threads, concurrently with flushes and
//! compactions. `load` is the workload of each thread; `client` runs the steps and records their
//! results. The tests of `alluvium-sim` use both too.

mod client;
mod interleavings;
mod load;
mod threads;
