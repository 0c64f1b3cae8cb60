//! Answers as text: `tests/it/*.test` hold commands and their output; `UPDATE=1` rewrites them.
//!
//! The first word of a case is `run`; the input is the command line, with DIR for the sample
//! database and NEW for paths next to it. Parts that differ from run to run are masked.

use alluvium_testkit::script;

use crate::fixture::{Sample, alluvium, contents, text};

/// Returns the answer with exit code and advice, with the parts masked that differ between runs.
fn answer(sample: &Sample, command: &str) -> String {
    let beside = sample.beside("");
    let words: Vec<String> = command
        .split_whitespace()
        .map(|word| word.replace("DIR", sample.path()).replace("NEW/", &beside))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = alluvium(&words);
    let mut out = masked(sample, &text(&output.stdout));
    for line in text(&output.stderr).lines() {
        out.push_str(&format!("! {}\n", masked(sample, line)));
    }
    match output.status.code() {
        Some(0) => {}
        code => out.push_str(&format!("exit code {}\n", code.unwrap_or(-1))),
    }
    out
}

/// Masks paths, uids, times, and sizes, since a new version of a format may change sizes.
fn masked(sample: &Sample, text: &str) -> String {
    let text = text.replace(sample.path(), "DIR");
    let text = text.replace(&sample.beside(""), "NEW/");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut out = String::new();
    let mut before = "";
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (word, behind) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
        let (gap, next) = behind.split_at(behind.find(is_word).unwrap_or(behind.len()));
        out.push_str(mask(before, word, next));
        out.push_str(gap);
        before = word;
        rest = next;
    }
    out
}

/// Returns the mask of a word in its context, or the word itself.
fn mask<'a>(before: &str, word: &'a str, next: &str) -> &'a str {
    const UNITS: [&str; 3] = ["B", "KiB", "MiB"];
    let numeric = |word: &str| {
        let digits = word.chars().all(|c| c.is_ascii_digit() || c == '.');
        digits && word.starts_with(|c: char| c.is_ascii_digit())
    };
    let follows = next.split(|c: char| !c.is_ascii_alphabetic()).next();
    let is_size = follows.is_some_and(|unit| UNITS.contains(&unit));
    let counted = before.contains("bytes") && before != "value_separation_bytes";
    let named = counted || ["offset", "at"].contains(&before);
    match () {
        () if numeric(before) && UNITS.contains(&word) => "B",
        () if numeric(word) && (is_size || named) => "SIZE",
        () if numeric(word) && before == "created" => "TIME",
        () if numeric(word) && word.contains('.') => "RATIO",
        () if word.len() >= 16 && word.chars().all(|c| c.is_ascii_hexdigit()) => "UID",
        () => word,
    }
}

fn run_script(name: &str, writes: bool) {
    let path = std::path::Path::new("tests/it").join(name);
    let sample = Sample::new();
    let before = contents(&sample.dir);
    script::run(&path, |command| answer(&sample, command.input.trim()));
    if !writes {
        assert!(before == contents(&sample.dir), "looking has written");
    }
}

#[test]
fn read_only_commands_print_their_answers_and_write_nothing() {
    run_script("look.test", false);
}

#[test]
fn what_changes_says_what_it_has_done() {
    run_script("change.test", true);
}
