//! The rumbench laboratory.

fn main() {}
