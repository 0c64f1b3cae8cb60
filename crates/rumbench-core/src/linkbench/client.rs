//! Client of the request phases: performs the requests of its stream on a connection of its own.

use std::sync::{Arc, Mutex, PoisonError};

use super::graph::NODE_TYPE;
use super::request::{Answer, Request};
use super::store::{LinkConnection, WriteOutcome};
use super::stream::RequestStream;
use super::workload::Hooks;
use crate::error::EngineError;
use crate::retry::retried_with;
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of the request phases, indexed by [`super::request::Operation`].
pub const REQUEST_OPERATIONS: &[&str] = &[
    "ADD_LINK",
    "DELETE_LINK",
    "UPDATE_LINK",
    "COUNT_LINK",
    "MULTIGET_LINK",
    "GET_LINKS_LIST",
    "ADD_NODE",
    "UPDATE_NODE",
    "DELETE_NODE",
    "GET_NODE",
];

/// Changes to the tables by the writes of all clients, according to the store's answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) nodes_added: u64,
    pub(super) nodes_deleted: u64,
    pub(super) links_inserted: u64,
    pub(super) links_revived: u64,
    pub(super) links_hidden: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.nodes_added += other.nodes_added;
        self.nodes_deleted += other.nodes_deleted;
        self.links_inserted += other.links_inserted;
        self.links_revived += other.links_revived;
        self.links_hidden += other.links_hidden;
    }
}

/// Streams between phases; the clients of the next phase continue them.
#[derive(Debug, Default)]
pub(super) struct StreamRest {
    streams: Vec<Option<RequestStream>>,
    pub(super) tally: Tally,
}

impl StreamRest {
    pub(super) fn new(streams: Vec<RequestStream>) -> StreamRest {
        StreamRest {
            streams: streams.into_iter().map(Some).collect(),
            tally: Tally::default(),
        }
    }

    /// Takes the stream of one client; `None` while a client has it.
    pub(super) fn take(&mut self, client: usize) -> Option<RequestStream> {
        self.streams.get_mut(client).and_then(Option::take)
    }

    /// Returns the links that the clients of mode stationary keep hidden; `None` while a client
    /// still has its stream.
    pub(super) fn hidden_links(&self) -> Option<u64> {
        let counts = self
            .streams
            .iter()
            .map(|stream| Some(stream.as_ref()?.hidden_links() as u64));
        counts.sum()
    }
}

/// One client of a request phase. Dropping it returns its stream and its tally to [`StreamRest`].
pub(super) struct Requester {
    client: usize,
    stream: Option<RequestStream>,
    connection: Box<dyn LinkConnection>,
    hooks: Hooks,
    /// True if the store keeps rows, so that its answers can be checked.
    judges: bool,
    /// True if updates take the path of adds: classic rules in mode faithful (D5).
    updates_are_adds: bool,
    tally: Tally,
    rest: Arc<Mutex<StreamRest>>,
}

impl Requester {
    pub(super) fn new(
        client: usize,
        stream: RequestStream,
        connection: Box<dyn LinkConnection>,
        hooks: Hooks,
        options: RequesterOptions,
        rest: Arc<Mutex<StreamRest>>,
    ) -> Requester {
        Requester {
            client,
            stream: Some(stream),
            connection,
            hooks,
            judges: options.judges,
            updates_are_adds: options.updates_are_adds,
            tally: Tally::default(),
            rest,
        }
    }

    fn count_outcome(&mut self, outcome: WriteOutcome, deletes: bool) -> u64 {
        match outcome {
            WriteOutcome::Inserted => self.tally.links_inserted += 1,
            WriteOutcome::Revived => self.tally.links_revived += 1,
            WriteOutcome::Changed if deletes => self.tally.links_hidden += 1,
            WriteOutcome::Changed => {}
            WriteOutcome::Nothing => return 0,
        }
        1
    }
}

/// Options of a [`Requester`]; its fields of the same names explain them.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequesterOptions {
    pub(super) judges: bool,
    pub(super) updates_are_adds: bool,
}

impl PhaseClient for Requester {
    fn prepare(&mut self) -> Option<OpIndex> {
        self.stream
            .as_mut()
            .map(|stream| stream.advance() as OpIndex)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let Some(stream) = &self.stream else {
            return Ok(Done::default());
        };
        let request = stream.request();
        let connection = &mut *self.connection;
        let updates_are_adds = self.updates_are_adds;
        let (performed, retries) = retried_with(self.hooks.backoff, || {
            perform(connection, &request, updates_are_adds)
        })?;
        let deletes = matches!(request, Request::DeleteLink(..));
        match request {
            Request::AddNode(_) => self.tally.nodes_added += 1,
            Request::DeleteNode(_) => self.tally.nodes_deleted += performed.rows,
            _ => {}
        }
        if self.judges && performed.rows > most_rows(&request) {
            return Err(EngineError::Wrong(format!(
                "{} rows for: {request}",
                performed.rows
            )));
        }
        let rows = match performed.answer {
            Answer::Link(outcome) => self.count_outcome(outcome, deletes),
            _ => performed.rows,
        };
        if let Some(stream) = &mut self.stream {
            let judged = stream.answered(performed.answer);
            if let (Err(expected), true) = (judged, self.judges) {
                let request = stream.request();
                return Err(EngineError::Wrong(format!(
                    "{:?} where it must {expected}: {request}",
                    performed.answer
                )));
            }
        }
        Ok(Done {
            rows,
            retries,
            ..Done::default()
        })
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        // `StreamRest` is plain data, and no panic can leave it half changed.
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        rest.tally.add(&self.tally);
        if let Some(place) = rest.streams.get_mut(self.client) {
            *place = self.stream.take();
        }
    }
}

/// Rows and answer of one request.
#[derive(Debug, Clone, Copy)]
struct Performed {
    rows: u64,
    answer: Answer,
}

fn perform(
    connection: &mut dyn LinkConnection,
    request: &Request<'_>,
    updates_are_adds: bool,
) -> Result<Performed, EngineError> {
    let rows = match *request {
        Request::AddLink(link) => return written(connection.add_link(&link)),
        Request::UpdateLink(link) if updates_are_adds => {
            return written(connection.add_link(&link));
        }
        Request::UpdateLink(link) => return written(connection.update_link(&link)),
        Request::DeleteLink(key, time) => return written(connection.delete_link(key, time, false)),
        Request::CountLinks(id1, link_type) => {
            connection.count_links(id1, link_type)?;
            1
        }
        Request::MultigetLinks(id1, link_type, id2s) => {
            connection.multiget_links(id1, link_type, id2s)?
        }
        Request::ListLinks(query) => {
            let result = connection.list_links(&query)?;
            return Ok(Performed {
                rows: result.rows,
                answer: Answer::List(result),
            });
        }
        Request::AddNode(node) => {
            connection.add_node(&node)?;
            1
        }
        Request::UpdateNode(node) => u64::from(connection.update_node(&node)?),
        Request::DeleteNode(id) => u64::from(connection.delete_node(id, NODE_TYPE)?),
        Request::GetNode(id) => u64::from(connection.get_node(id, NODE_TYPE)?),
    };
    Ok(Performed {
        rows,
        answer: Answer::Other,
    })
}

fn written(outcome: Result<WriteOutcome, EngineError>) -> Result<Performed, EngineError> {
    outcome.map(|outcome| Performed {
        rows: 1,
        answer: Answer::Link(outcome),
    })
}

/// Returns the most rows of a right answer.
fn most_rows(request: &Request<'_>) -> u64 {
    match request {
        Request::MultigetLinks(_, _, id2s) => id2s.len() as u64,
        Request::ListLinks(query) => query.limit as u64,
        _ => 1,
    }
}
