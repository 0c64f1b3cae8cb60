//! A primary and a replica of one product, each a private server, for the laboratory of failovers.
//!
//! [`Product`] makes the data that both begin with, and starts a server on a copy of it as the
//! primary or as a replica. A [`Mode`] is what the product's own configuration calls a protection,
//! with what its documentation promises. Clients reach a server by a Unix socket; only replication
//! uses the network, on the loopback address, as a user with a random password.

use std::path::Path;

use rumbench_core::engine::Result;

/// Table that writers fill: writer and number of the commit.
pub const TABLE: &str = "commits";

/// Promise of a product about a failure of the primary alone, with the replica promoted by the
/// documented steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// A commit that was acknowledged to its client may be lost.
    pub acknowledged_may_be_lost: bool,
    /// A commit that another session saw on the primary may be lost.
    pub seen_may_be_lost: bool,
}

impl Promise {
    /// Commits are not protected.
    pub const NOTHING: Promise = Promise {
        acknowledged_may_be_lost: true,
        seen_may_be_lost: true,
    };
    /// Acknowledged commits are kept.
    pub const ACKNOWLEDGED: Promise = Promise {
        acknowledged_may_be_lost: false,
        seen_may_be_lost: true,
    };
    /// Acknowledged commits and those that were seen are kept.
    pub const ALL: Promise = Promise {
        acknowledged_may_be_lost: false,
        seen_may_be_lost: false,
    };
}

/// A product's protection against the loss of the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// Name on the command line.
    pub name: &'static str,
    /// Promise of the documentation.
    pub promise: Promise,
}

/// Part of a server in replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Replicates from this port of the loopback address.
    Replica(u16),
}

/// State of the protection, as the primary tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// Every commit so far was protected as the mode asks, and the next one will be.
    pub is_active: bool,
    /// The server's own words.
    pub words: String,
}

/// Database product with a primary and a replica.
pub trait Product: Send + Sync {
    /// Name of the engine, as in the registry.
    fn name(&self) -> &'static str;

    /// Protections that it has, the weakest first.
    fn modes(&self) -> &'static [Mode];

    /// Makes the data that every server begins with, in an empty folder: the table and the users.
    ///
    /// # Errors
    /// If the product is missing, or a server does not start.
    fn prepare(&self, template: &Path) -> Result<()>;

    /// Starts a server in the folder `dir`, which has a copy of the template.
    ///
    /// # Errors
    /// If it does not start; with the end of its log.
    fn start(&self, dir: &Path, role: Role, mode: &Mode) -> Result<Box<dyn Node>>;
}

/// Running server.
pub trait Node: Send + Sync {
    /// Port for replicas, on the loopback address.
    fn port(&self) -> u16;

    /// Version of the server, and of the storage engine if it has one of its own.
    ///
    /// # Errors
    /// If the server does not answer.
    fn version(&self) -> Result<String>;

    /// Opens a connection for a client.
    ///
    /// # Errors
    /// If the server does not answer.
    fn connect(&self) -> Result<Box<dyn Client>>;

    /// Reads on the primary if it protects its commits.
    ///
    /// # Errors
    /// If the server does not answer.
    fn protection(&self) -> Result<Protection>;

    /// Waits until the replica has applied all that it has received. Returns false if the product
    /// does this within its promotion.
    ///
    /// # Errors
    /// If it does not within a minute.
    fn drain(&self) -> Result<bool>;

    /// Makes the replica a primary by the documented steps; [`Node::drain`] comes before it.
    ///
    /// # Errors
    /// If it refuses or takes longer than a minute.
    fn promote(&self) -> Result<()>;

    /// Ends all processes of the server at once, as a loss of power does.
    fn lose_power(&mut self);
}

/// Connection of a client.
pub trait Client: Send {
    /// Runs statements; returns the rows of the last as text, an empty one for NULL.
    ///
    /// # Errors
    /// If the server refuses a statement, or the connection breaks: the outcome is unknown then.
    fn execute(&mut self, text: &str) -> Result<Vec<Vec<String>>>;
}
