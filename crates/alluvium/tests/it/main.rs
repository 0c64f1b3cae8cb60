//! Integration tests of the engine, a module for each subject.

mod backup;
mod bank;
mod checkpoint;
mod copies;
mod cursors;
mod damage;
mod deletes;
mod driver;
mod expiry;
mod failures;
mod faults;
mod fixture;
mod golden;
mod hooks;
mod keyspaces;
mod memory;
mod model;
mod ranges;
mod read_only;
mod recovery;
mod repair;
mod script;
mod transactions;
mod values;
mod verify;
