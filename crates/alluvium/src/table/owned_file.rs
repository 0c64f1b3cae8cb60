//! A file with one owner, which may have to go with it.

use std::ops::Deref;
use std::sync::Arc;

use crate::sync::plain::Mutex;
use crate::vfs::VfsFile;

/// Takes a file whose last user is gone, as its only holder.
pub(crate) type Leave = Box<dyn FnOnce(Arc<dyn VfsFile>) + Send>;

/// See the module.
pub(in crate::table) struct OwnedFile {
    /// Taken by the drop alone.
    file: Option<Arc<dyn VfsFile>>,
    /// Guards what becomes of the file after its owner. A leaf in the lock order.
    leave: Mutex<Option<Leave>>,
}

impl OwnedFile {
    pub fn new(file: Arc<dyn VfsFile>) -> OwnedFile {
        OwnedFile {
            file: Some(file),
            leave: Mutex::new(None),
        }
    }

    /// Has `leave` take the file when its owner is dropped.
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
