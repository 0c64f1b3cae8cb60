//! Opening: recovery, then the background threads.

use crate::sync::thread::JoinHandle;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use crate::db::options::{Durability, Options};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::recovery::recover;
use crate::vfs::Vfs;

/// Recovers the database in `dir`. Its threads are not running yet.
pub(super) fn open(vfs: Arc<dyn Vfs>, dir: &Path, options: Options) -> Result<Shared> {
    let recovered = recover(vfs, dir, options)?;
    let shared = Shared::new(recovered.parts, recovered.next_table);
    shared.store.lock().note_sizes(&shared);
    if shared.options.read_only {
        // What replay has sealed is read where it is.
        return Ok(shared);
    }
    shared.make_ballast();
    let oldest_segment = shared.store.lock().state().oldest_segment;
    shared.trim_log(oldest_segment);
    // Before anybody can write.
    shared.lock_prepared();
    for generation in recovered.sealed {
        shared.queue_flush(generation);
    }
    // At once, however little it is: a process that dies young again and again must not replay more each time.
    shared.want_flush();
    Ok(shared)
}

/// Starts the flusher, the merging threads, the remover of files and the log's sync thread; a database that is only read needs none.
pub(super) fn start_threads(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> Result<()> {
    if shared.options.read_only {
        return Ok(());
    }
    let mut start = |name: &str, body: fn(&Shared)| {
        let own = Arc::clone(shared);
        let spawned = crate::sync::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // A thread that ends silently would leave commits waiting for it for ever.
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
    // Also where Sync is the default: a single commit may ask for less.
    if shared.options.durability != Durability::None {
        start("alv-sync", Shared::run_syncer)?;
    }
    Ok(())
}
