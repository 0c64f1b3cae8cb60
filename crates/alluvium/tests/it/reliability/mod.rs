//! Reliability: short histories cut at every change, failed at every call, and their files damaged
//! at every bit.
//!
//! Each test numbers its cases and tries a share that fits into a test run. `ALLUVIUM_ONE_IN=1`
//! tries all, as `make soak` does. Reading order: `history` and `player` (the calls and the
//! promises), `judge` (the state found), `trace` and `disk` (all results of a power loss during a
//! trace of changes), `crash`, `failures`, `limits`, `flips`.

mod crash;
mod damaged;
mod disk;
mod failures;
mod figures;
mod flips;
mod history;
mod judge;
mod limits;
mod player;
mod trace;
