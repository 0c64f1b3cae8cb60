//! Tests as text: commands, their input and the expected output, in a file that `UPDATE=1`
//! rewrites.
//!
//! ```text
//! # A comment, kept when the file is rewritten.
//! merge limit=2 reverse
//! a 1
//! b 2
//! ----
//! b 2
//! a 1
//!
//! ```
//!
//! A case is a command line, input lines up to `----`, and output lines up to an empty line. Output
//! with empty lines begins after two lines `----`, and ends with two. Arguments are words: `name`
//! or `name=value`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const SEPARATOR: &str = "----";

/// One command of a test file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// First word of the command line.
    pub name: String,
    /// Other words of the command line.
    pub arguments: Vec<String>,
    /// Lines between the command and `----`, each with its line end.
    pub input: String,
    /// Line number of the command in its file, starting at 1.
    pub line: usize,
}

impl Command {
    /// Returns whether the word `name` is among the arguments.
    pub fn has(&self, name: &str) -> bool {
        self.arguments.iter().any(|argument| argument == name)
    }

    /// Returns the value of the argument `name=value`, if present.
    ///
    /// # Panics
    /// If the value cannot be parsed as a `T`.
    pub fn value<T: FromStr>(&self, name: &str) -> Option<T> {
        let mut pairs = self.arguments.iter().filter_map(|a| a.split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        let parsed = value.parse().ok();
        assert!(
            parsed.is_some(),
            "line {}: cannot read {name}={value}",
            self.line
        );
        parsed
    }

    /// Returns the value like [`Command::value`], for a required argument.
    ///
    /// # Panics
    /// If it is missing or cannot be parsed.
    pub fn require<T: FromStr>(&self, name: &str) -> T {
        let value = self.value(name);
        value.unwrap_or_else(|| panic!("line {}: {} needs {name}=", self.line, self.name))
    }
}

/// Runs all cases of one file: `answer` gets each command in order and returns its output.
///
/// With `UPDATE=1` in the environment, the file is rewritten with the outputs instead.
///
/// # Panics
/// If the file cannot be read or parsed, or if an output differs; all differences are shown.
pub fn run(path: impl AsRef<Path>, answer: impl FnMut(&Command) -> String) {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path);
    let text = text.unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let script = parse(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
    let outcome = evaluate(&script, answer);
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        if outcome.rewritten != text {
            let written = std::fs::write(path, outcome.rewritten);
            written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        }
        return;
    }
    assert!(
        outcome.differences.is_empty(),
        "{}\n{}\nUPDATE=1 accepts the new output",
        path.display(),
        outcome.differences
    );
}

/// Calls `each` with every `.test` file under `folder`, in order of their names.
///
/// # Panics
/// If the folder cannot be read or has no such file.
pub fn walk(folder: impl AsRef<Path>, mut each: impl FnMut(&Path)) {
    let folder = folder.as_ref();
    let mut files = Vec::new();
    collect(folder, &mut files);
    files.sort();
    assert!(!files.is_empty(), "no .test file in {}", folder.display());
    for file in files {
        each(&file);
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder);
    let entries =
        entries.unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "test")
        {
            files.push(path);
        }
    }
}

/// Command with the text around it.
struct Case {
    /// Comments and empty lines before the command.
    before: String,
    /// The command line as written.
    command_line: String,
    command: Command,
    expected: String,
}

/// Parsed file.
struct Script {
    cases: Vec<Case>,
    /// Comments and empty lines after the last case.
    after: String,
}

/// Lines with their numbers, starting at 1.
type Lines<'a> =
    std::iter::Peekable<std::iter::Zip<std::ops::RangeFrom<usize>, std::str::Split<'a, char>>>;

/// Splits a file into its cases. The error is `line: message`.
fn parse(text: &str) -> Result<Script, String> {
    let mut lines: Lines = (1..)
        .zip(text.strip_suffix('\n').unwrap_or(text).split('\n'))
        .peekable();
    let mut cases = Vec::new();
    let mut before = String::new();
    while let Some((line, command_line)) = lines.next() {
        if command_line.trim().is_empty() || command_line.starts_with('#') {
            push_line(&mut before, command_line);
            continue;
        }
        let mut words = command_line.split_whitespace().map(str::to_string);
        let name = words.next().unwrap_or_default();
        let input = read_input(&mut lines);
        let input =
            input.ok_or_else(|| format!("{line}: {name} has no {SEPARATOR} after its input"))?;
        let expected = read_output(&mut lines);
        let expected =
            expected.ok_or_else(|| format!("{line}: the output of {name} does not end"))?;
        let arguments = words.collect();
        cases.push(Case {
            before: std::mem::take(&mut before),
            command_line: command_line.to_string(),
            command: Command {
                name,
                arguments,
                input,
                line,
            },
            expected,
        });
    }
    if cases.is_empty() {
        return Err("1: no command".to_string());
    }
    Ok(Script {
        cases,
        after: before,
    })
}

/// Returns the lines up to the separator; `None` if the file ends first.
fn read_input(lines: &mut Lines) -> Option<String> {
    let mut input = String::new();
    for (_, line) in lines {
        if line == SEPARATOR {
            return Some(input);
        }
        push_line(&mut input, line);
    }
    None
}

/// Returns the output after the separator; `None` if it is fenced and the fence does not close.
fn read_output(lines: &mut Lines) -> Option<String> {
    let fenced = lines.next_if(|(_, line)| *line == SEPARATOR).is_some();
    let mut output = String::new();
    while let Some((_, line)) = lines.next() {
        if fenced && line == SEPARATOR && lines.next_if(|(_, line)| *line == SEPARATOR).is_some() {
            // The empty line that ends every case.
            lines.next_if(|(_, line)| line.is_empty());
            return Some(output);
        }
        if !fenced && line.is_empty() {
            return Some(output);
        }
        push_line(&mut output, line);
    }
    (!fenced).then_some(output)
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Result of running all cases.
struct Outcome {
    /// Whole file with the present outputs.
    rewritten: String,
    /// Description of every case with a different output; empty if there is none.
    differences: String,
}

fn evaluate(script: &Script, mut answer: impl FnMut(&Command) -> String) -> Outcome {
    let (mut rewritten, mut differences) = (String::new(), String::new());
    for case in &script.cases {
        let mut actual = answer(&case.command);
        if !actual.is_empty() && !actual.ends_with('\n') {
            actual.push('\n');
        }
        // Such a line would end the output when it is read again.
        let separator = actual.split('\n').any(|line| line == SEPARATOR);
        assert!(
            !separator,
            "line {}: {SEPARATOR} in the output",
            case.command.line
        );
        if actual != case.expected {
            let shown = difference(&case.expected, &actual);
            let (line, command) = (case.command.line, &case.command_line);
            let _ = write!(differences, "line {line}: {command}\n{shown}");
        }
        rewritten.push_str(&case.before);
        push_line(&mut rewritten, &case.command_line);
        rewritten.push_str(&case.command.input);
        push_line(&mut rewritten, SEPARATOR);
        // Without the fence, an empty line would end the output when it is read again.
        let lines = actual.strip_suffix('\n').into_iter();
        let fence = lines.flat_map(|lines| lines.split('\n')).any(str::is_empty);
        if fence {
            push_line(&mut rewritten, SEPARATOR);
        }
        rewritten.push_str(&actual);
        if fence {
            push_line(&mut rewritten, SEPARATOR);
            push_line(&mut rewritten, SEPARATOR);
        }
        rewritten.push('\n');
    }
    rewritten.push_str(&script.after);
    Outcome {
        rewritten,
        differences,
    }
}

/// Formats the lines of both texts: `-` expected, `+` found, with the common beginning and end
/// unmarked.
fn difference(expected: &str, actual: &str) -> String {
    let (expected, actual): (Vec<&str>, Vec<&str>) =
        (expected.lines().collect(), actual.lines().collect());
    let shorter = expected.len().min(actual.len());
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = expected.iter().zip(&actual).take_while(same).count();
    let tails = expected.iter().rev().zip(actual.iter().rev());
    let tail = tails.take(shorter - head).take_while(same).count();
    let mut shown = String::new();
    let mut show = |mark: &str, lines: &[&str]| {
        for line in lines {
            let _ = writeln!(shown, "{mark} {line}");
        }
    };
    show(" ", &expected[..head]);
    show("-", &expected[head..expected.len() - tail]);
    show("+", &actual[head..actual.len() - tail]);
    show(" ", &expected[expected.len() - tail..]);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seeded;

    /// Answers test commands: `echo` repeats its input, `args` shows its arguments, `empty` returns
    /// nothing.
    fn answer(command: &Command) -> String {
        match command.name.as_str() {
            "echo" => command.input.clone(),
            "args" => command.arguments.join("|").replace('-', "."),
            "gap" => "one\n\ntwo\n".to_string(),
            "empty" => String::new(),
            _ => "unknown".to_string(),
        }
    }

    fn outcome(text: &str) -> Outcome {
        evaluate(&parse(text).expect("a good script"), answer)
    }

    const GOOD: &str = "# first\n\necho\na\nb\n----\na\nb\n\n# second\nargs x y=2\n----\nx|y=2\n\nempty\n----\n\ngap\n----\n----\none\n\ntwo\n----\n----\n\n# end\n";

    #[test]
    fn right_outputs_pass_and_rewriting_keeps_every_byte() {
        let outcome = outcome(GOOD);
        assert_eq!(outcome.differences, "");
        assert_eq!(outcome.rewritten, GOOD);
    }

    #[test]
    fn wrong_outputs_are_shown_as_a_difference_and_corrected_by_rewriting() {
        let wrong = GOOD.replace("----\na\nb\n", "----\na\nc\n");
        let outcome = outcome(&wrong);
        assert_eq!(outcome.differences, "line 3: echo\n  a\n- c\n+ b\n");
        assert_eq!(outcome.rewritten, GOOD);
    }

    #[test]
    fn output_with_empty_lines_is_fenced() {
        let outcome = outcome("gap\n----\n");
        assert_eq!(
            outcome.rewritten,
            "gap\n----\n----\none\n\ntwo\n----\n----\n\n"
        );
    }

    #[test]
    fn arguments_are_words_and_values() {
        let script = parse("scan limit=3 reverse\n----\n").expect("a good script");
        let command = &script.cases[0].command;
        assert_eq!(command.value::<usize>("limit"), Some(3));
        assert_eq!(command.value::<usize>("skip"), None);
        assert!(command.has("reverse") && !command.has("limit"));
    }

    #[test]
    fn files_without_separator_or_command_are_refused() {
        let error = |text: &str| parse(text).err().unwrap_or_default();
        assert_eq!(error("echo\na\n"), "1: echo has no ---- after its input");
        assert_eq!(
            error("gap\n----\n----\none\n"),
            "1: the output of gap does not end"
        );
        assert_eq!(error("# nothing\n"), "1: no command");
    }

    #[test]
    fn only_test_files_are_walked_in_order() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("b")).expect("a folder");
        for name in ["c.test", "a.test", "b/d.test", "readme.md"] {
            std::fs::write(folder.path().join(name), GOOD).expect("a file");
        }
        let mut seen = Vec::new();
        walk(folder.path(), |path| {
            run(path, answer);
            seen.extend(path.strip_prefix(folder.path()).map(Path::to_path_buf));
        });
        assert_eq!(seen, ["a.test", "b/d.test", "c.test"].map(PathBuf::from));
    }

    #[test]
    fn fuzz_rewriting_twice_changes_nothing() {
        Seeded::fuzz("fuzz_rewriting_twice_changes_nothing", |rng| {
            let mutant = crate::mutate(GOOD.as_bytes(), rng);
            let text = String::from_utf8_lossy(&mutant);
            if let Ok(script) = parse(&text) {
                let once = evaluate(&script, answer).rewritten;
                let twice = outcome(&once);
                assert_eq!(twice.differences, "");
                assert_eq!(twice.rewritten, once);
            }
        });
    }
}
