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

mod cycles;
mod dependencies;
mod history;
#[cfg(test)]
mod tests;
mod versions;

use std::fmt;

pub use history::{Action, History, Object, Outcome, Transaction};

/// Kind of anomaly in a history, from most to least severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// A value was read that was never written.
    Garbage,
    /// A transaction did not see its own write.
    Internal,
    /// The versions of a row have no common order: two reads of a list of which neither is a prefix
    /// of the other, or a commit missing from the known order.
    NoOrder,
    /// Two transactions overwrote each other in different orders: a cycle of write-write
    /// dependencies.
    G0,
    /// The write of a transaction that was rolled back was read. Readers that were rolled back
    /// count too, because a program has seen the value.
    G1a,
    /// A write was read that its own transaction replaced.
    G1b,
    /// A cycle of write-write and write-read dependencies.
    G1c,
    /// Another transaction wrote a row between a locking read of it and the write that followed.
    LostLockedUpdate,
    /// Another transaction wrote a row between a plain read of it and the write that followed.
    LostUpdate,
    /// Read skew: a cycle with exactly one read-write dependency.
    GSingle,
    /// A cycle with several read-write dependencies, no two of them adjacent, such as the long
    /// fork.
    GNonadjacent,
    /// Write skew: a cycle with several read-write dependencies, each on a row that was read.
    G2Item,
    /// Phantom: like `G2Item`, but some of the dependencies are on a range that was read.
    G2,
}

/// Isolation level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Every read is of a committed state.
    ReadCommitted,
    /// All reads are of the state at the beginning, and rows that are written have not changed
    /// since.
    Snapshot,
    /// As if the transactions had run one after another.
    Serializable,
}

impl Level {
    /// Returns whether the level forbids the anomaly.
    pub fn forbids(self, anomaly: Anomaly) -> bool {
        let weakest = match anomaly {
            Anomaly::Garbage | Anomaly::Internal | Anomaly::NoOrder => Level::ReadCommitted,
            Anomaly::G0 | Anomaly::G1a | Anomaly::G1b | Anomaly::G1c => Level::ReadCommitted,
            Anomaly::LostLockedUpdate => Level::ReadCommitted,
            Anomaly::LostUpdate | Anomaly::GSingle | Anomaly::GNonadjacent => Level::Snapshot,
            Anomaly::G2Item | Anomaly::G2 => Level::Serializable,
        };
        weakest <= self
    }
}

impl Anomaly {
    /// Returns the usual name.
    pub fn name(self) -> &'static str {
        match self {
            Anomaly::Garbage => "garbage read",
            Anomaly::Internal => "own write not seen",
            Anomaly::NoOrder => "no order of versions",
            Anomaly::G0 => "G0 (write cycle)",
            Anomaly::G1a => "G1a (aborted read)",
            Anomaly::G1b => "G1b (intermediate read)",
            Anomaly::G1c => "G1c (circular information flow)",
            Anomaly::LostLockedUpdate => "lost update of a locked row",
            Anomaly::LostUpdate => "lost update",
            Anomaly::GSingle => "G-single (read skew)",
            Anomaly::GNonadjacent => "G-nonadjacent",
            Anomaly::G2Item => "G2-item (write skew)",
            Anomaly::G2 => "G2 (phantom)",
        }
    }
}

/// Anomaly that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Kind of the anomaly.
    pub anomaly: Anomaly,
    /// Description: a line for each dependency, then one for each transaction in it.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.anomaly.name(), self.text)
    }
}

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
