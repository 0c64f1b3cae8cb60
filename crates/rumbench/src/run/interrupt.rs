//! Ctrl-C: once means finish the interval and save, twice means stop now.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How often the user asked to stop.
#[derive(Debug, Clone, Default)]
pub struct Interrupts {
    count: Arc<AtomicUsize>,
}

impl Interrupts {
    /// Counts SIGINT and SIGTERM from now on, instead of dying of them.
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

    /// Signals seen so far.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
