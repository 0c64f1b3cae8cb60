//! Isolation levels judged by the histories that clients leave: see `alluvium_testkit::anomalies`.
//!
//! `interleavings` runs small transactions in every order of their steps, so what it shows does not hang on luck: each
//! level lets exactly the anomalies happen that it may, and the weaker ones do happen. `threads` runs random ones in real
//! threads beside flushes and merges. `load` is what each of these does, and `client` does the steps and notes what came of them:
//! the tests of `alluvium-sim` have both too.

mod client;
mod interleavings;
mod load;
mod threads;
