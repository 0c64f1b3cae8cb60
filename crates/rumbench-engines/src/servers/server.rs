//! Running server, as the stores of workloads see it.

use rumbench_core::engine::Result;

use super::session::Session;
use super::sql::Dialect;

/// Running server with the tables of one workload.
pub(super) trait Server: Send + Sync + 'static {
    /// Connection to this server.
    type Session: Session + 'static;

    /// Opens a new connection.
    fn connect(&self) -> Result<Self::Session>;

    /// Returns the server's SQL dialect.
    fn dialect(&self) -> Dialect;

    /// Collects statistics on a table, so that the planner knows the distribution of its values.
    fn analyze(&self, session: &mut Self::Session, table: &str) -> Result<()>;

    /// Runs the maintenance of the published runs after a load of LinkBench's `table`; at least
    /// [`Server::analyze`].
    fn tidy(&self, session: &mut Self::Session, table: &str) -> Result<()> {
        self.analyze(session, table)
    }
}
