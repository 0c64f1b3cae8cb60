//! Scripted delays and failures of the null engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rumbench_core::engine::{EngineError, OpenConfig, Result};

use crate::facts::Configuration;
use crate::settings::Settings;

/// Delays and failures that operations meet.
pub(super) struct Delays {
    stalls: Option<Stalls>,
    /// Minimum duration of each call.
    service: Duration,
    failing: Option<Failing>,
}

impl Delays {
    pub fn of(config: &OpenConfig) -> Result<Delays> {
        let mut settings = Settings::without_variants("null", config)?;
        let every_s: f64 = settings.take_in("stall_every_s", 0.0, 0.0..=1e6)?;
        let length_s: f64 = settings.take_in("stall_s", 0.0, 0.0..=1e6)?;
        let service_us: f64 = settings.take_in("service_us", 0.0, 0.0..=1e9)?;
        let fail_after: u64 = settings.take_in("fail_after_calls", 0, 0..=u64::MAX)?;
        settings.finish()?;
        Ok(Delays {
            stalls: Stalls::script(every_s, length_s)?,
            service: Duration::from_secs_f64(service_us * 1e-6),
            failing: (fail_after > 0).then(|| Failing {
                after: fail_after,
                calls: AtomicU64::new(0),
            }),
        })
    }

    /// Starts an operation: sleeps to the end of a scripted stall, then for the service time, and
    /// fails if a failure is due.
    #[inline]
    pub fn start(&self) -> Result<()> {
        if let Some(stalls) = &self.stalls {
            let left = stalls.remaining(stalls.opened.elapsed());
            if !left.is_zero() {
                std::thread::sleep(left);
            }
        }
        if !self.service.is_zero() {
            std::thread::sleep(self.service);
        }
        match &self.failing {
            Some(failing) => failing.call(),
            None => Ok(()),
        }
    }

    /// Returns the settings that differ from their defaults.
    pub fn configuration(&self) -> Configuration {
        let mut configuration = Configuration::default();
        if let Some(stalls) = &self.stalls {
            configuration.given("stall_every_s", stalls.every.as_secs_f64());
            configuration.given("stall_s", stalls.length.as_secs_f64());
        }
        if !self.service.is_zero() {
            configuration.given("service_us", self.service.as_micros());
        }
        if let Some(failing) = &self.failing {
            configuration.given("fail_after_calls", failing.after);
        }
        configuration
    }
}

/// Makes every call after the first `after` calls fail.
struct Failing {
    after: u64,
    /// Relaxed: among concurrent calls it does not matter which one is the first to fail.
    calls: AtomicU64,
}

impl Failing {
    fn call(&self) -> Result<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) < self.after {
            Ok(())
        } else {
            Err(EngineError::failed(
                format!("null.fail_after_calls={}", self.after),
                "the scripted end",
            ))
        }
    }
}

/// Stalls of `length` at each multiple of `every` after `opened`.
struct Stalls {
    opened: Instant,
    every: Duration,
    length: Duration,
}

impl Stalls {
    fn script(every_s: f64, length_s: f64) -> Result<Option<Stalls>> {
        if length_s == 0.0 {
            return Ok(None);
        }
        if every_s <= length_s {
            return Err(EngineError::Unsupported(format!(
                "null.stall_every_s={every_s} must exceed null.stall_s={length_s}"
            )));
        }
        Ok(Some(Stalls {
            opened: Instant::now(),
            every: Duration::from_secs_f64(every_s),
            length: Duration::from_secs_f64(length_s),
        }))
    }

    /// Returns the wait of an operation that starts `elapsed` after opening.
    fn remaining(&self, elapsed: Duration) -> Duration {
        if elapsed < self.every {
            return Duration::ZERO;
        }
        let into_cycle = elapsed.as_nanos() % self.every.as_nanos();
        let left = self.length.as_nanos().saturating_sub(into_cycle);
        Duration::from_nanos(left as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls() -> Stalls {
        Stalls::script(10.0, 1.0).unwrap().unwrap()
    }

    fn remaining_ms(elapsed_ms: u64) -> u128 {
        stalls()
            .remaining(Duration::from_millis(elapsed_ms))
            .as_millis()
    }

    #[test]
    fn operations_inside_a_stall_wait_for_its_end_and_others_do_not_wait() {
        assert_eq!(remaining_ms(0), 0, "there is no stall at the start");
        assert_eq!(remaining_ms(9_999), 0);
        assert_eq!(remaining_ms(10_000), 1_000);
        assert_eq!(remaining_ms(10_900), 100);
        assert_eq!(remaining_ms(11_000), 0);
        assert_eq!(remaining_ms(20_250), 750);
    }

    #[test]
    fn without_a_length_there_are_no_stalls() {
        assert!(Stalls::script(10.0, 0.0).unwrap().is_none());
    }

    #[test]
    fn stalls_that_never_end_are_refused() {
        assert!(Stalls::script(1.0, 1.0).is_err());
    }
}
