//! Removal of unused files on a thread of its own.
//!
//! The last user of a replaced table may be a client in the middle of a call. The file system takes
//! tens of milliseconds to free a file's blocks and to discard them on the device, and does so when
//! the last handle is closed. The cached blocks of the table may take as long. So the removal
//! thread gets the name, the handle and the blocks, and no client waits.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::TableId;
use crate::event::Events;
use crate::sync::plain::{Condvar, Mutex};
use crate::table::Leave;
use crate::vfs::{Vfs, VfsFile};

/// Queue of files to remove, see the module.
pub(crate) struct Removals {
    vfs: Arc<dyn Vfs>,
    events: Arc<Events>,
    /// Guards its fields. A leaf in the lock order, because the last user of a file may hold any
    /// lock.
    state: Mutex<State>,
    /// Signaled when a file is queued, when a removal ends, and when the thread has to stop.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Removal>,
    /// True while the thread removes files that it has taken from `waiting`.
    removing: bool,
    /// True while the thread runs. Without it, the last user of a file removes the file.
    runs: bool,
    stop: bool,
}

struct Removal {
    path: PathBuf,
    file: Arc<dyn VfsFile>,
    /// Freed before the file is removed.
    memory: Box<dyn Send>,
    /// Table to report to the event listener; `None` for value files.
    table: Option<TableId>,
}

impl Removals {
    pub fn new(vfs: Arc<dyn Vfs>, events: Arc<Events>) -> Arc<Removals> {
        Arc::new(Removals {
            vfs,
            events,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Returns the action that removes an obsolete file when its last user releases it.
    pub fn leave(self: &Arc<Removals>, path: PathBuf, table: Option<TableId>) -> Leave {
        let removals = Arc::clone(self);
        Box::new(move |file, memory| {
            removals.add(Removal {
                path,
                file,
                memory,
                table,
            });
        })
    }

    fn add(&self, removal: Removal) {
        let mut state = self.state.lock();
        if state.runs {
            state.waiting.push(removal);
            drop(state);
            self.changed.notify_all();
        } else {
            drop(state);
            self.remove(removal);
        }
    }

    fn remove(&self, removal: Removal) {
        drop(removal.memory);
        // If removal fails, the next open moves the file aside.
        let _ = self.vfs.remove(&removal.path);
        drop(removal.file);
        if let Some(table) = removal.table {
            self.events.table_deleted(table);
        }
    }

    /// Runs the removal thread until it is stopped and everything is removed. Calls `removed` after
    /// each round of removals.
    pub fn run(&self, removed: impl Fn()) {
        let mut state = self.state.lock();
        state.runs = true;
        loop {
            let files = std::mem::take(&mut state.waiting);
            if files.is_empty() {
                if state.stop {
                    state.runs = false;
                    return;
                }
                self.changed.wait(&mut state);
                continue;
            }
            state.removing = true;
            drop(state);
            files.into_iter().for_each(|file| self.remove(file));
            removed();
            state = self.state.lock();
            state.removing = false;
            self.changed.notify_all();
        }
    }

    /// Waits until all files that had no user at the time of the call are removed.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        while state.runs && (state.removing || !state.waiting.is_empty()) {
            self.changed.wait(&mut state);
        }
    }

    /// Stops the thread once it has removed the queued files.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}
