//! Integration tests of the engine, a module for each subject.

mod background;
mod bank;
mod cursors;
mod damage;
mod deletes;
mod driver;
mod events;
mod expiry;
mod failures;
mod faults;
mod fixture;
mod golden;
mod hooks;
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
