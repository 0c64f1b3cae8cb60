//! `mariadb-check`: random tests of Alluvium as a storage engine of MariaDB.
//!
//! Reading order: [`client`] (a connection), [`server`] (the private server of a run),
//! [`statements`] (the same statements on InnoDB and Alluvium), [`clients`] (concurrent
//! transactions), [`kills`] (a server that is killed again and again). Run it in the root of the
//! repository after `make mariadb`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks")]

mod client;
mod clients;
mod kills;
mod report;
mod server;
mod statements;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use report::Exit;

const AFTER_HELP: &str = "\
Each run prints its seed. Run it in the root of the repository after `make mariadb`.

Exit codes:
  0 no difference    1 a difference, or something was tested too little    2 wrong usage
  3 the run was not possible";

#[derive(Parser)]
#[command(
    name = "mariadb-check",
    version,
    about = "Tests Alluvium as a storage engine of MariaDB with random input.",
    color = clap::ColorChoice::Never,
    after_help = AFTER_HELP,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run random statements on InnoDB and on Alluvium, and compare all answers
    Statements(statements::StatementsArgs),
    /// Run random transactions of several clients, and look for anomalies in their history
    Clients(clients::ClientsArgs),
    /// Kill the server under writers again and again, and compare tables and binary log
    Kills(kills::KillsArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Statements(args) => statements::run(&args),
        Command::Clients(args) => clients::run(&args),
        Command::Kills(args) => kills::run(&args),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("mariadb-check: {error:#}");
            Exit::Failed.into()
        }
    }
}
