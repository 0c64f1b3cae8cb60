//! Reliability: short histories cut at every change, failed at every call, and their files damaged at every bit.
//!
//! Each test numbers its cases and tries a share that fits into a test run; `ALLUVIUM_ONE_IN=1` tries all, which
//! `make soak` does. Reading order: `history` and `player` (what happens, and what is promised), `judge` (what is left),
//! `trace` and `disk` (all that power loss can do to a trace of changes), `crash`, `failures`, `limits`, `flips`.

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
