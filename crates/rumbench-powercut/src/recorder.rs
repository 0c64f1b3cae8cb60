//! State of the watched files, and the journal.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::c_int;
use rumbench_core::undo::Record;

use crate::system::{self, Status};

/// Recorder of changes. One lock covers a change and its record.
pub struct Recorder {
    root: Vec<u8>,
    kept: Vec<u8>,
    journal: c_int,
    /// Number of records written.
    records: u64,
    files: HashMap<(u64, u64), Known>,
    names_kept: u64,
}

/// File with a number.
struct Known {
    file: u32,
    /// Number of the last record that changed its names, plus one.
    names: u64,
    unseen: bool,
}

/// Watched file that is open.
#[derive(Clone, Copy)]
pub struct Watched {
    pub file: u32,
    pub status: Status,
}

/// Returns the recorder, locked, if the environment turns it on.
pub fn recorder() -> Option<MutexGuard<'static, Recorder>> {
    static RECORDER: OnceLock<Option<Mutex<Recorder>>> = OnceLock::new();
    let recorder = RECORDER.get_or_init(|| Recorder::from_environment().map(Mutex::new));
    let recorder = recorder.as_ref()?;
    // After a panic in another thread the process is about to abort.
    Some(recorder.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Recorder {
    fn from_environment() -> Option<Recorder> {
        let variable = |name| std::env::var_os(name).map(OsString::into_vec);
        let journal = CString::new(variable("RUMBENCH_POWERCUT_JOURNAL")?).ok()?;
        let (root, kept) = (
            variable("RUMBENCH_POWERCUT_ROOT")?,
            variable("RUMBENCH_POWERCUT_KEPT")?,
        );
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        let journal = system::open(libc::AT_FDCWD, &journal, flags, 0o644);
        (journal >= 0).then(|| Recorder {
            root,
            kept,
            journal,
            records: 0,
            files: HashMap::new(),
            names_kept: 0,
        })
    }

    /// Returns the number of the next record.
    pub fn next(&self) -> u64 {
        self.records
    }

    /// Appends a record. If that fails, aborts the process: later changes missing from the journal
    /// would count as durable, unnoticed.
    pub fn note(&mut self, record: &Record) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        if !system::append(self.journal, &bytes) {
            std::process::abort();
        }
        self.records += 1;
    }

    /// Returns true if a path is in the watched directory.
    pub fn watches(&self, path: &[u8]) -> bool {
        let inside = path.strip_prefix(&self.root[..]);
        inside.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// Returns the absolute form of a call's path, if it is in the watched directory.
    pub fn watched_path(&self, directory: c_int, path: &CStr) -> Option<CString> {
        let mut whole = match path.to_bytes() {
            path if path.starts_with(b"/") => path.to_vec(),
            path if directory == libc::AT_FDCWD => {
                joined(system::link_target(c"/proc/self/cwd")?, path)
            }
            path => joined(path_of(directory)?, path),
        };
        while whole.len() > 1 && whole.ends_with(b"/") {
            whole.pop();
        }
        let whole = CString::new(whole).ok()?;
        self.watches(whole.to_bytes()).then_some(whole)
    }

    /// Returns the watched file that is open as `fd`, if it is one.
    pub fn file(&mut self, fd: c_int) -> Option<Watched> {
        let status = system::status(fd)?;
        if !status.is_file() {
            return None;
        }
        let known = self.files.get(&status.inode).map(|known| known.file);
        if known.is_none() && !self.watches(&path_of(fd)?) {
            return None;
        }
        let file = known.unwrap_or_else(|| self.number(status.inode));
        Some(Watched { file, status })
    }

    fn number(&mut self, inode: (u64, u64)) -> u32 {
        if let Some(known) = self.files.get(&inode) {
            return known.file;
        }
        let file = self.files.len() as u32;
        let known = Known {
            file,
            names: 0,
            unseen: false,
        };
        self.files.insert(inode, known);
        self.note(&Record::File { file, inode });
        file
    }

    /// Records a change of names of the file with this status.
    pub fn note_names(&mut self, status: Option<Status>, record: &Record) {
        let file = status.filter(Status::is_file);
        if let Some(status) = file {
            self.number(status.inode);
        }
        self.note(record);
        let records = self.records;
        if let Some(known) = file.and_then(|status| self.files.get_mut(&status.inode)) {
            known.names = records;
        }
    }

    /// Returns the number of the last record that changed the names of this file, plus one.
    pub fn names_of(&self, watched: Watched) -> u64 {
        let known = self.files.get(&watched.status.inode);
        known.map_or(0, |known| known.names)
    }

    /// Records, once, that changes of this file are not seen.
    pub fn note_unseen(&mut self, fd: c_int, watched: Watched) {
        let known = self.files.get_mut(&watched.status.inode);
        if known.is_some_and(|known| !std::mem::replace(&mut known.unseen, true)) {
            let path = path_of(fd).unwrap_or_default();
            self.note(&Record::Unseen { path });
        }
    }

    /// Links a file that is about to lose its name to another name, and returns the new one; empty
    /// if the link fails.
    pub fn keep(&mut self, path: &CStr) -> Vec<u8> {
        let name = format!("/{}", self.names_kept);
        let kept = CString::new([&self.kept[..], name.as_bytes()].concat()).unwrap_or_default();
        if !system::link(path, &kept) {
            return Vec::new();
        }
        self.names_kept += 1;
        kept.into_bytes()
    }
}

/// Returns at most `len` bytes of a file from `offset`, without trailing zeros, even if `fd` is
/// write-only.
pub fn old_bytes(fd: c_int, offset: u64, len: u64) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    let path = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    old_bytes_of(&path, offset, len)
}

/// As [`old_bytes`], for the file with this path.
pub fn old_bytes_of(path: &CStr, offset: u64, len: u64) -> Vec<u8> {
    let own = system::open(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
    if own < 0 {
        // Missing bytes would come back as zeros, and the result would be wrong unnoticed.
        std::process::abort();
    }
    let bytes = system::read(own, offset, len as usize);
    system::close(own);
    without_zeros(bytes)
}

/// Returns bytes without trailing zeros.
pub fn without_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let used = bytes.iter().rposition(|byte| *byte != 0);
    bytes.truncate(used.map_or(0, |last| last + 1));
    bytes
}

/// Returns the path of an open file.
pub fn path_of(fd: c_int) -> Option<Vec<u8>> {
    system::link_target(&CString::new(format!("/proc/self/fd/{fd}")).ok()?)
}

fn joined(mut directory: Vec<u8>, path: &[u8]) -> Vec<u8> {
    directory.push(b'/');
    directory.extend_from_slice(path.strip_prefix(b"./").unwrap_or(path));
    directory
}
