//! alluvium: command-line tool for Alluvium databases.
//!
//! Reading order: [`command`] (commands and exit codes), [`database`] (opening a database, and
//! messages if that fails), [`text`] (conversion between bytes and text), [`output`] (one JSON
//! document, or text for people).
#![forbid(unsafe_code)]

mod command;
mod database;
mod output;
mod text;

fn main() -> std::process::ExitCode {
    command::main()
}
