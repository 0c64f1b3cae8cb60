//! `--profile` on the laboratory's side: attaches the profiler to a trial and gives each phase its
//! samples.
//!
//! The profiler has its own thread, because the runner may wait for its disk while the kernel's
//! buffers fill. The thread that reads the trial's lines notifies it at once when a phase begins or
//! ends.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::progress::say;
use super::protocol::Event;
use crate::measure::doctor::PROFILE_ADVICE;
use crate::profile::{self, Profiler, Stacks};

/// Interval between drains of the kernel's buffers: half the time in which the smallest buffers
/// fill.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// Prefixes of the event lines that mark the begin and the end of a phase.
const STARTED: &str = "{\"event\":\"phase_started\"";
const ENDED: &str = "{\"event\":\"phase\"";

/// Begin or end of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Border {
    Begin,
    End,
}

/// Callback that receives each line of a trial as soon as it arrives.
pub type Listener = Box<dyn FnMut(&str) + Send>;

/// Profiler of one trial.
pub struct Profiled {
    /// Samples of each phase, in order.
    phases: Option<Receiver<Stacks>>,
    out: PathBuf,
    /// Number, engine and repetition.
    trial: String,
    /// Description of the samples, or the reason why there are none.
    words: String,
}

impl Profiled {
    /// Returns a profiler for a trial with files in a result folder. Their names begin with the
    /// trial's number, because names of trials may differ only in characters that file names cannot
    /// hold.
    pub fn new(out: &Path, number: usize, trial: &str) -> Profiled {
        Profiled {
            phases: None,
            out: out.to_path_buf(),
            trial: format!("{number:03} {trial}"),
            words: String::new(),
        }
    }

    /// Starts sampling a process before it does any work. If the kernel refuses, the trial runs
    /// without a profile.
    pub fn attach(&mut self, pid: u32) -> Option<Listener> {
        let profiler = match Profiler::attach(pid) {
            Ok(profiler) => profiler,
            Err(error) => {
                self.words =
                    format!("none (the kernel gives no samples: {error}; {PROFILE_ADVICE})");
                return None;
            }
        };
        let lacks = profiler.lacks().map(|lacks| format!(", {lacks}"));
        self.words = format!("stacks{}", lacks.unwrap_or_default());
        let (borders, told) = mpsc::channel();
        let (sender, phases) = mpsc::channel();
        self.phases = Some(phases);
        thread::spawn(move || sample(profiler, &told, &sender));
        Some(Box::new(move |line| {
            if let Some(border) = border(line) {
                // The send fails only if the profiler thread has ended; then there is no profile.
                let _ = borders.send(border);
            }
        }))
    }

    /// Adds the profile to the event of a phase that ended.
    pub fn follow(&mut self, event: &mut Event) {
        let (Event::Phase { result }, Some(phases)) = (event, &self.phases) else {
            return;
        };
        let Ok(stacks) = phases.recv() else {
            return;
        };
        if stacks.samples() + stacks.lost == 0 {
            return;
        }
        match profile::write(&self.out, &self.trial, &result.name, &stacks) {
            Ok(found) => result.profile = Some(found),
            Err(error) => say(&format!("warning: {error:#}")),
        }
    }

    /// Returns a description of the samples, or the reason why there are none.
    pub fn words(self) -> String {
        self.words
    }
}

fn border(line: &str) -> Option<Border> {
    match line {
        _ if line.starts_with(STARTED) => Some(Border::Begin),
        _ if line.starts_with(ENDED) => Some(Border::End),
        _ => None,
    }
}

/// Samples until the thread that reads the trial's lines ends. Samples between phases are dropped.
fn sample(mut profiler: Profiler, borders: &Receiver<Border>, phases: &Sender<Stacks>) {
    let mut inside = false;
    loop {
        match borders.recv_timeout(DRAIN_EVERY) {
            Ok(Border::Begin) => {
                profiler.skip();
                inside = true;
            }
            Ok(Border::End) => {
                inside = false;
                if phases.send(profiler.take()).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) if inside => profiler.drain(),
            Err(RecvTimeoutError::Timeout) => profiler.skip(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::result::PhaseResult;

    #[test]
    fn borders_of_phases_are_known_by_their_lines() {
        let line = |event: &Event| serde_json::to_string(event).expect("JSON");
        let started = Event::PhaseStarted {
            name: "phase".to_string(),
            seconds: None,
            operations: None,
        };
        let result = Box::new(PhaseResult::default());
        assert_eq!(border(&line(&started)), Some(Border::Begin));
        assert_eq!(border(&line(&Event::Phase { result })), Some(Border::End));
        let mark = "\"event\":\"phase\"".to_string();
        assert_eq!(border(&line(&Event::Mark { mark })), None);
        assert_eq!(border(&line(&Event::Measured)), None);
    }

    /// This test thread plays the trial: it starts a thread that works in one of two phases.
    #[test]
    fn each_phase_gets_what_was_sampled_in_it() {
        let dir = tempfile::tempdir().expect("folder");
        let mut profiled = Profiled::new(dir.path(), 7, "alluvium #1");
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let listener = profiled.attach(u32::try_from(own).expect("positive"));
        let Some(mut listener) = listener else {
            assert!(profiled.words().contains("perf_event_paranoid"));
            return;
        };
        let mut phase = |name: &str, work: Duration| {
            listener(STARTED);
            let busy = thread::spawn(move || {
                let start = std::time::Instant::now();
                while start.elapsed() < work {
                    std::hint::black_box(start);
                }
            });
            busy.join().expect("no panic");
            listener(ENDED);
            let result = Box::new(PhaseResult {
                name: name.to_string(),
                ..PhaseResult::default()
            });
            let mut event = Event::Phase { result };
            profiled.follow(&mut event);
            let Event::Phase { result } = event else {
                unreachable!("it is the same");
            };
            result.profile
        };
        let busy = phase("busy", Duration::from_millis(700)).expect("sampled");
        assert!(busy.samples >= 10, "{busy:?}");
        assert_eq!(busy.graph, "profile/007-alluvium-1-busy.svg");
        let idle = phase("idle", Duration::ZERO).map_or(0, |profile| profile.samples);
        assert!(idle < busy.samples / 2, "{idle} {busy:?}");
    }
}
