//! Actions of transactions: the input of the checker.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// Name of a row. Lists and registers have separate names.
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

/// One action of a transaction. Values and elements are unique in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read a register; `None`: it was absent.
    Read {
        /// Key of the register.
        key: u32,
        /// Value of the register.
        found: Option<u64>,
        /// True if the read took a lock that prevents other writes, or has the same effect at the
        /// commit.
        locked: bool,
    },
    /// Wrote a register.
    Write {
        /// Key of the register.
        key: u32,
        /// New value.
        value: u64,
    },
    /// Removed a register.
    Delete {
        /// Key of the register.
        key: u32,
        /// Unique number of this absence.
        value: u64,
    },
    /// Read a list; an absent one is empty.
    ReadList {
        /// Key of the list.
        key: u32,
        /// Elements of the list.
        found: Vec<u64>,
        /// As in [`Action::Read`].
        locked: bool,
    },
    /// Added an element at the end of a list.
    Append {
        /// Key of the list.
        key: u32,
        /// New element.
        element: u64,
    },
    /// Read all registers of a range.
    Scan {
        /// Range, up to the last key that was reached.
        keys: RangeInclusive<u32>,
        /// Key and value of each row found.
        found: Vec<(u32, u64)>,
    },
}

/// End of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The commit succeeded.
    Committed,
    /// It was rolled back, or its commit was refused.
    Aborted,
    /// The commit failed with an unknown outcome. It counts as committed if another transaction's
    /// read or a known order shows one of its writes.
    Unknown,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Client that ran it, for reports.
    pub client: usize,
    /// Actions in order.
    pub actions: Vec<Action>,
    /// Outcome of the transaction.
    pub outcome: Outcome,
    /// Times of its beginning and end, from one clock for all transactions. The first is taken
    /// before the beginning and the second after the end. So if one ends before another begins by
    /// these times, it really did.
    pub time: Option<(u64, u64)>,
}

impl Transaction {
    /// Creates a transaction without times.
    pub fn new(client: usize, actions: Vec<Action>, outcome: Outcome) -> Transaction {
        Transaction {
            client,
            actions,
            outcome,
            time: None,
        }
    }

    /// Returns the last value that it gave to each row, as installed by its commit.
    pub(super) fn installed(&self) -> BTreeMap<Object, u64> {
        self.actions.iter().filter_map(Action::written).collect()
    }
}

impl Action {
    /// Returns the row written and its new value; `None` for a read.
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

/// Transactions that ran concurrently.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(super) transactions: Vec<Transaction>,
    pub(super) orders: BTreeMap<u32, Vec<u64>>,
}

impl History {
    /// Creates a history without transactions.
    pub fn new() -> History {
        History::default()
    }

    /// Adds a transaction, in any order.
    pub fn push(&mut self, transaction: Transaction) {
        self.transactions.push(transaction);
    }

    /// Sets the order of the committed values of a register, deletes included. Without it, the
    /// order is inferred from the reads as far as possible.
    pub fn order(&mut self, key: u32, values: Vec<u64>) {
        self.orders.insert(key, values);
    }

    /// Returns the number of committed transactions.
    pub fn committed(&self) -> usize {
        let committed = |t: &&Transaction| t.outcome == Outcome::Committed;
        self.transactions.iter().filter(committed).count()
    }

    /// Describes a transaction in words.
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
