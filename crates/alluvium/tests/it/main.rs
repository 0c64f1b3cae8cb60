//! Integration tests of the engine, a module for each subject.

mod driver;
mod model;
