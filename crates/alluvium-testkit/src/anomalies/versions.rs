//! Writer, readers and successors of each version, and anomalies that are found without a graph.

use std::collections::{BTreeMap, BTreeSet};

use super::anomaly::{Anomaly, Finding};
use super::history::{Action, History, Object, Outcome, Transaction};

/// Version of a row; `None`: before its first write.
pub(super) type Version = Option<u64>;

/// Read of another transaction's version by a committed transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub reader: usize,
    pub object: Object,
    pub version: Version,
    /// True if only the range was read and the row was absent.
    pub by_range: bool,
    /// Index of the read among the actions of its transaction.
    at: usize,
    locked: bool,
}

/// Versions of all rows of a history.
pub(super) struct Versions {
    /// For each transaction, true if it counts as committed.
    pub committed: Vec<bool>,
    /// Transaction that wrote each value.
    writers: BTreeMap<(Object, u64), usize>,
    /// Pairs of versions of which the second follows the first.
    pub followers: BTreeSet<(Object, Version, u64)>,
    /// Reads of committed transactions from others, by reader.
    pub reads: Vec<Read>,
    /// Last value that each transaction gave to each row, as installed by its commit.
    installed: Vec<BTreeMap<Object, u64>>,
    /// All registers that were written or have a known order.
    registers: BTreeSet<u32>,
    /// Registers that were deleted: an absence is ambiguous there.
    deleted: BTreeSet<Object>,
}

/// Returns whether the shorter list is a prefix of the longer one.
fn is_prefix(one: &[u64], other: &[u64]) -> bool {
    let shared = one.len().min(other.len());
    one[..shared] == other[..shared]
}

impl Versions {
    pub fn of(history: &History) -> (Versions, Vec<Finding>) {
        let mut versions = Versions {
            committed: Vec::new(),
            writers: BTreeMap::new(),
            followers: BTreeSet::new(),
            reads: Vec::new(),
            installed: history
                .transactions
                .iter()
                .map(Transaction::installed)
                .collect(),
            registers: history.orders.keys().copied().collect(),
            deleted: BTreeSet::new(),
        };
        let mut findings = Vec::new();
        for (at, transaction) in history.transactions.iter().enumerate() {
            for action in &transaction.actions {
                versions.note_write(at, action);
            }
        }
        versions.find_committed(history);
        for reader in 0..history.transactions.len() {
            versions.read_by(history, reader, &mut findings);
        }
        let orders = versions.orders(history, &mut findings);
        versions.follow(history, &orders);
        versions.find_lost_updates(history, &orders, &mut findings);
        (versions, findings)
    }

    fn note_write(&mut self, writer: usize, action: &Action) {
        let Some((object, value)) = action.written() else {
            return;
        };
        let twice = self.writers.insert((object, value), writer);
        assert!(twice.is_none(), "{value} is written twice: {object}");
        if let Object::Register(key) = object {
            self.registers.insert(key);
        }
        if matches!(action, Action::Delete { .. }) {
            self.deleted.insert(object);
        }
    }

    /// Returns the transaction that wrote a version.
    pub fn writer(&self, object: Object, value: u64) -> Option<usize> {
        self.writers.get(&(object, value)).copied()
    }

    fn find_committed(&mut self, history: &History) {
        let mut seen: BTreeSet<(Object, u64)> = BTreeSet::new();
        for (key, values) in &history.orders {
            seen.extend(values.iter().map(|value| (Object::Register(*key), *value)));
        }
        for (at, transaction) in history.transactions.iter().enumerate() {
            let others = |(object, value): &(Object, u64)| self.writer(*object, *value) != Some(at);
            for action in &transaction.actions {
                seen.extend(values_in(action).into_iter().filter(others));
            }
        }
        let transactions = history.transactions.iter().enumerate();
        self.committed = transactions
            .map(|(at, transaction)| match transaction.outcome {
                Outcome::Committed => true,
                Outcome::Aborted => false,
                Outcome::Unknown => seen.iter().any(|(o, v)| self.writer(*o, *v) == Some(at)),
            })
            .collect();
    }

    /// Records a transaction's reads of versions from others, and checks each read by itself.
    fn read_by(&mut self, history: &History, reader: usize, findings: &mut Vec<Finding>) {
        let transaction = &history.transactions[reader];
        let mut own: BTreeMap<Object, (u64, bool)> = BTreeMap::new();
        for (at, action) in transaction.actions.iter().enumerate() {
            if let Some((object, value)) = action.written() {
                let present = !matches!(action, Action::Delete { .. });
                own.insert(object, (value, present));
            }
            let mut judge = |anomaly, text: String| {
                let text = format!("{text}\n{}", history.describe(reader));
                findings.push(Finding { anomaly, text });
            };
            for (object, value) in values_in(action) {
                if let Some((anomaly, text)) = self.wrong_read(history, reader, object, value, at) {
                    judge(anomaly, text);
                }
            }
            for (object, found, by_range) in self.shown_by(action) {
                if let Some((value, present)) = own.get(&object) {
                    if found != present.then_some(*value) {
                        let text = format!("T{reader} wrote {object} and then read something else");
                        judge(Anomaly::Internal, text);
                    }
                    continue;
                }
                let Some(version) = self.version(object, found) else {
                    continue;
                };
                if self.committed[reader] {
                    let locked = matches!(
                        action,
                        Action::Read { locked: true, .. } | Action::ReadList { locked: true, .. }
                    );
                    self.reads.push(Read {
                        reader,
                        object,
                        version,
                        by_range,
                        at,
                        locked,
                    });
                }
            }
        }
    }

    /// Returns the rows that an action has shown, with their value and whether only a range read
    /// showed their absence.
    fn shown_by(&self, action: &Action) -> Vec<(Object, Option<u64>, bool)> {
        match action {
            Action::Read { key, found, .. } => vec![(Object::Register(*key), *found, false)],
            Action::ReadList { key, found, .. } => {
                vec![(Object::List(*key), found.last().copied(), false)]
            }
            Action::Scan { keys, found } => {
                let found: BTreeMap<u32, u64> = found.iter().copied().collect();
                let row = |key: &u32| {
                    let value = found.get(key).copied();
                    (Object::Register(*key), value, value.is_none())
                };
                self.registers.range(keys.clone()).map(row).collect()
            }
            Action::Write { .. } | Action::Delete { .. } | Action::Append { .. } => Vec::new(),
        }
    }

    /// Returns the anomaly of reading this value in action `at` of the transaction, if there is
    /// one.
    fn wrong_read(
        &self,
        history: &History,
        reader: usize,
        object: Object,
        value: u64,
        at: usize,
    ) -> Option<(Anomaly, String)> {
        let Some(writer) = self.writer(object, value) else {
            let text = format!("T{reader} read {value} in {object}, which was never written");
            return Some((Anomaly::Garbage, text));
        };
        if writer == reader {
            return None;
        }
        if !self.committed[writer] {
            let text = format!(
                "T{reader} read {value} in {object}, which T{writer} had written, and that was rolled back"
            );
            return Some((
                Anomaly::G1a,
                format!("{text}\n{}", history.describe(writer)),
            ));
        }
        let installed = self.installed[writer].get(&object);
        let complete = match &history.transactions[reader].actions[at] {
            // The list must also contain the last element that the writer appended.
            Action::ReadList { found, .. } => installed.is_some_and(|last| found.contains(last)),
            _ => installed == Some(&value),
        };
        if complete {
            return None;
        }
        let text = format!(
            "T{reader} read {value} in {object}, which T{writer} replaced before its commit"
        );
        Some((
            Anomaly::G1b,
            format!("{text}\n{}", history.describe(writer)),
        ))
    }

    /// Returns the version that a read has shown, if it is unambiguous.
    fn version(&self, object: Object, found: Option<u64>) -> Option<Version> {
        let Some(value) = found else {
            return (!self.deleted.contains(&object)).then_some(None);
        };
        let writer = self.writer(object, value)?;
        let installed = self.installed[writer].get(&object) == Some(&value);
        (self.committed[writer] && installed).then_some(Some(value))
    }

    /// Returns the versions of each row with a known order.
    fn orders(&self, history: &History, findings: &mut Vec<Finding>) -> BTreeMap<Object, Vec<u64>> {
        let mut orders: BTreeMap<Object, Vec<u64>> = BTreeMap::new();
        for (key, values) in &history.orders {
            orders.insert(Object::Register(*key), values.clone());
        }
        let mut longest: BTreeMap<Object, (usize, &[u64])> = BTreeMap::new();
        for (at, transaction) in history.transactions.iter().enumerate() {
            for action in &transaction.actions {
                let Action::ReadList { key, found, .. } = action else {
                    continue;
                };
                let object = Object::List(*key);
                let found = self.without_own(at, object, found);
                let (other, best) = *longest.entry(object).or_insert((at, found));
                if !is_prefix(best, found) {
                    let text = format!(
                        "{object} was read as {best:?} by T{other} and as {found:?} by T{at}"
                    );
                    findings.push(Finding {
                        anomaly: Anomaly::NoOrder,
                        text,
                    });
                }
                if found.len() > best.len() {
                    longest.insert(object, (at, found));
                }
            }
        }
        for (object, (_, elements)) in longest {
            // Of several elements appended by one transaction, the last is the version.
            let is_version = |element: &&u64| {
                let writer = self.writer(object, **element);
                writer.is_some_and(|w| self.committed[w] && self.installed[w][&object] == **element)
            };
            orders.insert(
                object,
                elements.iter().filter(is_version).copied().collect(),
            );
        }
        self.check_complete(history, &orders, findings);
        orders
    }

    /// Returns a list as found by its reader, without elements that the reader appended and then
    /// rolled back.
    fn without_own<'a>(&self, reader: usize, object: Object, found: &'a [u64]) -> &'a [u64] {
        let own = |element: &u64| self.writer(object, *element) == Some(reader);
        match found.iter().position(own) {
            Some(first) if !self.committed[reader] => &found[..first],
            _ => found,
        }
    }

    /// Checks that every commit is in the given order of its register.
    fn check_complete(
        &self,
        history: &History,
        orders: &BTreeMap<Object, Vec<u64>>,
        findings: &mut Vec<Finding>,
    ) {
        for (at, installed) in self.installed.iter().enumerate() {
            for (&object, &value) in installed {
                let Object::Register(key) = object else {
                    continue;
                };
                let known = history.orders.contains_key(&key);
                if known && self.committed[at] && !orders[&object].contains(&value) {
                    let text = format!(
                        "T{at} is committed, and its {value} is not in the order of {object}\n{}",
                        history.describe(at)
                    );
                    findings.push(Finding {
                        anomaly: Anomaly::NoOrder,
                        text,
                    });
                }
            }
        }
    }

    /// Fills `followers`.
    fn follow(&mut self, history: &History, orders: &BTreeMap<Object, Vec<u64>>) {
        for (object, values) in orders {
            let mut before = None;
            for value in values {
                self.followers.insert((*object, before, *value));
                before = Some(*value);
            }
        }
        let mut followers = std::mem::take(&mut self.followers);
        for (at, installed) in self.installed.iter().enumerate() {
            for (&object, &value) in installed.iter().filter(|_| self.committed[at]) {
                let order = orders.get(&object);
                match (object, order) {
                    (_, Some(order)) if order.contains(&value) => {}
                    // No read has shown it, so it follows all that were read.
                    (Object::List(_), _) => {
                        let last = order.and_then(|order| order.last().copied());
                        followers.insert((object, last, value));
                    }
                    (Object::Register(_), Some(_)) => {}
                    (Object::Register(_), None) => {
                        followers.insert((object, None, value));
                        if let Some(read) = self.read_before_write(history, at, object) {
                            followers.insert((object, read.version, value));
                        }
                    }
                }
            }
        }
        self.followers = followers;
    }

    /// Returns the last read of a row before its transaction wrote it.
    fn read_before_write(&self, history: &History, reader: usize, object: Object) -> Option<Read> {
        let writes = |action: &Action| action.written().is_some_and(|(own, _)| own == object);
        let first_write = history.transactions[reader]
            .actions
            .iter()
            .position(writes)?;
        let from = self.reads.partition_point(|read| read.reader < reader);
        let own = self.reads[from..]
            .iter()
            .take_while(|read| read.reader == reader);
        let before = own.filter(|read| read.object == object && read.at < first_write);
        before.last().copied()
    }

    fn find_lost_updates(
        &self,
        history: &History,
        orders: &BTreeMap<Object, Vec<u64>>,
        findings: &mut Vec<Finding>,
    ) {
        let mut read: BTreeMap<(Object, Version), usize> = BTreeMap::new();
        for (at, installed) in self.installed.iter().enumerate() {
            for (&object, &value) in installed {
                let Some(base) = self.read_before_write(history, at, object) else {
                    continue;
                };
                let lost = match orders.get(&object) {
                    Some(order) => {
                        let place = order.iter().position(|v| *v == value);
                        let before = place.and_then(|place| place.checked_sub(1));
                        let before = before.map(|before| order[before]);
                        let other = before.filter(|_| place.is_some() && before != base.version);
                        other.and_then(|other| self.writer(object, other))
                    }
                    None => read.insert((object, base.version), at),
                };
                let Some(other) = lost.filter(|other| *other != at) else {
                    continue;
                };
                let found = base.version.map_or("nothing".into(), |v| v.to_string());
                let text = format!(
                    "T{at} read {object} = {found} and wrote {value}; T{other} wrote it in between\n{}\n{}",
                    history.describe(at),
                    history.describe(other)
                );
                let anomaly = if base.locked {
                    Anomaly::LostLockedUpdate
                } else {
                    Anomaly::LostUpdate
                };
                findings.push(Finding { anomaly, text });
            }
        }
    }
}

/// Returns every value that an action has shown.
fn values_in(action: &Action) -> Vec<(Object, u64)> {
    match action {
        Action::Read { key, found, .. } => found
            .iter()
            .map(|value| (Object::Register(*key), *value))
            .collect(),
        Action::ReadList { key, found, .. } => found
            .iter()
            .map(|value| (Object::List(*key), *value))
            .collect(),
        Action::Scan { found, .. } => found
            .iter()
            .map(|(key, value)| (Object::Register(*key), *value))
            .collect(),
        Action::Write { .. } | Action::Delete { .. } | Action::Append { .. } => Vec::new(),
    }
}
