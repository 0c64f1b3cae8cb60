//! alluvium: the command line for people who have an Alluvium database in front of them.
//!
//! Reading order: [`command`] (what can be asked, and the exit codes), [`database`] (opening one, and what to say where
//! that fails), [`text`] (bytes as text and back), [`output`] (one JSON document, or text for people).
#![forbid(unsafe_code)]

mod command;
mod database;
mod output;
mod text;

fn main() -> std::process::ExitCode {
    command::main()
}
