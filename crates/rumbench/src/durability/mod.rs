//! Kill tests: a child process writes, reports every acknowledged commit, and is killed; what it left is checked.
//!
//! Each client owns its links, and what it writes is a pure function of (seed, client, sequence number) ([`script`]). So the state of
//! a client's links after any number of its commits is known without recording it, and a reopened database is right exactly when every
//! client's links are in the state after some number of commits, not below what was acknowledged and at most one
//! above it ([`judge`]). The child runs the load ([`child`]), the parent kills it, or its server, and judges ([`parent`]), and
//! cuts the power if asked ([`power`]).

pub mod child;
pub mod judge;
pub mod parent;
pub mod power;
pub mod result;
pub mod script;
