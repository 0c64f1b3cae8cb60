//! Tests of the memtable through its public interface, against a model and with threads, and of
//! shared pointers.

mod epoch;
mod model;
mod shapes;
mod threads;
