//! Summary of all points of a sweep: throughput, cost and space for each value of the setting, the
//! scalability of an engine with the number of clients, and the aging of a database.
//!
//! [`curve`] collects the points of one engine and phase, [`scalability`] fits them, [`aging`]
//! follows the steps of one trial. Text, Markdown and the page show the same tables; [`conclude`]
//! stores the conclusions in the result.

pub mod aging;
pub mod curve;
pub mod scalability;
pub mod tables;
pub mod whole;

use crate::store::result::SuiteResult;
use crate::store::sweep::TURNOVER;
pub use scalability::CLIENTS;
pub use whole::{Whole, whole};

/// Returns true if a suite varied a setting or searched a rate, so that each point has tables of
/// its own.
pub fn has_points(suite: &SuiteResult) -> bool {
    let sweep = suite.sweep.as_ref();
    suite.rate_search.is_some() || sweep.is_some_and(|sweep| sweep.key != TURNOVER)
}

/// Stores the conclusions from all trials so far in the suite's sweep.
pub fn conclude(suite: &mut SuiteResult) {
    let Some(mut sweep) = suite.sweep.take() else {
        return;
    };
    let groups = whole(suite, false);
    sweep.scalability = groups
        .iter()
        .flat_map(|group| scalability::fits(&sweep, group))
        .collect();
    sweep.aging = if sweep.key == TURNOVER {
        suite.trials.iter().filter_map(aging::of).collect()
    } else {
        Vec::new()
    };
    for aging in &mut sweep.aging {
        let asked = sweep.values.first().and_then(|value| value.parse().ok());
        aging.judge(asked.unwrap_or(0.0));
    }
    suite.sweep = Some(sweep);
}
