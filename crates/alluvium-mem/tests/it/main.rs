//! Tests of the memtable through its public interface, against a model and with threads.

mod model;
mod shapes;
mod threads;
