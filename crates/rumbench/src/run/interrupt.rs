//! Ctrl-C: the first ends the interval and saves, the second stops at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Number of times that the user asked to stop.
#[derive(Debug, Clone, Default)]
pub struct Interrupts {
    count: Arc<AtomicUsize>,
}

impl Interrupts {
    /// Installs handlers that count SIGINT and SIGTERM; these signals no longer end the process.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn watch() -> Result<Interrupts> {
        let interrupts = Interrupts::default();
        let count = Arc::clone(&interrupts.count);
        let mut signals =
            Signals::new([SIGINT, SIGTERM]).context("cannot watch for interruptions")?;
        std::thread::spawn(move || {
            for _ in signals.forever() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(interrupts)
    }

    /// Returns the number of signals so far.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
