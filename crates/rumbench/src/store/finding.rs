//! Judged facts about a machine, as parts of `result.json` and of `rumbench doctor`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing to do.
    Good,
    /// For information; nothing is wrong.
    Note,
    /// The machine may distort measurements.
    Warning,
}

/// One fact, judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Subject of the finding.
    pub about: Cow<'static, str>,
    /// Severity of the finding.
    pub verdict: Verdict,
    /// Observed fact.
    pub found: String,
    /// Advice or consequence; empty if there is none.
    pub advice: String,
}
