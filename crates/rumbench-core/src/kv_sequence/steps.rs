//! Steps of kv-sequence, and their named lists.
//!
//! Names are db_bench's, as its report shows them without thread counts and suffixes; `load`,
//! `get`, `scan10` and `put` are the micro-benchmarks. Two steps count operations differently from
//! db_bench: see `docs/guide/kv-sequence.md`.

use crate::kv::Direction;

/// Action of each operation of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Writes the next rows in key order.
    Load,
    /// Reads a random row.
    Get,
    /// Reads [`MULTIGET_KEYS`] random rows in one call.
    MultiGet,
    /// Reads this many rows, starting at a random row.
    Scan(Direction, usize),
    /// Overwrites a random row.
    Put,
    /// Lets the engine work off its backlog.
    Settle,
}

/// End of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With its work: a load, or the backlog of a settle.
    Work,
    /// By the settings `seconds` or `operations`.
    Timed,
    /// As `Timed`, but at the latest after this many seconds.
    AtMost(u32),
    /// After one operation per this many keys of the table.
    Keys(u64),
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepDef {
    /// Name in settings and results.
    pub name: &'static str,
    /// Explanation for `rumbench list phases`.
    pub meaning: &'static str,
    /// Action of each operation.
    pub action: Action,
    /// End of the step.
    pub end: End,
    /// True: one client, regardless of the settings.
    pub alone: bool,
    /// True: random keys are among the first [`FEW_KEYS`] only.
    pub few_keys: bool,
    /// True: a background writer runs during the step.
    pub writer: bool,
    /// True: the step's backlog is part of it, so a settle follows.
    pub settles: bool,
}

/// Keys of one multi-get.
pub const MULTIGET_KEYS: usize = 10;
/// Rows of one range scan.
pub const SCAN_ROWS: usize = 10;
/// Number of keys that a step with [`StepDef::few_keys`] reads.
pub const FEW_KEYS: u64 = 100;

const FORWARD: Action = Action::Scan(Direction::Forward, SCAN_ROWS);
const REVERSE: Action = Action::Scan(Direction::Reverse, SCAN_ROWS);

/// Creates a step of all clients with the usual end, as most are.
const fn step(name: &'static str, action: Action, meaning: &'static str) -> StepDef {
    StepDef {
        name,
        meaning,
        action,
        end: End::Timed,
        alone: false,
        few_keys: false,
        writer: false,
        settles: false,
    }
}

/// Creates a load by one client.
const fn load(name: &'static str, meaning: &'static str) -> StepDef {
    StepDef {
        end: End::Work,
        alone: true,
        ..step(name, Action::Load, meaning)
    }
}

/// Creates a step with a background writer.
const fn while_writing(name: &'static str, action: Action, meaning: &'static str) -> StepDef {
    StepDef {
        writer: true,
        ..step(name, action, meaning)
    }
}

/// All steps.
pub const STEPS: &[StepDef] = &[
    load(
        "fillseq",
        "one client writes all rows in key order, each as a commit of its own",
    ),
    load(
        "load",
        "one client writes all rows in key order, 1000 rows a commit",
    ),
    StepDef {
        end: End::AtMost(300),
        alone: true,
        few_keys: true,
        ..step(
            "revrange",
            REVERSE,
            "one client scans ten rows backwards among the first 100 keys, while the backlog is worked off",
        )
    },
    step("readrandom", Action::Get, "reads of one random row"),
    step(
        "fwdrange",
        FORWARD,
        "scans of ten rows from a random one on",
    ),
    step(
        "multireadrandom",
        Action::MultiGet,
        "reads of ten random rows in one call",
    ),
    step(
        "seekrandom",
        Action::Scan(Direction::Forward, 1),
        "scans of one row: the cost of a seek",
    ),
    StepDef {
        end: End::Keys(10),
        ..step(
            "overwritesome",
            Action::Put,
            "overwrites as many random rows as a tenth of the table has",
        )
    },
    while_writing(
        "revrangewhilewriting",
        REVERSE,
        "scans of ten rows backwards with a background writer at a fixed rate",
    ),
    while_writing(
        "fwdrangewhilewriting",
        FORWARD,
        "scans of ten rows with a background writer at a fixed rate",
    ),
    while_writing(
        "readwhilewriting",
        Action::Get,
        "reads of one random row with a background writer at a fixed rate",
    ),
    step(
        "overwrite",
        Action::Put,
        "overwrites random rows as fast as it goes",
    ),
    StepDef {
        settles: true,
        ..step(
            "overwriteandwait",
            Action::Put,
            "overwrites random rows as fast as it goes; the settle that follows is its drain",
        )
    },
    step(
        "get",
        Action::Get,
        "micro-benchmark: reads of one random row",
    ),
    step("scan10", FORWARD, "micro-benchmark: scans of ten rows"),
    step(
        "put",
        Action::Put,
        "micro-benchmark: overwrites of one random row",
    ),
    StepDef {
        end: End::Work,
        ..step(
            "settle",
            Action::Settle,
            "the engine works off its backlog: flush, compaction, checkpoint, sync",
        )
    },
];

/// Sequence of December 2023.
pub const FORM_2023: &[&str] = &[
    "fillseq",
    "revrange",
    "readrandom",
    "fwdrange",
    "multireadrandom",
    "overwritesome",
    "settle",
    "revrangewhilewriting",
    "fwdrangewhilewriting",
    "readwhilewriting",
    "overwriteandwait",
];

/// Sequence of 2025, without the read-only steps.
pub const FORM_2025: &[&str] = &[
    "fillseq",
    "revrange",
    "overwritesome",
    "settle",
    "revrangewhilewriting",
    "fwdrangewhilewriting",
    "readwhilewriting",
    "overwriteandwait",
];

/// Micro-benchmarks: reads after a load in key order, after random puts, and after the backlog is
/// worked off.
pub const FORM_MICRO: &[&str] = &[
    "load", "get", "scan10", "put", "get", "scan10", "settle", "get", "scan10",
];

/// Returns the step with this name.
pub fn find(name: &str) -> Option<&'static StepDef> {
    STEPS.iter().find(|step| step.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_a_form_is_known() {
        for name in [FORM_2023, FORM_2025, FORM_MICRO].concat() {
            assert!(find(name).is_some(), "{name}");
        }
    }
}
