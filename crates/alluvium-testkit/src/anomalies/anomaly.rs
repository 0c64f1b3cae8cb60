//! Kinds of anomalies and the isolation levels that forbid them.

use std::fmt;

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
