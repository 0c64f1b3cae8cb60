//! Integration tests of the engine, a module for each subject.

mod bank;
mod bulk_load;
mod cursors;
mod damage;
mod deletes;
mod driver;
mod estimates;
mod expiry;
mod failures;
mod faults;
mod fixture;
mod golden;
mod hooks;
mod ingest;
mod isolation;
mod keyspaces;
mod memory;
mod model;
mod ranges;
mod recovery;
mod script;
mod serializable;
mod transactions;
mod two_phase;
mod two_phase_crash;
mod values;
