//! Finds the shortest cycle of each kind in each strongly connected component.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::anomaly::{Anomaly, Finding};
use super::dependencies::{Edge, Graph, Kind};
use super::history::History;

/// Pattern of a cycle: its first edge, then the others.
struct Shape {
    anomaly: Anomaly,
    /// Returns whether the first edge may be of this kind.
    first: fn(Kind) -> bool,
    /// Returns whether another edge may be of this kind.
    others: fn(Kind) -> bool,
    /// True if the others must include a read-write edge.
    another: bool,
    /// True if no two read-write edges may be adjacent.
    apart: bool,
}

/// From most to least severe.
const SHAPES: [Shape; 6] = [
    Shape {
        anomaly: Anomaly::G0,
        first: |kind| kind == Kind::WriteWrite,
        others: |kind| matches!(kind, Kind::WriteWrite | Kind::RealTime),
        another: false,
        apart: false,
    },
    Shape {
        anomaly: Anomaly::G1c,
        first: |kind| kind == Kind::WriteRead,
        others: |kind| !kind.is_read_write(),
        another: false,
        apart: false,
    },
    Shape {
        anomaly: Anomaly::GSingle,
        first: Kind::is_read_write,
        others: |kind| !kind.is_read_write(),
        another: false,
        apart: false,
    },
    Shape {
        anomaly: Anomaly::GNonadjacent,
        first: Kind::is_read_write,
        others: |_| true,
        another: true,
        apart: true,
    },
    Shape {
        anomaly: Anomaly::G2Item,
        first: |kind| kind == Kind::ReadWrite,
        others: |kind| kind != Kind::RangeReadWrite,
        another: true,
        apart: false,
    },
    Shape {
        anomaly: Anomaly::G2,
        first: |kind| kind == Kind::RangeReadWrite,
        others: |_| true,
        another: true,
        apart: false,
    },
];

/// Returns a shortest cycle of each shape in each component.
pub(super) fn find(history: &History, graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for component in graph.components() {
        for shape in &SHAPES {
            let starts = component.iter().flat_map(|node| &graph.edges[*node]);
            let starts = starts.filter(|edge| (shape.first)(edge.kind));
            let cycles = starts.filter_map(|edge| shape.close(graph, &component, edge));
            // A cycle that fits a more severe shape is reported under that name only.
            let own = cycles.filter(|cycle| shape.is_own(cycle));
            if let Some(cycle) = own.min_by_key(Vec::len) {
                findings.push(tell(history, shape.anomaly, &cycle));
            }
        }
    }
    findings
}

/// State of a search: the transaction, whether the last edge was read-write, and whether any edge
/// after the first was.
type Place = (usize, bool, bool);

impl Shape {
    /// Returns the shortest cycle that starts with `first`; `None` if there is none or it visits a
    /// transaction twice.
    fn close(&self, graph: &Graph, component: &BTreeSet<usize>, first: &Edge) -> Option<Vec<Edge>> {
        let start: Place = (first.to, first.kind.is_read_write(), false);
        let mut came_by: BTreeMap<Place, (Place, Edge)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(place) = queue.pop_front() {
            let (node, last, any) = place;
            let allowed = |edge: &&Edge| {
                let meets = edge.kind.is_read_write() && last;
                component.contains(&edge.to) && (self.others)(edge.kind) && !(self.apart && meets)
            };
            for edge in graph.edges[node].iter().filter(allowed) {
                let is_read_write = edge.kind.is_read_write();
                let next = (edge.to, is_read_write, any || is_read_write);
                if next == start || came_by.contains_key(&next) {
                    continue;
                }
                came_by.insert(next, (place, *edge));
                if edge.to == first.from {
                    let ends = (next.2 || !self.another) && !(self.apart && is_read_write);
                    if ends {
                        return simple(first, start, next, &came_by);
                    }
                }
                queue.push_back(next);
            }
        }
        None
    }

    /// Returns whether no more severe shape fits.
    fn is_own(&self, cycle: &[Edge]) -> bool {
        if !self.another || self.apart {
            return true;
        }
        let read_write = |at: usize| cycle[at % cycle.len()].kind.is_read_write();
        (0..cycle.len()).any(|at| read_write(at) && read_write(at + 1))
    }
}

fn simple(
    first: &Edge,
    start: Place,
    end: Place,
    came_by: &BTreeMap<Place, (Place, Edge)>,
) -> Option<Vec<Edge>> {
    let mut edges = Vec::new();
    let mut place = end;
    while place != start {
        let (before, edge) = came_by[&place];
        edges.push(edge);
        place = before;
    }
    edges.push(*first);
    edges.reverse();
    let visited: BTreeSet<usize> = edges.iter().map(|edge| edge.from).collect();
    (visited.len() == edges.len()).then_some(edges)
}

fn tell(history: &History, anomaly: Anomaly, cycle: &[Edge]) -> Finding {
    let mut text = String::new();
    for edge in cycle {
        text += &format!("T{} -> ", edge.from);
    }
    text += &format!("T{}", cycle[0].from);
    for edge in cycle {
        text += &format!("\n  {edge}");
    }
    for edge in cycle {
        text += &format!("\n{}", history.describe(edge.from));
    }
    Finding { anomaly, text }
}
