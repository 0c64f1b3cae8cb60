//! File with one owner; an obsolete file is handed over when the owner is dropped, together with
//! memory of the owner that takes long to free.

use std::ops::Deref;
use std::sync::Arc;

use crate::sync::plain::Mutex;
use crate::vfs::VfsFile;

/// Callback that gets a file after its last user, as its only holder, and memory to drop.
pub(crate) type Leave = Box<dyn FnOnce(Arc<dyn VfsFile>, Box<dyn Send>) + Send>;

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

    /// Hands an obsolete file over, with memory of its owner. Any other file stays, and the memory
    /// is dropped. For the owner's own drop.
    pub fn hand_over(&mut self, memory: Box<dyn Send>) {
        if let Some(leave) = self.leave.get_mut().take()
            && let Some(file) = self.file.take()
        {
            leave(file, memory);
        }
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
        self.hand_over(Box::new(()));
    }
}
