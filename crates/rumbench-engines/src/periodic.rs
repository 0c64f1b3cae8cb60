//! Background thread that runs one task about each second, such as a sync of the log for the
//! `buffered` class.
//!
//! The thread never outlives its [`Periodic`]. The first failure ends it and is kept for
//! [`Periodic::stop`]. An engine that could not sync its log has broken its promise, so the trial
//! must fail instead of reporting a result.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rumbench_core::engine::{Durability, EngineError, Result};

/// Maximum age of the newest synced state of a `buffered` engine.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Running background task. Dropping it ends the thread and discards a failure; [`Periodic::stop`]
/// returns it.
pub struct Periodic {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Periodic {
    /// Starts a thread that runs `task` once per `interval`, counted from the end of the last run.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        mut task: impl FnMut() -> Result<()> + Send + 'static,
    ) -> Result<Periodic> {
        let (stop, stopped) = channel::<()>();
        let body = move || {
            // Terminates when `stop` or `drop` drops the sender.
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                task()?;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(body)
            .map_err(|error| EngineError::failed(format!("start thread {name}"), error))?;
        Ok(Periodic {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Starts a thread that syncs the log of an engine once per [`SYNC_INTERVAL`], if `class` is
    /// `buffered`.
    pub(crate) fn syncer(
        name: &str,
        class: Durability,
        sync: impl FnMut() -> Result<()> + Send + 'static,
    ) -> Result<Option<Periodic>> {
        match class {
            Durability::Buffered => Periodic::start(name, SYNC_INTERVAL, sync).map(Some),
            Durability::Sync | Durability::None => Ok(None),
        }
    }

    /// Ends the thread. Fails if a run of its task failed.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(EngineError::Wrong(
                "a background thread panicked".to_string(),
            )),
        }
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        // `stop` has already returned the failure, or it belongs to a trial that failed earlier.
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn the_task_runs_again_and_again_until_stopped() {
        let (tick, ticks) = sync_channel(0);
        let task = move || {
            // Ends with an error after the test has dropped the receiver.
            tick.send(())
                .map_err(|_| EngineError::Unsupported("stopped".to_string()))
        };
        let periodic = Periodic::start("test", Duration::from_millis(1), task).unwrap();
        for _ in 0..3 {
            ticks.recv().unwrap();
        }
        drop(ticks);
        let _ = periodic.stop();
    }

    #[test]
    fn a_failure_ends_the_task_and_is_returned_by_stop() {
        let (ran, runs) = channel();
        let task = move || {
            ran.send(()).unwrap();
            Err(EngineError::Unsupported("disk gone".to_string()))
        };
        let periodic = Periodic::start("test", Duration::from_millis(1), task).unwrap();
        assert_eq!(runs.iter().count(), 1);
        assert_eq!(periodic.stop().unwrap_err().to_string(), "disk gone");
    }
}
