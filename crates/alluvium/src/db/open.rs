//! Opens a database: recovery first, then the background threads.

use crate::sync::thread::JoinHandle;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use crate::db::core::Core;
use crate::db::options::{Durability, Options};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::recovery::recover;
use crate::vfs::Vfs;

/// Recovers the database in `dir` without starting its threads.
pub(super) fn open(vfs: Arc<dyn Vfs>, dir: &Path, options: Options) -> Result<Shared> {
    let recovered = recover(vfs, dir, options)?;
    let shared = Shared::new(recovered.parts);
    let core = &shared.core;
    shared.store.lock().note_sizes(core);
    if core.options.read_only {
        // A read-only database keeps the memtables filled by replay and reads from them.
        return Ok(shared);
    }
    for generation in recovered.sealed {
        shared.flushes.queue(generation);
    }
    shared.ballast.make();
    let oldest_segment = shared.store.lock().state().oldest_segment;
    shared.old_segments.trim(core, oldest_segment);
    // Locks the rows of prepared transactions before any caller can write.
    shared
        .row_locks
        .lock_prepared(&mut shared.commits.log.lock());
    // Flushes at once, even a few rows: a process that dies repeatedly soon after opening must not
    // replay more each time.
    shared.flushes.want();
    Ok(shared)
}

/// Starts the flush thread, the compaction threads, the file removal thread and the log's sync
/// thread. A read-only database needs none of them.
pub(super) fn start_threads(shared: &Shared, threads: &mut Vec<JoinHandle<()>>) -> Result<()> {
    let core = &shared.core;
    if core.options.read_only {
        return Ok(());
    }
    if core.events.is_on() {
        let events = Arc::clone(&core.events);
        threads.push(start(core, "alv-events", move || events.run())?);
    }
    let flush = shared.flush_env();
    threads.push(start(core, "alv-flush", move || crate::flush::run(&flush))?);
    for _ in 0..core.options.compaction_threads {
        let env = shared.compaction_env();
        let run = move || crate::compaction::run(&env);
        threads.push(start(core, "alv-compaction", run)?);
    }
    let removals = Arc::clone(&core.files.removals);
    let ballast = Arc::clone(&shared.ballast);
    let remove = move || removals.run(|| ballast.look_at_removed());
    threads.push(start(core, "alv-remove", remove)?);
    // The sync thread also runs if the default is `Sync`: a single commit may ask for less.
    if core.options.durability != Durability::None {
        let commits = Arc::clone(&shared.commits);
        threads.push(start(core, "alv-sync", move || commits.run_syncer())?);
    }
    Ok(())
}

/// Starts a background thread.
fn start(
    core: &Arc<Core>,
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let own = Arc::clone(core);
    let spawned = crate::sync::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // If a thread ended silently, commits that wait for it would wait forever.
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                own.poison_after_panic();
            }
        });
    spawned.map_err(|e| Error::io("start a thread for", &core.files.dir, e))
}
