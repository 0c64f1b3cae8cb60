//! Tests of the C interface from C, and of what it promises to C.

mod c_programs;
mod handles;
