//! Files that nobody needs any more, and the thread that removes them.
//!
//! The last user of a replaced table may be a client in the middle of a call. The file system takes tens of
//! milliseconds to free a file's blocks and to tell the device; that happens when the file's last handle is closed, so
//! name and handle go to the thread together and no client waits for either.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::TableId;
use crate::event::Events;
use crate::sync::plain::{Condvar, Mutex};
use crate::table::Leave;
use crate::vfs::{Vfs, VfsFile};

/// See the module.
pub(crate) struct Removals {
    vfs: Arc<dyn Vfs>,
    events: Arc<Events>,
    /// Guards its fields. A leaf in the lock order, for files go wherever their last user is.
    state: Mutex<State>,
    /// Signals a file to remove, the end of a removal, or the end of the thread.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Removal>,
    /// The thread is at work on files that are in `waiting` no more.
    removing: bool,
    /// There is a thread. Where there is none, whoever lets go of a file removes it.
    runs: bool,
    stop: bool,
}

struct Removal {
    path: PathBuf,
    file: Arc<dyn VfsFile>,
    /// Told to the listener.
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

    /// What a file does that is to be removed when its last user lets go of it.
    pub fn leave(self: &Arc<Removals>, path: PathBuf, table: Option<TableId>) -> Leave {
        let removals = Arc::clone(self);
        Box::new(move |file| removals.add(Removal { path, file, table }))
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
        // A file that cannot be removed is moved aside at the next open.
        let _ = self.vfs.remove(&removal.path);
        drop(removal.file);
        if let Some(table) = removal.table {
            self.events.table_deleted(table);
        }
    }

    /// The thread: ends when it is told to and everything is removed. Calls `removed` after removals.
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

    /// Waits until the files are gone that had no user when this was called.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        while state.runs && (state.removing || !state.waiting.is_empty()) {
            self.changed.wait(&mut state);
        }
    }

    /// Ends the thread once it has removed what waits.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}
