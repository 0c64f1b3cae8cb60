//! rumbench: a benchmark laboratory for databases of small data.
//!
//! Reading order: [`command`] (what can be asked), [`run`] (how a suite is run), [`durability`] (kill tests), [`import`] (results of other programs), [`measure`] (what is
//! measured and how), [`profile`] (on which functions CPU time goes), [`store`] (results on disk), [`report`] (tables), [`catalog`] (engines and workloads by name).
#![forbid(unsafe_code)]

mod catalog;
mod command;
mod durability;
mod import;
mod measure;
mod profile;
mod report;
mod run;
mod store;

fn main() -> std::process::ExitCode {
    command::main()
}
