//! Requests of a client: the ten operations with their arguments, and the answers.

use std::fmt;

use super::config::OPERATIONS;
use super::store::{Link, LinkKey, ListQuery, ListResult, Node, WriteOutcome};

/// The ten operations, in the order in which the mix is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)] // Their names are LinkBench's.
pub enum Operation {
    AddLink,
    DeleteLink,
    UpdateLink,
    CountLink,
    MultigetLink,
    GetLinksList,
    AddNode,
    UpdateNode,
    DeleteNode,
    GetNode,
}

impl Operation {
    /// All operations, by index.
    pub const ALL: [Operation; OPERATIONS] = [
        Operation::AddLink,
        Operation::DeleteLink,
        Operation::UpdateLink,
        Operation::CountLink,
        Operation::MultigetLink,
        Operation::GetLinksList,
        Operation::AddNode,
        Operation::UpdateNode,
        Operation::DeleteNode,
        Operation::GetNode,
    ];
}

/// One request. The stream owns its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Insert this link; if it exists, rewrite it.
    AddLink(Link<'a>),
    /// Hide this link, at this time in milliseconds.
    DeleteLink(LinkKey, u64),
    /// Rewrite this link; if it is missing, insert it.
    UpdateLink(Link<'a>),
    /// Read the count of source and type.
    CountLinks(u64, u64),
    /// Read the links from a source of a type to these distinct destinations.
    MultigetLinks(u64, u64, &'a [u64]),
    /// Read a list.
    ListLinks(ListQuery),
    /// Insert a node; the database chooses the id.
    AddNode(Node<'a>),
    /// Rewrite a node.
    UpdateNode(Node<'a>),
    /// Remove a node.
    DeleteNode(u64),
    /// Read a node.
    GetNode(u64),
}

/// Answer of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Answer to a link write.
    Link(WriteOutcome),
    /// Answer to a list query.
    List(ListResult),
    /// Answer to any other request.
    Other,
}

impl fmt::Display for Request<'_> {
    /// Formats one line for golden files; payloads appear as length and first bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = |data: &[u8]| {
            let head: String = data
                .iter()
                .take(6)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("{}:{head}", data.len())
        };
        let link = |f: &mut fmt::Formatter<'_>, name: &str, link: &Link<'_>| {
            let LinkKey {
                id1,
                link_type,
                id2,
            } = link.key;
            write!(
                f,
                "{name} {id1} {link_type} {id2} {} {}",
                link.time,
                head(link.data)
            )
        };
        match self {
            Request::AddLink(row) => link(f, "ADD_LINK", row),
            Request::DeleteLink(key, time) => {
                write!(
                    f,
                    "DELETE_LINK {} {} {} {time}",
                    key.id1, key.link_type, key.id2
                )
            }
            Request::UpdateLink(row) => link(f, "UPDATE_LINK", row),
            Request::CountLinks(id1, link_type) => write!(f, "COUNT_LINK {id1} {link_type}"),
            Request::MultigetLinks(id1, link_type, id2s) => {
                write!(f, "MULTIGET_LINK {id1} {link_type} {id2s:?}")
            }
            Request::ListLinks(q) => write!(
                f,
                "GET_LINKS_LIST {} {} {}..{} offset {} limit {}",
                q.id1, q.link_type, q.time_min, q.time_max, q.offset, q.limit
            ),
            Request::AddNode(node) => write!(f, "ADD_NODE {} {}", node.time, head(node.data)),
            Request::UpdateNode(node) => {
                write!(
                    f,
                    "UPDATE_NODE {} {} {}",
                    node.id,
                    node.time,
                    head(node.data)
                )
            }
            Request::DeleteNode(id) => write!(f, "DELETE_NODE {id}"),
            Request::GetNode(id) => write!(f, "GET_NODE {id}"),
        }
    }
}
