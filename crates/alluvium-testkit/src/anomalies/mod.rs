//! What concurrent transactions have done to each other, found in the history that they left, in the manner of Elle.
//!
//! A [`History`] holds transactions with what they read and wrote, and whether they were committed. Every written value
//! is written once in a history, so a read tells whose write it saw. From that the checker infers who depends on whom
//! and looks for the anomalies of Adya's theses: some are a single read ([`Anomaly::G1a`]), the others are cycles of
//! dependencies, found in the strongly connected components of their graph and told with the shortest one in words.
//!
//! | dependency | because |
//! |---|---|
//! | write-write | one replaced what the other had written |
//! | write-read | one read what the other had written |
//! | read-write | one read what the other replaced; for a range also: did not find what the other wrote |
//! | real time | one had ended before the other began, where both say when |
//!
//! There are two kinds of rows. A *list* is appended to and read whole, so a read shows the order of its versions. A
//! *register* is overwritten; the order of its versions is inferred (nothing comes before all, and what a transaction
//! reads comes before what it then writes), or it is known from elsewhere, such as a log ([`History::order`]).
//!
//! It infers nothing where a read is ambiguous, as that of a row which was absent more than once: it may miss something
//! there, but what it finds has happened. Reading order: [`history`](History), `versions` (who wrote what, and what can
//! be seen without a graph), `dependencies` (the graph), `cycles`.

mod cycles;
mod dependencies;
mod history;
#[cfg(test)]
mod tests;
mod versions;

use std::fmt;

pub use history::{Action, History, Object, Outcome, Transaction};

/// What is wrong with a history, from bad to harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// A value was read that nobody wrote.
    Garbage,
    /// A transaction did not see what it had written itself.
    Internal,
    /// The versions of a row cannot be brought into one order: two reads of a list, of which neither begins with the
    /// other; or a commit that the known order does not have.
    NoOrder,
    /// Two transactions overwrote each other in different orders: a cycle of write-write dependencies.
    G0,
    /// The write of a transaction that was rolled back was read. Counts for readers that were rolled back too: a
    /// program has seen it.
    G1a,
    /// A write was read that its transaction itself replaced.
    G1b,
    /// A cycle of write-write and write-read dependencies.
    G1c,
    /// Somebody wrote a row between a locking read of it and the write that followed.
    LostLockedUpdate,
    /// Somebody wrote a row between a plain read of it and the write that followed.
    LostUpdate,
    /// Read skew: a cycle with exactly one read-write dependency.
    GSingle,
    /// A cycle with several read-write dependencies of which no two follow each other, such as the long fork.
    GNonadjacent,
    /// Write skew: a cycle with several read-write dependencies, each on a row that was read.
    G2Item,
    /// A phantom: as `G2Item`, where some of the dependencies are on a range that was read.
    G2,
}

/// An isolation level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Every read is of a committed state.
    ReadCommitted,
    /// All reads are of the state at the beginning, and rows that are written have not changed since.
    Snapshot,
    /// As if the transactions had run one after another.
    Serializable,
}

impl Level {
    /// Whether the level must not let it happen.
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
    /// The usual name.
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

/// An anomaly that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which one.
    pub anomaly: Anomaly,
    /// What has happened, a line for each dependency, then one for each transaction in it.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.anomaly.name(), self.text)
    }
}

impl History {
    /// All anomalies, each kind of cycle once for each strongly connected component; the worst first.
    pub fn check(&self) -> Vec<Finding> {
        let (versions, mut findings) = versions::Versions::of(self);
        let graph = dependencies::Graph::of(self, &versions);
        findings.extend(cycles::find(self, &graph));
        findings.sort_by_key(|finding| finding.anomaly);
        findings
    }

    /// Fails with every anomaly that the level forbids, in words. Returns what else was found.
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
