//! Finds anomalies of concurrent transactions in their history, in the manner of Elle.
//!
//! A [`History`] holds transactions with their reads, writes and outcomes. Every value is written
//! at most once in a history, so a read identifies the write that it saw. From that the checker
//! infers the dependencies between transactions and looks for the anomalies of Adya's thesis. Some
//! are a single read ([`Anomaly::G1a`]). The others are cycles of dependencies, found in the
//! strongly connected components of their graph; each is reported by its shortest cycle in words.
//!
//! | dependency | because |
//! |---|---|
//! | write-write | one replaced a version that the other had written |
//! | write-read | one read a version that the other had written |
//! | read-write | one read a version that the other replaced, or scanned a range without its row |
//! | real time | one had ended before the other began, if both have times |
//!
//! There are two kinds of rows. A *list* is appended to and read whole, so a read shows the order
//! of its versions. A *register* is overwritten. The order of its versions is inferred: absence
//! comes first, and a version that a transaction reads comes before the one it then writes. Or the
//! order is known from elsewhere, such as a log ([`History::order`]).
//!
//! The checker infers nothing from an ambiguous read, such as that of a row that was absent more
//! than once. It may miss an anomaly there, but every anomaly that it finds has happened. Reading
//! order: [`history`](History), `versions` (the writer of each version, and anomalies found without
//! a graph), `dependencies` (the graph), `cycles`.

mod anomaly;
mod cycles;
mod dependencies;
mod history;
#[cfg(test)]
mod tests;
mod versions;

pub use anomaly::{Anomaly, Finding, Level};
pub use history::{Action, History, Object, Outcome, Transaction};

impl History {
    /// Returns all anomalies, the most severe first. Each kind of cycle is reported once per
    /// strongly connected component.
    pub fn check(&self) -> Vec<Finding> {
        let (versions, mut findings) = versions::Versions::of(self);
        let graph = dependencies::Graph::of(self, &versions);
        findings.extend(cycles::find(self, &graph));
        findings.sort_by_key(|finding| finding.anomaly);
        findings
    }

    /// Returns the anomalies allowed at the level, or an error that describes all forbidden ones.
    pub fn judge(&self, level: Level) -> Result<Vec<Finding>, String> {
        let found = self.check();
        let (wrong, allowed): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|f| level.forbids(f.anomaly));
        if wrong.is_empty() {
            return Ok(allowed);
        }
        let texts: Vec<String> = wrong.iter().map(Finding::to_string).collect();
        Err(format!("{level:?} forbids this:\n{}", texts.join("\n")))
    }
}
