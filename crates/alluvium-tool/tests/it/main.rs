//! Runs the built binary on databases made by the library. Checks answers as text and exit codes,
//! and that commands that only read write nothing.

mod fixture;
mod golden;
mod script;
mod usage;
