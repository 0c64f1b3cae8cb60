//! Integration tests of the engine, a module for each subject.

mod bank;
mod driver;
mod fixture;
mod model;
mod transactions;
