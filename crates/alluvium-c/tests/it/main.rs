//! Tests of the C interface, run from C, and of its guarantees to C programs.

mod c_programs;
mod handles;
