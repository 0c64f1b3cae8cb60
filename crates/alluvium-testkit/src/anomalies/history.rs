//! What transactions did: the input of the checker.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// Names a row. Lists and registers have names of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// A row that is overwritten.
    Register(u32),
    /// A row that is appended to.
    List(u32),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Register(key) => write!(f, "register {key}"),
            Object::List(key) => write!(f, "list {key}"),
        }
    }
}

/// One thing that a transaction did. Values and elements are unique in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read a register; `None`: it was absent.
    Read {
        /// Of the register.
        key: u32,
        /// Its value.
        found: Option<u64>,
        /// The read took a lock that keeps others from writing it, or has the same effect at the commit.
        locked: bool,
    },
    /// Wrote a register.
    Write {
        /// Of the register.
        key: u32,
        /// Its new value.
        value: u64,
    },
    /// Removed a register.
    Delete {
        /// Of the register.
        key: u32,
        /// Names this absence.
        value: u64,
    },
    /// Read a list; an absent one is empty.
    ReadList {
        /// Of the list.
        key: u32,
        /// Its elements.
        found: Vec<u64>,
        /// As in [`Action::Read`].
        locked: bool,
    },
    /// Added an element at the end of a list.
    Append {
        /// Of the list.
        key: u32,
        /// The element.
        element: u64,
    },
    /// Read all registers of a range, and found these.
    Scan {
        /// The range, up to the last key that was reached.
        keys: RangeInclusive<u32>,
        /// Key and value of each row.
        found: Vec<(u32, u64)>,
    },
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its commit succeeded.
    Committed,
    /// It was rolled back, or its commit was refused.
    Aborted,
    /// Its commit failed in a way that leaves it open. It counts as committed if anybody has seen a write of it.
    Unknown,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Who ran it, for reports.
    pub client: usize,
    /// What it did, in order.
    pub actions: Vec<Action>,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began and ended, by one clock for all: the first is taken before the beginning, the second behind the
    /// end, so that where one ends before another begins, it did so.
    pub time: Option<(u64, u64)>,
}

impl Transaction {
    /// A transaction that says nothing of its time.
    pub fn new(client: usize, actions: Vec<Action>, outcome: Outcome) -> Transaction {
        Transaction {
            client,
            actions,
            outcome,
            time: None,
        }
    }

    /// The last value that it gave to each row: what its commit installed.
    pub(super) fn installed(&self) -> BTreeMap<Object, u64> {
        self.actions.iter().filter_map(Action::written).collect()
    }
}

impl Action {
    /// What it wrote where.
    pub(super) fn written(&self) -> Option<(Object, u64)> {
        match self {
            Action::Write { key, value } | Action::Delete { key, value } => {
                Some((Object::Register(*key), *value))
            }
            Action::Append { key, element } => Some((Object::List(*key), *element)),
            Action::Read { .. } | Action::ReadList { .. } | Action::Scan { .. } => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = |locked: &bool| if *locked { " and locked" } else { "" };
        match self {
            Action::Read { key, found, locked } => {
                let found = found.map_or("nothing".into(), |value| value.to_string());
                write!(f, "read{} register {key} = {found}", lock(locked))
            }
            Action::Write { key, value } => write!(f, "wrote register {key} = {value}"),
            Action::Delete { key, value } => write!(f, "deleted register {key} ({value})"),
            Action::ReadList { key, found, locked } => {
                write!(f, "read{} list {key} = {found:?}", lock(locked))
            }
            Action::Append { key, element } => write!(f, "appended {element} to list {key}"),
            Action::Scan { keys, found } => {
                let rows: Vec<String> = found.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                let (start, end) = (keys.start(), keys.end());
                write!(
                    f,
                    "scanned registers {start} to {end}: [{}]",
                    rows.join(", ")
                )
            }
        }
    }
}

/// Transactions that ran beside each other.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(super) transactions: Vec<Transaction>,
    pub(super) orders: BTreeMap<u32, Vec<u64>>,
}

impl History {
    /// A history without transactions.
    pub fn new() -> History {
        History::default()
    }

    /// Adds a transaction, in any order.
    pub fn push(&mut self, transaction: Transaction) {
        self.transactions.push(transaction);
    }

    /// Says in which order the committed values of a register followed each other, deletes included. Where this is not
    /// said, as much of the order is inferred as the reads show.
    pub fn order(&mut self, key: u32, values: Vec<u64>) {
        self.orders.insert(key, values);
    }

    /// How many transactions were committed.
    pub fn committed(&self) -> usize {
        let committed = |t: &&Transaction| t.outcome == Outcome::Committed;
        self.transactions.iter().filter(committed).count()
    }

    /// A transaction in words.
    pub(super) fn describe(&self, transaction: usize) -> String {
        let told = &self.transactions[transaction];
        let outcome = match told.outcome {
            Outcome::Committed => "committed",
            Outcome::Aborted => "rolled back",
            Outcome::Unknown => "fate unknown",
        };
        let actions: Vec<String> = told.actions.iter().map(Action::to_string).collect();
        let client = told.client;
        format!(
            "  T{transaction} (client {client}, {outcome}): {}",
            actions.join("; ")
        )
    }
}
