//! Excerpt of a server's log for an error message: its last lines, then the last errors above them.
//!
//! A crashing server writes its reason far above the end of its log, followed by dozens of lines
//! for its developers. A server that refuses a statement logs the whole statement. The excerpt
//! therefore searches for errors and shortens long lines.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Number of lines from the end of the log in an excerpt.
const LAST_LINES: usize = 12;
/// Maximum number of error lines from above those.
const ERROR_LINES: usize = 3;
/// Characters kept of a line.
const LINE_CHARS: usize = 240;
/// Bytes read from the end of a log.
const BYTES: u64 = 1 << 20;

/// Returns the excerpt as one line for an error message. A log that cannot be read counts as empty.
pub(super) fn log_tail(log: &Path) -> String {
    told(&end_of(log, BYTES).unwrap_or_default())
}

/// Returns at most `bytes` bytes from the end of a file.
fn end_of(path: &Path, bytes: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut end = Vec::new();
    file.take(bytes).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

fn told(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(LAST_LINES));
    let errors: Vec<&str> = before
        .iter()
        .copied()
        .filter(|line| is_error(line))
        .collect();
    let errors = &errors[errors.len().saturating_sub(ERROR_LINES)..];
    let joined = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| shortened(line)).collect();
        lines.join(" | ")
    };
    match (errors, last) {
        (_, []) => "its log is empty".to_string(),
        ([], last) => format!("its log ends with: {}", joined(last)),
        // The errors come last because they matter most: a message that is too long is cut in the
        // middle.
        (errors, last) => format!(
            "its log ends with: {}; the last errors before that: {}",
            joined(last),
            joined(errors)
        ),
    }
}

/// Returns true for a line in which MariaDB or PostgreSQL reports a failure.
fn is_error(line: &str) -> bool {
    ["[ERROR]", " ERROR: ", " FATAL: ", " PANIC: "]
        .iter()
        .any(|sign| line.contains(sign))
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_log_is_told_whole() {
        assert_eq!(told("one\n\n two\n"), "its log ends with: one |  two");
        assert_eq!(told("\n"), "its log is empty");
        assert_eq!(log_tail(Path::new("/no/such/log")), "its log is empty");
    }

    #[test]
    fn errors_before_a_crash_report_come_after_it() {
        let mut text = (1..6)
            .map(|n| format!("12:00 0 [ERROR] number {n}\n"))
            .collect::<String>();
        let ends_so = format!("{text}{}", "12:00 0 [Note] x\n".repeat(LAST_LINES - 1));
        let begin = "its log ends with: 12:00 0 [ERROR] number 5 | 12";
        assert!(told(&ends_so).starts_with(begin));
        text.push_str("12:00 0 [Note] nothing\n");
        text.push_str(&"a line of a crash report\n".repeat(50));
        let told = told(&text);
        let end = "; the last errors before that: 12:00 0 [ERROR] number 3 | \
                   12:00 0 [ERROR] number 4 | 12:00 0 [ERROR] number 5";
        assert!(told.ends_with(end), "{told}");
        assert_eq!(told.matches("crash report").count(), LAST_LINES);
    }

    #[test]
    fn long_lines_are_cut() {
        let told = told(&format!("STATEMENT: {}\n", "\u{e9}".repeat(10_000)));
        assert!(told.chars().count() < LINE_CHARS + 40, "{told}");
        assert!(told.ends_with(" ..."));
    }

    #[test]
    fn only_the_end_of_a_large_log_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "0123456789").unwrap();
        assert_eq!(end_of(&path, 4).unwrap(), "6789");
        assert_eq!(end_of(&path, 40).unwrap(), "0123456789");
    }
}
