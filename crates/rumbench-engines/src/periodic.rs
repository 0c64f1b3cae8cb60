//! A background thread that does one thing about each second, such as syncing a log for the `buffered` class.
//!
//! The thread never outlives its [`Periodic`]. The first failure ends it and is kept for [`Periodic::stop`]: an
//! engine whose log could not be synced has not kept its promise, and the trial must fail rather than report.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rumbench_core::engine::{EngineError, Result};

/// How old the newest synced state of a `buffered` engine may become.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// A running background task. Dropping it ends the thread and forgets a failure; [`Periodic::stop`] returns it.
pub(crate) struct Periodic {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Periodic {
    /// Runs `task` once per `interval`, counted from the end of the last run.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        mut task: impl FnMut() -> Result<()> + Send + 'static,
    ) -> Result<Periodic> {
        let (stop, stopped) = channel::<()>();
        let body = move || {
            // Ends when the sender is dropped, which `stop` and `drop` do.
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

    /// Ends the thread and says whether every run of its task succeeded.
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
        // A failure on this path was either returned by `stop` already or belongs to a trial that failed earlier.
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
            // Ends with an error once the test has gone on to stop the thread.
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
