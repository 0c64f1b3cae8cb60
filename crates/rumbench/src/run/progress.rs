//! Progress on stderr: several lines that are redrawn on a terminal, one line a minute elsewhere.
//! No colors.
//!
//! [`super::status`] produces the text; this module draws and removes it. A terminal that is too
//! small or cannot move its cursor (`TERM=dumb`) gets a single line.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::status::SuiteStatus;

/// Minimum rows and columns for more than one line.
const LEAST: (usize, usize) = (10, 40);

/// Prints a warning or remark for the user to stderr.
pub fn say(text: &str) {
    // A closed stderr must not end a measurement.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Kind of stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// A file or pipe.
    Plain,
    /// A terminal.
    Terminal {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
}

/// Detects the kind of stderr on each call, because windows change their size.
fn output() -> Output {
    if !std::io::stderr().is_terminal() {
        return Output::Plain;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    match size.filter(|size| size.ws_row > 0 && size.ws_col > 0) {
        Some(size) => Output::Terminal {
            rows: if dumb { 1 } else { size.ws_row.into() },
            columns: size.ws_col.into(),
        },
        None => Output::Terminal {
            rows: 1,
            columns: 80,
        },
    }
}

/// Draws the status of a suite.
pub struct Progress {
    drawing: Drawing,
    cpus: usize,
    last: Instant,
    started: Instant,
    finished_trials: u32,
}

impl Progress {
    /// Returns a progress display that has drawn nothing yet.
    pub fn new() -> Progress {
        Progress {
            drawing: Drawing::default(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            last: Instant::now(),
            started: Instant::now(),
            finished_trials: 0,
        }
    }

    /// Shows the status if its interval has passed.
    pub fn show(&mut self, status: &SuiteStatus) {
        let output = output();
        let every = match output {
            Output::Plain => Duration::from_secs(60),
            Output::Terminal { .. } => Duration::from_millis(500),
        };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        let trial_seconds = (self.finished_trials > 0)
            .then(|| self.started.elapsed().as_secs_f64() / f64::from(self.finished_trials));
        match output {
            Output::Plain => say(&status.line(trial_seconds)),
            Output::Terminal { rows, columns } => {
                let lines = if rows < LEAST.0 || columns < LEAST.1 {
                    let line = status.line(trial_seconds);
                    vec![line.chars().take(columns.saturating_sub(1)).collect()]
                } else {
                    status.lines(trial_seconds, self.cpus, columns)
                };
                put(&self.drawing.draw(&lines));
            }
        }
    }

    /// Counts a trial that ended and removes its lines.
    pub fn trial_finished(&mut self) {
        self.finished_trials += 1;
        self.clear();
    }

    /// Removes the lines from a terminal, so that other text can follow.
    pub fn clear(&mut self) {
        put(&self.drawing.clear());
    }
}

fn put(text: &str) {
    if !text.is_empty() {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush());
    }
}

/// Lines at the bottom of a terminal.
#[derive(Debug, Default)]
struct Drawing {
    /// Number of lines; the cursor is in the last one.
    lines: usize,
}

impl Drawing {
    /// Returns the text that replaces the previous lines with these.
    fn draw(&mut self, lines: &[String]) -> String {
        let before = self.to_start();
        self.lines = lines.len();
        // Each line is cleared to its end, and the screen below the last line, so the text never
        // flickers.
        let text: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        format!("{before}{}\x1b[J", text.join("\n"))
    }

    /// Returns the text that removes the lines.
    fn clear(&mut self) -> String {
        if self.lines == 0 {
            return String::new();
        }
        let before = self.to_start();
        self.lines = 0;
        format!("{before}\x1b[J")
    }

    /// Returns the text that moves the cursor to the beginning of the first line.
    fn to_start(&self) -> String {
        match self.lines {
            0 | 1 => "\r".to_string(),
            lines => format!("\r\x1b[{}A", lines - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terminal emulator with the commands that this module uses.
    #[derive(Default)]
    struct Screen {
        rows: Vec<String>,
        row: usize,
        column: usize,
    }

    impl Screen {
        fn write(&mut self, text: &str) {
            let mut rest = text.chars();
            while let Some(c) = rest.next() {
                self.rows
                    .resize(self.rows.len().max(self.row + 1), String::new());
                match c {
                    '\r' => self.column = 0,
                    '\n' => (self.row, self.column) = (self.row + 1, 0),
                    '\x1b' => {
                        let mut code = Vec::new();
                        for c in rest.by_ref().skip(1) {
                            code.push(c);
                            if c.is_ascii_alphabetic() {
                                break;
                            }
                        }
                        self.command(&code);
                    }
                    c => {
                        let row = &mut self.rows[self.row];
                        row.truncate(self.column);
                        row.push(c);
                        self.column += 1;
                    }
                }
            }
        }

        fn command(&mut self, code: &[char]) {
            let Some((name, digits)) = code.split_last() else {
                return;
            };
            let digits: String = digits.iter().collect();
            match name {
                'A' => self.row -= digits.parse::<usize>().unwrap(),
                'K' => self.rows[self.row].truncate(self.column),
                'J' => {
                    self.rows[self.row].truncate(self.column);
                    self.rows.truncate(self.row + 1);
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| (*line).to_string()).collect()
    }

    #[test]
    fn lines_replace_those_before_and_clearing_leaves_nothing() {
        let (mut drawing, mut screen) = (Drawing::default(), Screen::default());
        screen.write("before\n");
        screen.write(&drawing.draw(&lines(&["one long line", "two", "three"])));
        assert_eq!(screen.rows, ["before", "one long line", "two", "three"]);
        screen.write(&drawing.draw(&lines(&["1", "2"])));
        assert_eq!(screen.rows, ["before", "1", "2"]);
        screen.write(&drawing.clear());
        assert_eq!(screen.rows, ["before", ""]);
        assert_eq!(drawing.clear(), "", "nothing to remove, nothing to write");
        screen.write("after\n");
        assert_eq!(screen.rows, ["before", "after"]);
    }
}
