//! Who wrote which version, which follows which, who read which; and what is wrong without any graph.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Action, History, Object, Outcome, Transaction};
use super::{Anomaly, Finding};

/// A version of a row; `None`: before anybody wrote it.
pub(super) type Version = Option<u64>;

/// A committed transaction's read of another's version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub reader: usize,
    pub object: Object,
    pub version: Version,
    /// Only its range was read, and the row was not there.
    pub by_range: bool,
    /// Behind how many other actions of its transaction.
    at: usize,
    locked: bool,
}

/// See the module.
pub(super) struct Versions {
    /// Whether each transaction counts as committed.
    pub committed: Vec<bool>,
    /// Who wrote each value.
    writers: BTreeMap<(Object, u64), usize>,
    /// Pairs of versions of which the second follows the first.
    pub followers: BTreeSet<(Object, Version, u64)>,
    /// What committed transactions read of others, by reader.
    pub reads: Vec<Read>,
    /// The last value that each transaction gave to each row: what its commit installed.
    installed: Vec<BTreeMap<Object, u64>>,
    /// All registers that anybody wrote.
    registers: BTreeSet<u32>,
    /// Those that anybody deleted: what was absent is ambiguous there.
    deleted: BTreeSet<Object>,
}

/// The shorter list must begin the longer one.
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

    /// The transaction that wrote a version.
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

    /// Notes what a transaction read of others, and judges each read by itself.
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

    /// The rows that an action has shown, present or absent: for absent ones, whether only by their range.
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

    /// What is wrong with having read this value, at the place `at` in its transaction.
    fn wrong_read(
        &self,
        history: &History,
        reader: usize,
        object: Object,
        value: u64,
        at: usize,
    ) -> Option<(Anomaly, String)> {
        let Some(writer) = self.writer(object, value) else {
            let text = format!("T{reader} read {value} in {object}, which nobody wrote");
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
            // An element that stands before the last one of the same transaction.
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

    /// The version that a read has shown, if there is only one that it can be.
    fn version(&self, object: Object, found: Option<u64>) -> Option<Version> {
        let Some(value) = found else {
            return (!self.deleted.contains(&object)).then_some(None);
        };
        let writer = self.writer(object, value)?;
        let installed = self.installed[writer].get(&object) == Some(&value);
        (self.committed[writer] && installed).then_some(Some(value))
    }

    /// The versions of each row of which the order is known.
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
            // Of several elements of one transaction the last is the version.
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

    /// A list as its reader found it, without what it appended itself and then took back.
    fn without_own<'a>(&self, reader: usize, object: Object, found: &'a [u64]) -> &'a [u64] {
        let own = |element: &u64| self.writer(object, *element) == Some(reader);
        match found.iter().position(own) {
            Some(first) if !self.committed[reader] => &found[..first],
            _ => found,
        }
    }

    /// Every commit must be in an order that was said to be known.
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
                    // Nobody has read it, so it stands behind all that was read.
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

    /// The last read of a row before its transaction wrote it.
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
                let anomaly = match base.locked {
                    true => Anomaly::LostLockedUpdate,
                    false => Anomaly::LostUpdate,
                };
                findings.push(Finding { anomaly, text });
            }
        }
    }
}

/// Every value that an action has shown.
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
