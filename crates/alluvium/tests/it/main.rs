//! Integration tests of the engine, a module for each subject.

mod bank;
mod cursors;
mod deletes;
mod driver;
mod faults;
mod fixture;
mod keyspaces;
mod model;
mod script;
mod transactions;
