//! Detects stuck phases, in which no request completes any more: the trial is ended and marked, and
//! the suite continues.
//!
//! Only phases of requests are watched. A single piece of work, such as building an index, has no
//! time limit.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rumbench_core::trial::{Phase, PhaseEnd};
use rustix::process::{Signal, getpid, kill_process};

use super::pacing::Rate;
use super::protocol::Event;
use super::sampler::Watched;

/// Name of the mark.
pub const MARK: &str = "stuck";

/// Checks within the time after which a phase counts as stuck.
const LOOKS: u32 = 10;

/// Returns the time without a completed request after which a phase is stuck. `None`: it is not a
/// phase of requests, or no limit was requested. At low rates the limit is at least ten times the
/// time between two requests.
pub fn limit(asked: Option<Duration>, phase: &Phase, rate: Option<Rate>) -> Option<Duration> {
    let background = phase.background.as_ref();
    let led = background.is_some_and(|background| background.leads.is_some());
    if phase.end == PhaseEnd::Work && !led {
        return None;
    }
    let between = rate.map_or(0.0, |rate| 10.0 / rate.per_second);
    let seldom = Duration::try_from_secs_f64(between).unwrap_or(Duration::MAX);
    asked.map(|limit| limit.max(seldom))
}

/// Watches until `done` is disconnected. Kills the laboratory's own server, if there is one, which
/// ends the waiting of its clients. Without a server, or if that does not help, this process kills
/// itself.
pub fn watch(watched: &Watched<'_>, name: &str, limit: Duration, done: &Receiver<()>) {
    let ended = || watched.intervals.total();
    let mut seen = (ended(), Instant::now());
    let mut tried = false;
    while let Err(RecvTimeoutError::Timeout) = done.recv_timeout(limit / LOOKS) {
        let now = ended();
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        if seen.1.elapsed() < limit {
            continue;
        }
        let what = format!("no request of {name} ended for {} s", limit.as_secs());
        let emit = |mark| watched.emitter.emit(&Event::Mark { mark });
        if !tried && watched.engine.end_server() {
            emit(format!("{MARK} ({what}; its server was killed)"));
            (tried, seen.1) = (true, Instant::now());
            continue;
        }
        emit(format!("{MARK} ({what}; the trial was killed)"));
        // Not an exit, because destructors of the engine's library would wait for the stuck
        // request.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::pacing::Arrivals;

    #[test]
    fn only_requests_are_watched_and_low_rates_get_a_longer_limit() {
        let asked = Some(Duration::from_secs(60));
        let found = |end, rate: Option<f64>| {
            let phase = Phase {
                end,
                ..Phase::of_work("phase", &["op"], Vec::new())
            };
            let arrivals = Arrivals::Even;
            let rate = rate.map(|per_second| Rate {
                per_second,
                arrivals,
            });
            limit(asked, &phase, rate)
        };
        assert_eq!(found(PhaseEnd::Work, None), None);
        assert_eq!(found(PhaseEnd::Seconds(1.0), None), asked);
        assert_eq!(found(PhaseEnd::Operations(1), Some(100.0)), asked);
        let seldom = Some(Duration::from_secs(100));
        assert_eq!(found(PhaseEnd::Seconds(1.0), Some(0.1)), seldom);
        assert_eq!(
            found(PhaseEnd::Seconds(1.0), Some(0.0)),
            Some(Duration::MAX)
        );
    }
}
