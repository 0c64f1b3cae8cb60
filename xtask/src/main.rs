//! Chores of the workspace without a ready-made tool: `cargo xtask tidy | formats | header |
//! licenses | claims | ledger | history | rocksdb | wiredtiger`.
//!
//! Each check reads text only and prints its findings as `path:line: message`. The exit code is 0
//! without errors, 1 after an error or a failure, 2 for wrong usage.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "findings are this program's result")]
#![expect(clippy::print_stderr, reason = "errors and usage go to stderr")]

mod cached;
mod claims;
mod files;
mod finding;
mod formats;
mod header;
mod history;
mod ledger;
mod licenses;
mod measured;
mod rocksdb;
mod source;
mod tidy;
mod wiredtiger;

use std::process::ExitCode;

use finding::Finding;

const USAGE: &str = "\
usage: cargo xtask tidy              style rules that text can show
       cargo xtask formats           on-disk formats and their pages change together
       cargo xtask formats --update  write the present hashes into the pages
       cargo xtask header            write alluvium.h, the header of the C interface
       cargo xtask header --check    alluvium.h is what `cargo xtask header` writes
       cargo xtask licenses          licenses of all dependencies
       cargo xtask claims --check    every figure in README's results has a command
       cargo xtask claims --binary RUMBENCH --out DIR [--relative]
                                     measure these figures again and compare
       cargo xtask ledger            write the page of the published claims
       cargo xtask ledger --check    the page is what `cargo xtask ledger` writes
       cargo xtask ledger --binary RUMBENCH --out DIR --part NAME
                                     try a part of the claims again at a reduced scale
       cargo xtask history COMMIT..  measure the engine of these commits, see docs/results/history.md
       cargo xtask history           write that page from the measurements that are there
       cargo xtask history --check   the page is what `cargo xtask history` writes
       cargo xtask rocksdb           build RocksDB's library once, and print what to `eval` to link it
       cargo xtask wiredtiger        the same for WiredTiger";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["tidy"] => tidy::check(&files::root()),
        ["formats"] => formats::check(&files::root()),
        ["formats", "--update"] => formats::update(&files::root()),
        ["header"] => header::update(&files::root()),
        ["header", "--check"] => header::check(&files::root()),
        ["licenses"] => licenses::check(&files::root()),
        ["claims", "--check"] => claims::covered(&files::root()),
        ["claims", ref rest @ ..] if !rest.is_empty() => {
            let given = claims::arguments(rest);
            given.and_then(|(binary, out, compared)| {
                claims::verify(&files::root(), &binary, &out, compared)
            })
        }
        ["ledger"] => ledger::update(&files::root()),
        ["ledger", "--check"] => ledger::check(&files::root()),
        ["ledger", ref rest @ ..] => {
            let given = ledger::arguments(rest);
            given.and_then(|(binary, out, part)| {
                ledger::try_again(&files::root(), &binary, &out, &part)
            })
        }
        ["history"] => history::update(&files::root()),
        ["history", "--check"] => history::check(&files::root()),
        ["history", ref commits @ ..] => history::measure(&files::root(), commits),
        ["rocksdb"] => rocksdb::ensure_built(&files::root()).map(printed),
        ["wiredtiger"] => wiredtiger::ensure_built(&files::root()).map(printed),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(findings) => report(&findings),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints lines for a shell to evaluate, and returns no findings.
fn printed(lines: String) -> Vec<Finding> {
    print!("{lines}");
    Vec::new()
}

/// Prints the findings; fails if one of them is not just a warning.
fn report(findings: &[Finding]) -> ExitCode {
    for finding in findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| !finding.warning).count();
    if errors == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("{errors} to fix");
    ExitCode::FAILURE
}
