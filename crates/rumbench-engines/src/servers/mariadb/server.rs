//! Running MariaDB.

use rumbench_core::engine::{EngineError, Result};

use super::storage::Storage;
use super::wire::MariaSession;
use crate::servers::engine::Running;
use crate::servers::server::Server;
use crate::servers::session::Session;
use crate::servers::sql::Dialect;

/// Running MariaDB with the tables in one of its storage engines.
pub(super) struct MariaDb {
    pub(super) running: Running<MariaSession>,
    pub(super) storage: Storage,
    pub(super) dialect: Dialect,
    /// True if each client's connection is one bulk load.
    pub(super) bulk_load: bool,
}

impl Server for MariaDb {
    type Session = MariaSession;

    fn connect(&self) -> Result<MariaSession> {
        let mut session = MariaSession::connect(&self.running.endpoint)?;
        if self.running.external.is_some() {
            // Set for this connection only; a private server is configured so.
            session.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        }
        if self.bulk_load {
            session.begin_bulk_load()?;
        }
        Ok(session)
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn analyze(&self, session: &mut MariaSession, table: &str) -> Result<()> {
        // A failure is reported in a row: table, operation, kind of message, message.
        let answer = session.query(&format!("ANALYZE TABLE `{table}`"))?;
        let failure = answer.iter().find(|row| {
            let kind = row.get(2).map(String::as_str);
            matches!(kind, Some("Error" | "error"))
        });
        match failure {
            None => Ok(()),
            Some(row) => Err(EngineError::Wrong(format!(
                "mariadb cannot analyze {}",
                row.join(" ")
            ))),
        }
    }
}
