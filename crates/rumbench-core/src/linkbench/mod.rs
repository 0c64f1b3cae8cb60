//! LinkBench: a social graph's nodes, links and counts, and ten operations on them.

mod store;

pub use store::{
    Count, Link, LinkConnection, LinkKey, LinkStore, ListQuery, ListResult, Node, TableTotals,
    WriteOutcome,
};
