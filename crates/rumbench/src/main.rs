//! rumbench: a benchmark laboratory for databases of small data.
//!
//! Reading order: [`command`] (subcommands), [`run`] (execution of suites), [`durability`] (kill
//! tests), [`failover`] (loss of a primary), [`import`] (results of other programs), [`measure`]
//! (metrics and their measurement), [`profile`] (CPU time by function), [`store`] (results on
//! disk), [`report`] (tables), [`catalog`] (engines and workloads by name), [`text`] (numbers and
//! lists as text).
#![forbid(unsafe_code)]

mod catalog;
mod command;
mod durability;
mod failover;
mod import;
mod measure;
mod profile;
mod report;
mod run;
mod store;
mod text;

fn main() -> std::process::ExitCode {
    command::main()
}
