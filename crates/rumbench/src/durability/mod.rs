//! Kill tests: a child process writes, reports every acknowledged commit, and is killed; the parent
//! checks the remaining data.
//!
//! Each client owns its links, and its writes are a pure function of (seed, client, sequence
//! number) ([`script`]). So the state of a client's links after any number of its commits is known
//! without recording it. A reopened database is correct if every client's links are in the state
//! after some number of commits: at least the acknowledged number, and at most one more
//! ([`judge`]). The child runs the load ([`child`]). The parent kills it or its server and judges
//! ([`parent`]), and simulates a power loss if requested ([`power`]).

pub mod child;
pub mod judge;
pub mod parent;
pub mod power;
pub mod result;
pub mod script;
