//! Test support for Alluvium. It works on plain data and does not depend on the engine, which
//! dev-depends on it.
//!
//! Reading order: [`script`] (tests as text files), [`random`] (seeds that are reported and can be
//! set), [`budget`] (duration of a fuzz test), [`fuzz`] (odd bytes), [`sample`] (a share of very
//! many cases), [`model`] (required content of a database, also after a crash), [`op`] (random
//! operations on a database), [`anomalies`] (anomalies of concurrent transactions), [`fork`] (child
//! processes of a test), [`process`] (memory of this process).
//!
//! Environment: `UPDATE=1` rewrites the expected output of text-driven tests, `ALLUVIUM_SEED=N`
//! repeats one random case, `ALLUVIUM_FUZZ_SECONDS=N` sets the duration of each fuzz test,
//! `ALLUVIUM_ONE_IN=N` sets the share of very many cases that is tried.
#![deny(unsafe_code)]

pub mod anomalies;
pub mod budget;
pub mod fork;
pub mod fuzz;
pub mod model;
pub mod op;
pub mod process;
pub mod random;
pub mod sample;
pub mod script;

pub use budget::fuzz_budget;
pub use fuzz::{mutate, odd_input};
pub use model::{Commit, Direction, Mismatch, Model, State, Write};
pub use op::{Generator, KeyShape, Move, Op, Weights};
pub use random::{Rng, Seeded};
pub use sample::Sample;
