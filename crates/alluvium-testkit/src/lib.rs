//! Test support for Alluvium.
