//! Integration tests of the engine, a module for each subject.

mod bank;
mod cursors;
mod deletes;
mod driver;
mod failures;
mod fixture;
mod hooks;
mod keyspaces;
mod model;
mod transactions;
