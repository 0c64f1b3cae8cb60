//! The C library's functions for creating, removing and renaming files, and for opening, which may
//! create or truncate one.
//!
//! The caller of each function upholds the conditions of its manual, to which the `SAFETY` comments
//! refer.

use std::ffi::{CStr, CString};

use libc::{c_char, c_int, c_uint, mode_t};
use rumbench_core::undo::Record;

use crate::recorder::{Recorder, old_bytes_of, recorder};
use crate::system::{self, Status};
use crate::writes::note_resized;

/// Opens a file, and records if that created or truncated it.
fn opened(directory: c_int, path: &CStr, flags: c_int, mode: mode_t) -> c_int {
    let call = || system::open(directory, path, flags, mode);
    if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        return call();
    }
    let Some(mut recorder) = recorder() else {
        return call();
    };
    let Some(whole) = recorder.watched_path(directory, path) else {
        drop(recorder);
        return call();
    };
    let before = system::status_of(&whole);
    let emptied =
        before.filter(|status| flags & libc::O_TRUNC != 0 && status.is_file() && status.size > 0);
    let old = emptied.map(|status| old_bytes_of(&whole, 0, status.size));
    let fd = call();
    if fd < 0 {
        return fd;
    }
    match (before, emptied, old) {
        (None, ..) => {
            let path = whole.into_bytes();
            recorder.note_names(system::status(fd), &Record::Appeared { path });
        }
        (_, Some(status), Some(old)) => {
            if let Some(mut watched) = recorder.file(fd) {
                watched.status = status;
                note_resized(&mut recorder, watched, 0, old);
            }
        }
        _ => {}
    }
    fd
}

/// See `open(2)`. The C library's function takes the mode only if a file may be created; otherwise
/// the kernel ignores it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    opened(libc::AT_FDCWD, unsafe { CStr::from_ptr(path) }, flags, mode)
}

/// See `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { open(path, flags, mode) }
}

/// See `openat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    opened(directory, unsafe { CStr::from_ptr(path) }, flags, mode)
}

/// See `openat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { openat(directory, path, flags, mode) }
}

/// See `creat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// Performs a change of one path and records it on success. `record` examines the path before the
/// change.
fn changed(
    directory: c_int,
    path: &CStr,
    record: impl FnOnce(&mut Recorder, &CString) -> (Option<Status>, Record),
    call: impl FnOnce() -> c_int,
) -> c_int {
    let Some(mut recorder) = recorder() else {
        return call();
    };
    let Some(whole) = recorder.watched_path(directory, path) else {
        drop(recorder);
        return call();
    };
    let (status, record) = record(&mut recorder, &whole);
    let result = call();
    if result == 0 {
        recorder.note_names(status, &record);
    }
    result
}

/// See `unlinkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    let call = || unsafe { libc::syscall(libc::SYS_unlinkat, directory, path, flags) } as c_int;
    let record = |recorder: &mut Recorder, whole: &CString| {
        let path = whole.to_bytes().to_vec();
        if flags & libc::AT_REMOVEDIR != 0 {
            return (None, Record::DirectoryRemoved { path });
        }
        let kept = recorder.keep(whole);
        (system::status_of(whole), Record::Removed { path, kept })
    };
    // SAFETY: the caller upholds the conditions of the manual.
    changed(directory, unsafe { CStr::from_ptr(path) }, record, call)
}

/// See `unlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

/// See `rmdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

/// See `remove(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    let status = system::status_of(unsafe { CStr::from_ptr(path) });
    if status.is_some_and(|status| status.is_directory()) {
        // SAFETY: the caller upholds the conditions of the manual.
        unsafe { rmdir(path) }
    } else {
        // SAFETY: the caller upholds the conditions of the manual.
        unsafe { unlink(path) }
    }
}

/// See `mkdirat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    let call = || unsafe { libc::syscall(libc::SYS_mkdirat, directory, path, mode) } as c_int;
    let record = |_: &mut Recorder, whole: &CString| {
        let path = whole.to_bytes().to_vec();
        (None, Record::DirectoryMade { path })
    };
    // SAFETY: the caller upholds the conditions of the manual.
    changed(directory, unsafe { CStr::from_ptr(path) }, record, call)
}

/// See `mkdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { mkdirat(libc::AT_FDCWD, path, mode) }
}

/// See `linkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    let call = || unsafe {
        libc::syscall(
            libc::SYS_linkat,
            from_directory,
            from,
            to_directory,
            to,
            flags,
        ) as c_int
    };
    // SAFETY: the caller upholds the conditions of the manual.
    let status = system::status_of(unsafe { CStr::from_ptr(from) });
    let record = |_: &mut Recorder, whole: &CString| {
        let path = whole.to_bytes().to_vec();
        (status, Record::Appeared { path })
    };
    // SAFETY: the caller upholds the conditions of the manual.
    changed(to_directory, unsafe { CStr::from_ptr(to) }, record, call)
}

/// See `link(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    let here = libc::AT_FDCWD;
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { linkat(here, from, here, to, 0) }
}

/// See `renameat2(2)`. An exchange is recorded as a rename, and its other half is not seen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let call = || {
        let number = libc::SYS_renameat2;
        // SAFETY: the caller upholds the conditions of the manual.
        unsafe { libc::syscall(number, from_directory, from, to_directory, to, flags) as c_int }
    };
    // SAFETY: the caller upholds the conditions of the manual.
    let (from, to) = unsafe { (CStr::from_ptr(from), CStr::from_ptr(to)) };
    let record = |recorder: &mut Recorder, whole: &CString| {
        let source = recorder.watched_path(from_directory, from);
        let status = source.as_deref().and_then(system::status_of);
        let replaced = system::status_of(whole).is_some_and(|status| status.is_file());
        let kept = if replaced {
            recorder.keep(whole)
        } else {
            Vec::new()
        };
        let to = whole.to_bytes().to_vec();
        let record = match source {
            Some(from) => Record::Renamed {
                from: from.into_bytes(),
                to,
                kept,
            },
            None => Record::Appeared { path: to },
        };
        (status, record)
    };
    changed(to_directory, to, record, call)
}

/// See `renameat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { renameat2(from_directory, from, to_directory, to, 0) }
}

/// See `rename(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let here = libc::AT_FDCWD;
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { renameat2(here, from, here, to, 0) }
}
