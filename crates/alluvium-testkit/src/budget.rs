//! Time budget of a fuzz test, which loops on random input.

use std::time::{Duration, Instant};

/// Environment variable with the duration of each fuzz test, in seconds.
pub const BUDGET_VARIABLE: &str = "ALLUVIUM_FUZZ_SECONDS";

/// Long enough to find gross defects without making `cargo test` slow.
const BUDGET_DEFAULT: Duration = Duration::from_secs(2);

/// Returns the time budget of one fuzz test: [`BUDGET_VARIABLE`], or 2 seconds.
///
/// # Panics
/// If the variable is set to something other than a number of seconds.
pub fn fuzz_budget() -> Duration {
    match std::env::var(BUDGET_VARIABLE) {
        Ok(value) => parse_budget(&value)
            .unwrap_or_else(|| panic!("{BUDGET_VARIABLE}={value} is no number of seconds")),
        Err(_) => BUDGET_DEFAULT,
    }
}

fn parse_budget(value: &str) -> Option<Duration> {
    let seconds: f64 = value.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// End of a budget that starts now.
pub(crate) struct Deadline {
    started: Instant,
    budget: Duration,
}

impl Deadline {
    pub(crate) fn of_fuzz_budget() -> Deadline {
        let (started, budget) = (Instant::now(), fuzz_budget());
        Deadline { started, budget }
    }

    pub(crate) fn passed(&self) -> bool {
        self.started.elapsed() >= self.budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_number_of_seconds() {
        assert_eq!(parse_budget("60"), Some(Duration::from_secs(60)));
        assert_eq!(parse_budget("0.5"), Some(Duration::from_millis(500)));
        for wrong in ["", "soon", "-1", "nan"] {
            assert_eq!(parse_budget(wrong), None, "{wrong}");
        }
    }
}
