//! Tests of the C interface: C programs that call it, and the handles that threads may share.

mod c_programs;
mod handles;
