//! Runs the built binary on databases that the library makes: answers as text, exit codes, and that looking writes nothing.

mod fixture;
mod golden;
mod script;
mod usage;
