//! File with one owner; an obsolete file is handed over when the owner is dropped.

use std::ops::Deref;
use std::sync::Arc;

use crate::sync::plain::Mutex;
use crate::vfs::VfsFile;

/// Callback that gets a file after its last user, as its only holder.
pub(crate) type Leave = Box<dyn FnOnce(Arc<dyn VfsFile>) + Send>;

/// File that its owner may mark obsolete. `drop` then hands it to the [`Leave`] callback.
pub(super) struct OwnedFile {
    /// `None` only during the drop.
    file: Option<Arc<dyn VfsFile>>,
    /// Guards the callback that gets the file after its owner. A leaf in the lock order.
    leave: Mutex<Option<Leave>>,
}

impl OwnedFile {
    pub fn new(file: Arc<dyn VfsFile>) -> OwnedFile {
        OwnedFile {
            file: Some(file),
            leave: Mutex::new(None),
        }
    }

    /// Sets `leave` to get the file when its owner is dropped.
    pub fn mark_obsolete(&self, leave: Leave) {
        *self.leave.lock() = Some(leave);
    }
}

impl Deref for OwnedFile {
    type Target = dyn VfsFile;

    fn deref(&self) -> &Self::Target {
        &**self.file.as_ref().expect("taken by the drop alone")
    }
}

impl Drop for OwnedFile {
    fn drop(&mut self) {
        if let (Some(leave), Some(file)) = (self.leave.get_mut().take(), self.file.take()) {
            leave(file);
        }
    }
}
