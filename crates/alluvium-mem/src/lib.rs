//! The in-memory structures of Alluvium that need unsafe code.
