//! PostgreSQL's counters, for all releases since version 15.

use rumbench_core::engine::Counter;

use super::wire::PostgresSession;
use crate::servers::counters::counters;
use crate::servers::session::Session;

/// Query for names and values as text. The checkpoint views changed their names in version 17 and
/// are separate.
const COUNTERS: &str =
    "SELECT c.name, c.value::text FROM pg_stat_database d, pg_stat_wal w, LATERAL (VALUES
    ('wal_bytes', w.wal_bytes), ('wal_records', w.wal_records), ('wal_full_pages', w.wal_fpi),
    ('blocks_read', d.blks_read), ('blocks_hit', d.blks_hit), ('deadlocks', d.deadlocks),
    ('temporary_bytes', d.temp_bytes)) AS c(name, value) WHERE d.datname = current_database()
UNION ALL SELECT 'index_rows_read', coalesce(sum(idx_tup_read), 0)::text FROM pg_stat_user_indexes
UNION ALL SELECT 'dead_rows', coalesce(sum(n_dead_tup), 0)::text FROM pg_stat_user_tables
UNION ALL SELECT 'autovacuums', coalesce(sum(autovacuum_count), 0)::text FROM pg_stat_user_tables";
/// Query for all background writer counters; up to version 16 they include those of checkpoints.
const BACKGROUND: &str =
    "SELECT key, value FROM pg_stat_bgwriter b, LATERAL jsonb_each_text(to_jsonb(b))";
/// Query for the checkpoint counters since version 17.
const CHECKPOINTER: &str =
    "SELECT key, value FROM pg_stat_checkpointer b, LATERAL jsonb_each_text(to_jsonb(b))";
/// PostgreSQL's names, those up to version 16 first, and ours.
const CHECKPOINTS: &[(&str, &str)] = &[
    ("checkpoints_timed", "checkpoints_timed"),
    ("checkpoints_req", "checkpoints_requested"),
    ("buffers_checkpoint", "checkpoint_pages"),
    ("num_timed", "checkpoints_timed"),
    ("num_requested", "checkpoints_requested"),
    ("buffers_written", "checkpoint_pages"),
    ("buffers_clean", "background_writer_pages"),
    ("buffers_backend", "client_written_pages"),
];
const COUNTER_NAMES: [&str; 10] = [
    "wal_bytes",
    "wal_records",
    "wal_full_pages",
    "blocks_read",
    "blocks_hit",
    "deadlocks",
    "temporary_bytes",
    "index_rows_read",
    "dead_rows",
    "autovacuums",
];

/// Returns the current counters.
pub(super) fn read(session: &mut PostgresSession) -> Vec<Counter> {
    // A server that is gone has no counters; the clients report it.
    let mut rows = session.query(COUNTERS).unwrap_or_default();
    rows.extend(session.query(BACKGROUND).unwrap_or_default());
    let tells = |row: &Vec<String>| row.first().is_some_and(|name| name == CHECKPOINTS[0].0);
    if !rows.is_empty() && !rows.iter().any(tells) {
        rows.extend(session.query(CHECKPOINTER).unwrap_or_default());
    }
    let names = COUNTER_NAMES.map(|name| (name, name));
    counters(&rows, &[&names[..], CHECKPOINTS].concat())
}
