//! The progress line on stderr: redrawn on a terminal, one line a minute elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A warning or remark for the user, on stderr.
pub fn say(text: &str) {
    // A closed stderr must not end a measurement.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Where a suite stands.
#[derive(Debug, Default, Clone)]
pub struct Standing {
    /// Trial, counted from 1.
    pub trial: usize,
    /// Trials in total.
    pub trials: usize,
    /// Engine name with repetition.
    pub label: String,
    /// Phase name.
    pub phase: String,
    /// Seconds since the phase began.
    pub seconds: f64,
    /// Operations of the phase so far.
    pub operations: u64,
    /// Length of the phase in seconds, if it ends by time.
    pub phase_seconds: Option<f64>,
    /// Length of the phase in operations, if it ends by count.
    pub phase_operations: Option<u64>,
    /// The engine's note while settling.
    pub note: String,
}

impl Standing {
    /// Seconds until the phase ends, where that can be told.
    fn phase_left(&self) -> Option<f64> {
        if let Some(total) = self.phase_seconds {
            return Some((total - self.seconds).max(0.0));
        }
        let total = self.phase_operations?;
        let rate = self.operations as f64 / self.seconds;
        (rate > 0.0).then(|| total.saturating_sub(self.operations) as f64 / rate)
    }

    fn line(&self, trial_seconds: Option<f64>) -> String {
        let mut line = format!(
            "[{}/{}] {} {} {:.0} s",
            self.trial, self.trials, self.label, self.phase, self.seconds
        );
        if self.operations > 0 && self.seconds > 0.0 {
            line += &format!(
                ", {:.0} operations/s",
                self.operations as f64 / self.seconds
            );
        }
        if !self.note.is_empty() {
            line += &format!(", {}", self.note);
        }
        if let Some(left) = self.phase_left() {
            line += &format!(", phase ends in {left:.0} s");
        }
        let trials_left = (self.trials - self.trial.min(self.trials)) as f64;
        if let Some(seconds) = trial_seconds.filter(|_| trials_left > 0.0) {
            line += &format!(", other trials about {:.0} s", seconds * trials_left);
        }
        line
    }
}

/// Draws the standing of a suite.
pub struct Progress {
    terminal: bool,
    drawn: bool,
    last: Instant,
    started: Instant,
    finished_trials: u32,
}

impl Progress {
    /// Looks at stderr to choose the way.
    pub fn new() -> Progress {
        Progress {
            terminal: std::io::stderr().is_terminal(),
            drawn: false,
            last: Instant::now(),
            started: Instant::now(),
            finished_trials: 0,
        }
    }

    /// Shows the standing if it is time for it.
    pub fn show(&mut self, standing: &Standing) {
        let every = Duration::from_millis(if self.terminal { 500 } else { 60_000 });
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        let trial_seconds = (self.finished_trials > 0)
            .then(|| self.started.elapsed().as_secs_f64() / f64::from(self.finished_trials));
        let line = standing.line(trial_seconds);
        if self.terminal {
            let _ = write!(std::io::stderr().lock(), "\r{line}\x1b[K");
            self.drawn = true;
        } else {
            say(&line);
        }
    }

    /// A trial ended.
    pub fn trial_finished(&mut self) {
        self.finished_trials += 1;
        self.clear();
    }

    /// Removes the line from a terminal, so that other text can follow.
    pub fn clear(&mut self) {
        if self.drawn {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
            self.drawn = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_the_time_left_of_a_phase_that_ends_by_count() {
        let standing = Standing {
            trial: 1,
            trials: 3,
            label: "sqlite #1".to_string(),
            phase: "request".to_string(),
            seconds: 10.0,
            operations: 1000,
            phase_operations: Some(4000),
            ..Standing::default()
        };
        assert_eq!(
            standing.line(Some(60.0)),
            "[1/3] sqlite #1 request 10 s, 100 operations/s, phase ends in 30 s, other trials about 120 s"
        );
    }
}
