//! Plain technical English in comments: counts of words that make a sentence hard to read, over all
//! Rust files, with limits that only fall.
//!
//! The counts are a smoke alarm, not a judge: a page of comments may keep them all and be
//! unreadable. `CONTRIBUTING.md` says how to write. Whoever lowers a count lowers its limit in the
//! same commit; raising one needs a decision record.

use crate::files::TextFile;
use crate::finding::Finding;
use crate::source::Source;

/// Words that are counted together, and the most of them in a million words of comments.
struct Limit {
    words: &'static [&'static str],
    per_million: usize,
}

const LIMITS: [Limit; 5] = [
    Limit {
        words: &["what"],
        per_million: 2_000,
    },
    Limit {
        words: &["who", "whoever", "whom", "whose"],
        per_million: 200,
    },
    Limit {
        words: &["nobody", "somebody"],
        per_million: 100,
    },
    Limit {
        words: &["behind"],
        per_million: 300,
    },
    Limit {
        words: &["beside"],
        per_million: 100,
    },
];

/// Columns of a line of comments, as of code.
const COLUMNS_MAX: usize = 100;

/// Openings of doc comments that name neither a thing nor an action.
const OPENINGS: [&str; 5] = ["What", "Who", "Where", "How", "Whether"];

/// Comments of one file.
struct Comments<'a> {
    file: &'a TextFile,
    words: Vec<String>,
}

impl Comments<'_> {
    fn count(&self, words: &[&str]) -> usize {
        let counted = self.words.iter();
        counted
            .filter(|word| words.contains(&word.as_str()))
            .count()
    }
}

/// Checks the counts of all files together, and the lines of each.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    let comments: Vec<Comments<'_>> = rust
        .map(|file| Comments {
            file,
            words: words(&Source::new(&file.text).comments()),
        })
        .collect();
    let mut found = Vec::new();
    for of in &comments {
        found.extend(check_lines(of.file));
    }
    let total: usize = comments.iter().map(|of| of.words.len()).sum();
    for limit in &LIMITS {
        found.extend(check_limit(limit, &comments, total));
    }
    found
}

/// Words in lower case; an apostrophe ends one.
fn words(comments: &str) -> Vec<String> {
    let words = comments.split(|c: char| !c.is_ascii_alphabetic());
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect()
}

/// Names the file that has most of the words, where all files together have too many.
fn check_limit(limit: &Limit, comments: &[Comments<'_>], total: usize) -> Option<Finding> {
    let count: usize = comments.iter().map(|of| of.count(limit.words)).sum();
    let most = total * limit.per_million / 1_000_000;
    if count <= most {
        return None;
    }
    let worst = comments.iter().max_by_key(|of| of.count(limit.words))?;
    let (words, own) = (limit.words.join(", "), worst.count(limit.words));
    let message =
        format!("comments have \"{words}\" {count} times, {most} at most; {own} are here");
    Some(Finding::error(&worst.file.path, 1, message))
}

/// Lines of comments that are too long, and doc comments with a vague opening.
fn check_lines(file: &TextFile) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut before = "";
    for (number, line) in (1..).zip(file.text.lines()) {
        let trimmed = line.trim_start();
        if trimmed.starts_with("//") && line.chars().count() > COLUMNS_MAX {
            let message = format!("a comment is wider than {COLUMNS_MAX} columns");
            found.push(Finding::error(&file.path, number, message));
        }
        let begins = |line: &str| line.starts_with("///") || line.starts_with("//!");
        let opening = trimmed.get(4..).unwrap_or_default().split(' ').next();
        if begins(trimmed)
            && !begins(before)
            && opening.is_some_and(|word| OPENINGS.contains(&word))
        {
            let message = "a doc comment opens with a noun or a verb";
            found.push(Finding::error(&file.path, number, message));
        }
        before = trimmed;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, shown};
    use super::*;

    #[test]
    fn words_above_their_limit_are_told_with_the_worst_file() {
        let plain = format!("//! {}\n", "Word ".repeat(1_000));
        let files = [
            file("a.rs", &plain.replace(' ', "\n//! ")),
            file("b.rs", "//! A\n// what\n"),
            file("c.rs", "//! A\n// what what who's\nlet what = \"what\";\n"),
        ];
        let counted = "comments have \"what\" 3 times, 2 at most; 2 are here";
        let who = "comments have \"who, whoever, whom, whose\" 1 times, 0 at most; 1 are here";
        let found = check(&files);
        assert_eq!(
            shown(&found),
            [format!("1: {counted}"), format!("1: {who}")]
        );
        assert!(found.iter().all(|finding| finding.path == "c.rs"));
    }

    #[test]
    fn long_comments_and_vague_openings_are_found() {
        let long = format!("// {}\n", "x".repeat(98));
        let text = format!("//! A file.\n{long}let x = \"{}\";\n", "y".repeat(120));
        let found = check(&[file("a.rs", &text)]);
        assert_eq!(shown(&found), ["2: a comment is wider than 100 columns"]);
        let text = "//! A file.\n\n/// Whether it is.\n/// What is not the first line is not looked at.\nfn f() {}\n";
        let found = check_lines(&file("a.rs", text));
        assert_eq!(
            shown(&found),
            ["3: a doc comment opens with a noun or a verb"]
        );
    }
}
