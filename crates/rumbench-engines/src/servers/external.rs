//! External server: already running, given as an address, never started, stopped, or configured
//! here.
//!
//! The laboratory creates its tables there in a database of its own and removes them at the end. It
//! refuses a database that is not empty, because the owner of its rows is unknown. With `overwrite`
//! it first drops tables that have the names of the workload's tables. Unobservable facts are
//! reported as missing: only the listener at a Unix socket has a process id that the kernel vouches
//! for.

use rumbench_core::engine::{EngineError, External, Result, Schema};

use super::endpoint::{Address, Endpoint, Password};
use super::session::Session;
use super::sql::{CATALOG_TABLE, Dialect};
use crate::settings::Settings;

/// Running server, as given by an engine's settings.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) endpoint: Endpoint,
    overwrite: bool,
}

impl Given {
    /// Takes the settings `address`, `user`, `password_file`, `database`, and `overwrite`. Returns
    /// `None` without an address; the other settings are unknown then.
    pub(super) fn take(
        engine: &str,
        asked: &mut Settings<'_>,
        default_user: &str,
    ) -> Result<Option<Given>> {
        let Some(address) = asked.take_parsed::<Address>("address")? else {
            return Ok(None);
        };
        let text = |found: Option<String>, default: &str| found.unwrap_or(default.to_string());
        let database = text(asked.take_text("database"), "rumbench");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if database.is_empty() || !database.bytes().all(plain) {
            return Err(EngineError::Unsupported(format!(
                "database={database}: a name of letters, digits and _ is needed"
            )));
        }
        Ok(Some(Given {
            endpoint: Endpoint {
                address,
                user: text(asked.take_text("user"), default_user),
                password: asked
                    .take_text("password_file")
                    .map(|file| Password::read(engine, &file))
                    .transpose()?,
                database,
                log: None,
            },
            overwrite: asked.take("overwrite", false)?,
        }))
    }

    /// Makes room for the tables of a workload.
    ///
    /// # Errors
    /// If the database is not empty and `overwrite` is not set.
    pub(super) fn clear<S: Session>(
        &self,
        engine: &str,
        session: &mut S,
        dialect: Dialect,
        schema: Schema,
    ) -> Result<()> {
        if self.overwrite {
            return drop_tables(session, dialect, schema);
        }
        let found = session.query(match dialect {
            Dialect::Maria(_) => {
                "SELECT table_name FROM information_schema.tables WHERE table_schema = database() LIMIT 3"
            }
            Dialect::Postgres => {
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LIMIT 3"
            }
        })?;
        if found.is_empty() {
            return Ok(());
        }
        Err(EngineError::Unsupported(format!(
            "{engine}: the database {} at {} is not empty ({}); another one can be named by `--set {engine}.database=NAME`, \
             and `--set {engine}.overwrite=true` drops the tables there that this workload makes",
            self.endpoint.database,
            self.endpoint.address,
            found.concat().join(", ")
        )))
    }
}

/// Returns the table names of a workload.
pub(super) fn table_names(schema: Schema) -> Vec<&'static str> {
    match schema {
        Schema::LinkBench => vec!["nodetable", "linktable", "counttable"],
        Schema::Tables(schema) => {
            let tables = schema.tables().iter().map(|table| table.name.as_str());
            tables.chain([CATALOG_TABLE]).collect()
        }
    }
}

/// Formats names as a list of SQL strings; the names of [`table_names`] need no escapes.
pub(super) fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    names.join(", ")
}

fn drop_tables<S: Session>(session: &mut S, dialect: Dialect, schema: Schema) -> Result<()> {
    for name in table_names(schema) {
        session.query(&dialect.text(&format!("DROP TABLE IF EXISTS `{name}`")))?;
    }
    Ok(())
}

/// Tables of a trial on an external server; dropping this value removes them if possible.
pub(super) struct Made<S: Session> {
    pub(super) endpoint: Endpoint,
    pub(super) connect: fn(&Endpoint) -> Result<S>,
    pub(super) dialect: Dialect,
    pub(super) schema: Schema,
}

impl<S: Session> Made<S> {
    /// Removes the tables. Missing tables are no error.
    ///
    /// # Errors
    /// If the server refuses or is gone.
    pub(super) fn remove(&self) -> Result<()> {
        let mut session = (self.connect)(&self.endpoint)?;
        drop_tables(&mut session, self.dialect, self.schema)
    }
}

impl<S: Session> Drop for Made<S> {
    fn drop(&mut self) {
        // A failed trial has already reported its error. The next trial refuses tables left here
        // and names the setting that removes them.
        let _ = self.remove();
    }
}

/// Returns the observable facts about the server process at `listener`.
pub(super) fn processes(address: &Address, listener: Option<u32>) -> External {
    // A process that listens but is not visible is in another container.
    let process = listener.filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists());
    let why = match address {
        Address::Network(_) => "it is reached over the network",
        Address::Socket(_) => "its process is not visible from here",
    };
    // A server's working directory is its data folder; the kernel reports its path as seen from
    // here.
    let folder = |pid| std::fs::read_link(format!("/proc/{pid}/cwd")).ok();
    External {
        process,
        unseen: process.is_none().then(|| why.to_string()),
        data: process.and_then(folder).filter(|folder| folder.is_dir()),
    }
}

/// Refuses a durability class that the server does not run at, because every number would be
/// labeled wrongly. `given` is the external server, if any. For a server started here, the user's
/// own lines may have changed the setting.
pub(super) fn check_class(
    engine: &str,
    given: Option<&Given>,
    setting: &str,
    found: &str,
    asked: &str,
) -> Result<()> {
    if found == asked {
        return Ok(());
    }
    let (whose, or) = match given {
        Some(given) => {
            let address = &given.endpoint.address;
            (format!("the server at {address} runs"), "change the server")
        }
        None => (
            "with its options_file the server runs".to_string(),
            "take the line out of the file",
        ),
    };
    Err(EngineError::Unsupported(format!(
        "{engine}: {whose} with {setting}={found}, and this durability class needs {asked}; choose the class that it runs at \
         by --durability, or {or}"
    )))
}
