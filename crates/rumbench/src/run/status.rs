//! Status of a suite as text: the lines that a terminal shows while trials run, and the one line a
//! minute for other outputs.
//!
//! Pure: the text depends only on the events of the trials. Rates and response times cover the last
//! seconds, so that a stall is visible while it lasts. Percentiles come from classes of response
//! times, each twice as long as the previous, and are shown as "below".

use std::collections::VecDeque;

use crate::measure::statistics::stalled_limit;
use crate::store::result::Interval;
use crate::text::{count, gib, microseconds, number};

/// Number of recent seconds kept: a minute.
const KEPT: usize = 60;
/// Number of recent seconds over which response times and costs are computed.
const RECENT: usize = 10;
/// Width of the progress bar in characters.
const BAR: usize = 24;
/// Characters for throughput levels, from none to the highest of the last minute.
const LEVELS: &[u8] = b"_.-:=+*#%@";

/// Status of a suite.
#[derive(Debug, Default, Clone)]
pub struct SuiteStatus {
    /// Number of the trial, counted from 1.
    pub trial: usize,
    /// Trials in total.
    pub trials: usize,
    /// Engine name with repetition.
    pub label: String,
    /// Names of all phases of the trial.
    pub phases: Vec<String>,
    /// Number of phases that have begun.
    pub begun: usize,
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
    /// Recent seconds of the phase, at most 60.
    pub recent: VecDeque<Interval>,
    /// Last second of the phase in which almost nothing was done, and the number of such seconds.
    pub last_stall: Option<(u64, u64)>,
}

impl SuiteStatus {
    /// Begins a phase.
    pub fn begin(&mut self, phase: &str, seconds: Option<f64>, operations: Option<u64>) {
        *self = SuiteStatus {
            trial: self.trial,
            trials: self.trials,
            label: std::mem::take(&mut self.label),
            phases: std::mem::take(&mut self.phases),
            begun: self.begun + 1,
            phase: phase.to_string(),
            phase_seconds: seconds,
            phase_operations: operations,
            ..SuiteStatus::default()
        };
    }

    /// Adds seconds that have ended.
    pub fn take(&mut self, intervals: &[Interval]) {
        for interval in intervals {
            self.recent.push_back(interval.clone());
            if self.recent.len() > KEPT {
                self.recent.pop_front();
            }
            let ops: Vec<u64> = self.recent.iter().map(|second| second.ops).collect();
            if stalled_limit(&ops).is_some_and(|limit| (interval.ops as f64) < limit) {
                let before = self.last_stall.map_or(0, |(_, number)| number);
                self.last_stall = Some((interval.second, before + 1));
            }
        }
    }

    /// Returns the seconds until the phase ends, if they can be estimated.
    fn phase_left(&self) -> Option<f64> {
        if let Some(total) = self.phase_seconds {
            return Some((total - self.seconds).max(0.0));
        }
        let total = self.phase_operations?;
        let rate = self.operations as f64 / self.seconds;
        (rate > 0.0).then(|| total.saturating_sub(self.operations) as f64 / rate)
    }

    /// Returns the completed share of the phase, from 0 to 1.
    fn share(&self) -> Option<f64> {
        let share = match (self.phase_seconds, self.phase_operations) {
            (Some(total), _) if total > 0.0 => self.seconds / total,
            (_, Some(total)) if total > 0 => self.operations as f64 / total as f64,
            _ => return None,
        };
        Some(share.clamp(0.0, 1.0))
    }

    fn others_left(&self, trial_seconds: Option<f64>) -> Option<f64> {
        let left = (self.trials - self.trial.min(self.trials)) as f64;
        trial_seconds.filter(|_| left > 0.0).map(|each| each * left)
    }

    /// Returns the status in one line, for files and pipes.
    pub fn line(&self, trial_seconds: Option<f64>) -> String {
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
        if let Some(below) = self.percentile(0.99) {
            line += &format!(", p99 below {}", microseconds(below));
        }
        if let Some((second, _)) = self.last_stall {
            line += &format!(", last stall at {second} s");
        }
        if !self.note.is_empty() {
            line += &format!(", {}", self.note);
        }
        if let Some(left) = self.phase_left() {
            line += &format!(", phase ends in {left:.0} s");
        }
        if let Some(left) = self.others_left(trial_seconds) {
            line += &format!(", other trials about {left:.0} s");
        }
        line
    }

    /// Returns the lines for a terminal that is `width` characters wide.
    pub fn lines(&self, trial_seconds: Option<f64>, cpus: usize, width: usize) -> Vec<String> {
        let place = match self.phases.len() {
            0 => String::new(),
            all => format!(" ({} of {})", self.begun, all.max(self.begun)),
        };
        let mut lines = vec![
            format!(
                "[{}/{}] {}: {}{place}",
                self.trial, self.trials, self.label, self.phase
            ),
            self.time_line(trial_seconds),
        ];
        if self.operations > 0 && self.seconds > 0.0 {
            lines.push(self.rate_line(width));
        }
        lines.extend(self.response_line());
        lines.extend(self.cost_line(cpus));
        lines.extend(self.stall_line());
        if !self.note.is_empty() {
            lines.push(format!("      {}", self.note));
        }
        let cut = |line: String| line.chars().take(width.saturating_sub(1)).collect();
        lines.into_iter().map(cut).collect()
    }

    fn time_line(&self, trial_seconds: Option<f64>) -> String {
        let mut line = "time  ".to_string();
        if let Some(share) = self.share() {
            let done = (share * BAR as f64).round() as usize;
            line += &format!("[{}{}] ", "#".repeat(done), ".".repeat(BAR - done));
        }
        line += &format!("{} in this phase", duration(self.seconds));
        if let Some(left) = self.phase_left() {
            line += &format!(", {} left", duration(left));
        }
        if let Some(left) = self.others_left(trial_seconds) {
            line += &format!(", other trials about {}", duration(left));
        }
        line
    }

    fn rate_line(&self, width: usize) -> String {
        let mean = self.operations as f64 / self.seconds;
        let now = self.recent.back().map(|second| second.ops as f64);
        let mut line = format!("rate  {} op/s", count(Some(now.unwrap_or(mean))));
        if now.is_some() {
            line += &format!(", mean {}", count(Some(mean)));
        }
        line += "  ";
        let room = width.saturating_sub(line.chars().count() + 1);
        let shown = self.recent.len().min(room);
        let seconds = self.recent.iter().skip(self.recent.len() - shown);
        let highest = seconds.clone().map(|second| second.ops).max().unwrap_or(0);
        let level = |second: &Interval| {
            let place = (LEVELS.len() - 1) as u64 * second.ops / highest.max(1);
            LEVELS[place as usize] as char
        };
        line + &seconds.map(level).collect::<String>()
    }

    fn last(&self) -> impl Iterator<Item = &Interval> + Clone {
        let skipped = self.recent.len().saturating_sub(RECENT);
        self.recent.iter().skip(skipped)
    }

    /// Returns the limit in microseconds that this share of the responses of the last seconds stays
    /// below.
    fn percentile(&self, share: f64) -> Option<f64> {
        let mut counts: Vec<u64> = Vec::new();
        for second in self.last() {
            counts.resize(counts.len().max(second.response_counts.len()), 0);
            for (all, of) in counts.iter_mut().zip(&second.response_counts) {
                *all += of;
            }
        }
        let wanted = counts.iter().sum::<u64>() as f64 * share;
        let mut sum = 0;
        let class = counts.iter().position(|of| {
            sum += of;
            sum > 0 && sum as f64 >= wanted
        })?;
        // Class n ends below 2^n microseconds.
        Some(2f64.powi(class as i32))
    }

    fn response_line(&self) -> Option<String> {
        let longest = self.last().map(|second| second.max_us).reduce(f64::max)?;
        let below = |share| self.percentile(share).map_or("-".to_string(), microseconds);
        Some(format!(
            "wait  p50 below {}, p99 {}, p99.9 {}, longest {} (last {} s)",
            below(0.5),
            below(0.99),
            below(0.999),
            microseconds(longest),
            self.last().count()
        ))
    }

    fn cost_line(&self, cpus: usize) -> Option<String> {
        let seconds = self.last().count() as f64;
        let mean = |value: fn(&Interval) -> Option<f64>| {
            let values: Vec<f64> = self.last().filter_map(value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / seconds)
        };
        let cpu = mean(|second| second.cpu_seconds)?;
        let mut line = format!("cost  CPU {cpu:.2} of {cpus}");
        let mib = |kb: Option<f64>| number(kb.map(|kb| kb / 1024.0));
        let (read, written) = (
            mean(|second| second.kb_read),
            mean(|second| second.kb_written),
        );
        if read.or(written).is_some() {
            line += &format!(", read {} MiB/s, written {} MiB/s", mib(read), mib(written));
        }
        let newest = |value: fn(&Interval) -> Option<u64>| self.recent.iter().rev().find_map(value);
        if let Some(memory) = newest(|second| second.rss_bytes) {
            line += &format!(", memory {} GiB", number(Some(gib(memory))));
        }
        if let Some(directory) = newest(|second| second.directory_bytes) {
            line += &format!(", on disk {} GiB", number(Some(gib(directory))));
        }
        Some(line)
    }

    fn stall_line(&self) -> Option<String> {
        let (second, number) = self.last_stall?;
        let ago = (self.seconds - second as f64 - 1.0).max(0.0);
        Some(format!(
            "stall {} ago, in second {second}; {number} of this phase's seconds so far",
            duration(ago)
        ))
    }
}

/// Formats seconds as seconds, minutes or hours.
fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..=99 => format!("{whole} s"),
        100..=5999 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64, ops: u64) -> Interval {
        let mut response_counts = vec![0; 12];
        response_counts[5] = ops.saturating_sub(1);
        response_counts[11] = 1;
        Interval {
            second,
            ops,
            max_us: 2000.0,
            response_counts,
            cpu_seconds: Some(1.5),
            rss_bytes: Some(1 << 28),
            kb_read: Some(0.0),
            kb_written: Some(2048.0),
            directory_bytes: Some(1 << 30),
            ..Interval::default()
        }
    }

    fn status() -> SuiteStatus {
        let mut status = SuiteStatus {
            trial: 1,
            trials: 3,
            label: "sqlite #1".to_string(),
            phases: ["load", "warmup", "request"].map(str::to_string).into(),
            begun: 2,
            ..SuiteStatus::default()
        };
        status.begin("request", None, Some(4000));
        status.seconds = 10.0;
        status.operations = 1000;
        status
    }

    #[test]
    fn a_line_tells_the_time_left_of_a_phase_that_ends_by_count() {
        assert_eq!(
            status().line(Some(60.0)),
            "[1/3] sqlite #1 request 10 s, 100 operations/s, phase ends in 30 s, other trials about 120 s"
        );
    }

    #[test]
    fn a_terminal_shows_rates_responses_costs_and_the_last_stall() {
        let mut status = status();
        let seconds = [100, 110, 120, 5, 200, 150, 0, 100];
        let seconds = seconds.iter().enumerate();
        let seconds: Vec<Interval> = seconds.map(|(i, ops)| second(i as u64, *ops)).collect();
        status.take(&seconds);
        let lines = status.lines(Some(100.0), 2, 100);
        assert_eq!(
            lines,
            [
                "[1/3] sqlite #1: request (3 of 3)",
                "time  [######..................] 10 s in this phase, 30 s left, other trials about 3 min 20 s",
                "rate  100 op/s, mean 100  ==+_@*_=",
                "wait  p50 below 32 us, p99 2.05 ms, p99.9 2.05 ms, longest 2 ms (last 8 s)",
                "cost  CPU 1.50 of 2, read 0 MiB/s, written 2.00 MiB/s, memory 0.250 GiB, on disk 1.00 GiB",
                "stall 3 s ago, in second 6; 2 of this phase's seconds so far",
            ]
        );
        let line = status.line(None);
        assert!(
            line.contains(", p99 below 2.05 ms, last stall at 6 s,"),
            "{line}"
        );
    }

    #[test]
    fn lines_never_reach_the_edge_and_what_is_unknown_is_left_out() {
        let mut status = status();
        status.operations = 0;
        status.phase_operations = None;
        status.note = "3 merges left, and then a very long tail".to_string();
        let lines = status.lines(None, 2, 30);
        assert_eq!(
            lines,
            [
                "[1/3] sqlite #1: request (3 o",
                "time  10 s in this phase",
                "      3 merges left, and then"
            ]
        );
    }

    #[test]
    fn a_new_phase_forgets_the_seconds_of_the_one_before() {
        let mut status = status();
        status.take(&[second(0, 10), second(1, 10), second(2, 0)]);
        assert!(status.last_stall.is_some());
        status.begin("settle", None, None);
        assert!(status.recent.is_empty() && status.last_stall.is_none());
        assert_eq!((status.begun, status.label.as_str()), (4, "sqlite #1"));
        // A fourth phase that the workload did not announce.
        assert!(status.lines(None, 2, 80)[0].ends_with("settle (4 of 4)"));
    }

    #[test]
    fn durations_read_like_speech() {
        assert_eq!(duration(99.4), "99 s");
        assert_eq!(duration(125.0), "2 min 05 s");
        assert_eq!(duration(7265.0), "2 h 01 min");
    }
}
