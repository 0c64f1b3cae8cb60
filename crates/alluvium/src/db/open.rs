//! Opens a database: recovery first, then the background threads.

use crate::sync::thread::JoinHandle;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use crate::db::options::{Durability, Options};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::recovery::recover;
use crate::vfs::Vfs;

/// Recovers the database in `dir` without starting its threads.
pub(super) fn open(vfs: Arc<dyn Vfs>, dir: &Path, options: Options) -> Result<Shared> {
    let recovered = recover(vfs, dir, options)?;
    let shared = Shared::new(recovered.parts, recovered.next_table);
    shared.store.lock().note_sizes(&shared);
    if shared.options.read_only {
        // A read-only database keeps the memtables filled by replay and reads from them.
        return Ok(shared);
    }
    shared.make_ballast();
    let oldest_segment = shared.store.lock().state().oldest_segment;
    shared.trim_log(oldest_segment);
    // Locks the rows of prepared transactions before any caller can write.
    shared.lock_prepared();
    for generation in recovered.sealed {
        shared.queue_flush(generation);
    }
    // Flushes at once, even a few rows: a process that dies repeatedly soon after opening must not
    // replay more each time.
    shared.want_flush();
    Ok(shared)
}

/// Starts the flush thread, the compaction threads, the file removal thread and the log's sync
/// thread. A read-only database needs none of them.
pub(super) fn start_threads(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> Result<()> {
    if shared.options.read_only {
        return Ok(());
    }
    let mut start = |name: &str, body: fn(&Shared)| {
        let own = Arc::clone(shared);
        let spawned = crate::sync::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // If a thread ended silently, commits that wait for it would wait forever.
                if catch_unwind(AssertUnwindSafe(|| body(&own))).is_err() {
                    own.poison_after_panic();
                }
            });
        threads.push(spawned.map_err(|e| Error::io("start a thread for", &shared.dir, e))?);
        Ok(())
    };
    if shared.events.is_on() {
        start("alv-events", |shared| shared.events.run())?;
    }
    start("alv-flush", crate::flush::run)?;
    for _ in 0..shared.options.compaction_threads {
        start("alv-compaction", crate::compaction::run)?;
    }
    start("alv-remove", |shared| {
        shared.removals.run(|| shared.look_at_removed());
    })?;
    // The sync thread also runs if the default is `Sync`: a single commit may ask for less.
    if shared.options.durability != Durability::None {
        start("alv-sync", Shared::run_syncer)?;
    }
    Ok(())
}
