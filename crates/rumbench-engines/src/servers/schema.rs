//! Tables of a workload on a server.

use rumbench_core::engine::{EngineError, OpenConfig, Result, Schema};

use super::link_sql;
use super::session::Session;
use super::sql::{self, Dialect};

/// Creates the tables of a workload if they do not exist.
pub(super) fn create_tables<S: Session>(
    session: &mut S,
    dialect: Dialect,
    schema: Schema,
) -> Result<()> {
    let tables = match schema {
        Schema::LinkBench => link_sql::create_tables(dialect),
        Schema::Tables(schema) => {
            if schema.is_key_value() {
                return Err(no_key_value());
            }
            session.query(sql::CREATE_CATALOG)?;
            match session
                .query(sql::READ_CATALOG)?
                .first()
                .and_then(|row| row.first())
            {
                Some(found) => schema.compare(found)?,
                None => drop(session.query(&sql::write_catalog(&schema.describe()))?),
            }
            sql::create_tables(dialect, schema)
        }
    };
    tables
        .iter()
        .try_for_each(|text| session.query(text).map(drop))
}

/// Refuses a workload without an SQL form.
pub(super) fn check_schema(config: &OpenConfig) -> Result<()> {
    match config.schema {
        Schema::Tables(schema) if schema.is_key_value() => Err(no_key_value()),
        Schema::LinkBench | Schema::Tables(_) => Ok(()),
    }
}

pub(super) fn no_key_value() -> EngineError {
    EngineError::Unsupported(
        "kv-sequence is not for servers: it asks for keys and values, which a server has no form of".to_string(),
    )
}
