//! Graph of dependencies between committed transactions, and its strongly connected components.

use std::collections::BTreeSet;
use std::fmt;

use super::history::{History, Object};
use super::versions::{Version, Versions};

/// Reason that one transaction must come before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// The second replaced a version of the first.
    WriteWrite,
    /// The second read a version of the first.
    WriteRead,
    /// The second replaced a version that the first had read.
    ReadWrite,
    /// The second wrote a row into a range in which the first had not found it.
    RangeReadWrite,
    /// The first had ended before the second began.
    RealTime,
}

impl Kind {
    /// Returns whether the first transaction read and the second wrote.
    pub fn is_read_write(self) -> bool {
        matches!(self, Kind::ReadWrite | Kind::RangeReadWrite)
    }
}

/// A dependency: `from` must come before `to`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub from: usize,
    pub to: usize,
    pub kind: Kind,
    /// The row, the version that `to` replaced, if any, and the one that `to` read or wrote; `None`
    /// for real time.
    about: Option<(Object, Version, Version)>,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edge { from, to, kind, .. } = self;
        let Some((object, before, after)) = self.about else {
            return write!(f, "T{from} had ended before T{to} began (real time)");
        };
        let name = |version: Version| version.map_or("nothing".into(), |v| v.to_string());
        let (before, after) = (name(before), name(after));
        match kind {
            Kind::WriteWrite => write!(
                f,
                "T{from} wrote {object} = {before}, T{to} replaced it by {after} (write-write)"
            ),
            Kind::WriteRead => write!(
                f,
                "T{from} wrote {object} = {after}, T{to} read it (write-read)"
            ),
            Kind::ReadWrite => write!(
                f,
                "T{from} read {object} = {before}, T{to} replaced it by {after} (read-write)"
            ),
            _ => write!(
                f,
                "T{from} did not find {object} in a range, T{to} wrote {after} there (read-write)"
            ),
        }
    }
}

/// Graph of dependencies.
pub(super) struct Graph {
    /// Edges out of each transaction, at most one of each kind to each other transaction.
    pub edges: Vec<Vec<Edge>>,
    seen: BTreeSet<(usize, usize, Kind)>,
}

impl Graph {
    pub fn of(history: &History, versions: &Versions) -> Graph {
        let mut graph = Graph {
            edges: vec![Vec::new(); history.transactions.len()],
            seen: BTreeSet::new(),
        };
        for (object, before, after) in &versions.followers {
            let old = before.and_then(|value| versions.writer(*object, value));
            let new = versions.writer(*object, *after);
            let about = Some((*object, *before, Some(*after)));
            graph.add(versions, old, new, Kind::WriteWrite, about);
        }
        for read in &versions.reads {
            let Some(value) = read.version else {
                continue;
            };
            let about = Some((read.object, None, read.version));
            let writer = versions.writer(read.object, value);
            graph.add(versions, writer, Some(read.reader), Kind::WriteRead, about);
        }
        for read in &versions.reads {
            let from = (read.object, read.version, 0);
            let followers = versions.followers.range(from..);
            let same = followers.take_while(|(o, v, _)| (*o, *v) == (read.object, read.version));
            for (object, before, after) in same {
                let kind = if read.by_range {
                    Kind::RangeReadWrite
                } else {
                    Kind::ReadWrite
                };
                let about = Some((*object, *before, Some(*after)));
                let writer = versions.writer(*object, *after);
                graph.add(versions, Some(read.reader), writer, kind, about);
            }
        }
        graph.add_real_time(history, versions);
        graph
    }

    fn add(
        &mut self,
        versions: &Versions,
        from: Option<usize>,
        to: Option<usize>,
        kind: Kind,
        about: Option<(Object, Version, Version)>,
    ) {
        let (Some(from), Some(to)) = (from, to) else {
            return;
        };
        let both = versions.committed[from] && versions.committed[to];
        if both && from != to && self.seen.insert((from, to, kind)) {
            self.edges[from].push(Edge {
                from,
                to,
                kind,
                about,
            });
        }
    }

    /// Adds those real-time dependencies that do not follow from others.
    fn add_real_time(&mut self, history: &History, versions: &Versions) {
        let timed: Vec<(usize, u64, u64)> = history
            .transactions
            .iter()
            .enumerate()
            .filter(|(at, _)| versions.committed[*at])
            .filter_map(|(at, t)| t.time.map(|(begin, end)| (at, begin, end)))
            .collect();
        for (to, begin, _) in &timed {
            let earlier = || timed.iter().filter(|(_, _, end)| end < begin);
            let latest = earlier().map(|(_, begin, _)| *begin).max();
            for (from, _, end) in earlier() {
                if latest.is_some_and(|latest| *end >= latest) {
                    self.add(versions, Some(*from), Some(*to), Kind::RealTime, None);
                }
            }
        }
    }

    /// Returns the components with more than one transaction (Tarjan), without recursion.
    pub fn components(&self) -> Vec<BTreeSet<usize>> {
        let mut search = Search {
            graph: self,
            index: vec![None; self.edges.len()],
            low: vec![0; self.edges.len()],
            stack: Vec::new(),
            on_stack: vec![false; self.edges.len()],
            next: 0,
            found: Vec::new(),
        };
        for root in 0..self.edges.len() {
            if search.index[root].is_none() {
                search.from(root);
            }
        }
        search.found
    }
}

struct Search<'a> {
    graph: &'a Graph,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    on_stack: Vec<bool>,
    next: usize,
    found: Vec<BTreeSet<usize>>,
}

impl Search<'_> {
    fn enter(&mut self, node: usize) {
        self.index[node] = Some(self.next);
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
    }

    fn from(&mut self, root: usize) {
        // Each node with the number of its edges followed so far.
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((node, followed)) = path.last_mut() {
            let node = *node;
            if let Some(edge) = self.graph.edges[node].get(*followed) {
                *followed += 1;
                match self.index[edge.to] {
                    None => {
                        self.enter(edge.to);
                        path.push((edge.to, 0));
                    }
                    Some(index) if self.on_stack[edge.to] => {
                        self.low[node] = self.low[node].min(index);
                    }
                    Some(_) => {}
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                self.low[*parent] = self.low[*parent].min(self.low[node]);
            }
            if Some(self.low[node]) == self.index[node] {
                self.take_component(node);
            }
        }
    }

    fn take_component(&mut self, root: usize) {
        let at = self.stack.iter().rposition(|node| *node == root);
        let members = self.stack.split_off(at.expect("a root is on the stack"));
        members.iter().for_each(|node| self.on_stack[*node] = false);
        if members.len() > 1 {
            self.found.push(members.into_iter().collect());
        }
    }
}
