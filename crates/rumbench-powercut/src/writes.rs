//! The C library's functions that change the content of files.
//!
//! The caller of each function upholds the conditions of its manual, which its system call shares.
//! The `SAFETY` comments refer to these.

use std::ffi::CStr;

use libc::{c_char, c_int, c_long, c_void, iovec, off_t, size_t, ssize_t};
use rumbench_core::undo::Record;

use crate::recorder::{Recorder, Watched, old_bytes, recorder, without_zeros};
use crate::system;

/// Destination of a write.
#[derive(Clone, Copy)]
enum Place {
    /// Current offset of the file, or its end if it is open for appending.
    Current,
    At(off_t),
}

/// Performs a write of `len` bytes and records the old content. `through`: the call itself requests
/// durability.
fn written(
    fd: c_int,
    place: Place,
    len: usize,
    through: bool,
    write: impl FnOnce() -> c_long,
) -> ssize_t {
    let Some(mut recorder) = recorder() else {
        return write() as ssize_t;
    };
    let Some(watched) = recorder.file(fd) else {
        // Writes to pipes may block, so they run without the lock.
        drop(recorder);
        return write() as ssize_t;
    };
    let (flags, old_size) = (system::flags(fd), watched.status.size);
    let offset = match place {
        _ if flags & libc::O_APPEND != 0 => old_size,
        Place::At(offset) => u64::try_from(offset).unwrap_or(0),
        Place::Current => system::position(fd),
    };
    let old = old_bytes(fd, offset, old_size.saturating_sub(offset).min(len as u64));
    let count = write();
    if let Ok(len @ 1..) = u64::try_from(count) {
        let old = without_zeros(old.into_iter().take(len as usize).collect());
        let record = recorder.next();
        recorder.note(&Record::Written {
            file: watched.file,
            offset,
            len,
            old_size,
            old,
        });
        // O_SYNC contains O_DSYNC.
        if through || flags & libc::O_DSYNC != 0 {
            recorder.note(&Record::WrittenThrough { record });
        }
    }
    count as ssize_t
}

unsafe fn total(parts: *const iovec, count: c_int) -> usize {
    if parts.is_null() {
        return 0;
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller upholds the conditions of the manual: there are `count` parts.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    parts.iter().map(|part| part.iov_len).sum()
}

/// See `write(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    let call = || unsafe { libc::syscall(libc::SYS_write, fd, data, len) };
    written(fd, Place::Current, len, false, call)
}

/// See `pwrite(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    let call = || unsafe { libc::syscall(libc::SYS_pwrite64, fd, data, len, at) };
    written(fd, Place::At(at), len, false, call)
}

/// See `pwrite(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    fd: c_int,
    data: *const c_void,
    len: size_t,
    at: off_t,
) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { pwrite(fd, data, len, at) }
}

/// See `writev(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    let len = unsafe { total(parts, count) };
    // SAFETY: the caller upholds the conditions of the manual.
    let call = || unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) };
    written(fd, Place::Current, len, false, call)
}

/// See `pwritev(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    let len = unsafe { total(parts, count) };
    // The kernel takes the offset in two halves; on 64 bits the first holds all of it.
    // SAFETY: the caller upholds the conditions of the manual.
    let call = || unsafe { libc::syscall(libc::SYS_pwritev, fd, parts, count, at, 0) };
    written(fd, Place::At(at), len, false, call)
}

/// See `pwritev(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { pwritev(fd, parts, count, at) }
}

/// See `pwritev2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    let len = unsafe { total(parts, count) };
    // SAFETY: the caller upholds the conditions of the manual.
    let call = || unsafe { libc::syscall(libc::SYS_pwritev2, fd, parts, count, at, 0, flags) };
    let place = if at < 0 {
        Place::Current
    } else {
        Place::At(at)
    };
    written(
        fd,
        place,
        len,
        flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0,
        call,
    )
}

/// See `pwritev2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { pwritev2(fd, parts, count, at, flags) }
}

/// Records a new size, with the bytes that shrinking removed.
pub fn note_resized(recorder: &mut Recorder, watched: Watched, new_size: u64, old: Vec<u8>) {
    let old_size = watched.status.size;
    if old_size != new_size {
        recorder.note(&Record::Resized {
            file: watched.file,
            old_size,
            new_size,
            old,
        });
    }
}

/// See `ftruncate(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate(fd: c_int, size: off_t) -> c_int {
    // SAFETY: takes numbers only.
    let call = || unsafe { libc::syscall(libc::SYS_ftruncate, fd, size) } as c_int;
    let Some(mut recorder) = recorder() else {
        return call();
    };
    let Some(watched) = recorder.file(fd) else {
        return call();
    };
    let new_size = u64::try_from(size).unwrap_or(0);
    let old = old_bytes(fd, new_size, watched.status.size.saturating_sub(new_size));
    let result = call();
    if result == 0 {
        note_resized(&mut recorder, watched, new_size, old);
    }
    result
}

/// See `ftruncate(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(fd: c_int, size: off_t) -> c_int {
    ftruncate(fd, size)
}

/// See `truncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    let path = unsafe { CStr::from_ptr(path) };
    let fd = system::open(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return fd;
    }
    let result = ftruncate(fd, size);
    system::close(fd);
    result
}

/// See `truncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate64(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { truncate(path, size) }
}

/// See `fallocate(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    // SAFETY: takes numbers only.
    let call = || unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, at, len) } as c_int;
    let Some(mut recorder) = recorder() else {
        return call();
    };
    let Some(watched) = recorder.file(fd) else {
        return call();
    };
    let erases = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
    let known = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
    let (at, len) = (
        u64::try_from(at).unwrap_or(0),
        u64::try_from(len).unwrap_or(0),
    );
    let (old_size, end) = (watched.status.size, at.saturating_add(len));
    let inside = end.min(old_size).saturating_sub(at);
    let old = if erases {
        old_bytes(fd, at, inside)
    } else {
        Vec::new()
    };
    let result = call();
    if result != 0 {
        return result;
    }
    if mode & !known != 0 {
        recorder.note_unseen(fd, watched);
    }
    if erases && inside > 0 {
        recorder.note(&Record::Written {
            file: watched.file,
            offset: at,
            len: inside,
            old_size,
            old,
        });
    }
    if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && end > old_size {
        note_resized(&mut recorder, watched, end, Vec::new());
    }
    result
}

/// See `fallocate(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    fallocate(fd, mode, at, len)
}

/// See `posix_fallocate(3)`. If the file system does not support it, this fails; the C library
/// would write zeros.
#[unsafe(no_mangle)]
pub extern "C" fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
    match fallocate(fd, 0, at, len) {
        0 => 0,
        _ => std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    }
}

/// See `posix_fallocate(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int {
    posix_fallocate(fd, at, len)
}

/// Records that a watched file is changed in an unseen way.
fn unseen(fd: c_int) {
    if let Some(mut recorder) = recorder()
        && let Some(watched) = recorder.file(fd)
    {
        recorder.note_unseen(fd, watched);
    }
}

/// See `copy_file_range(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: u32,
) -> ssize_t {
    unseen(to);
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe {
        libc::syscall(
            libc::SYS_copy_file_range,
            from,
            from_at,
            to,
            to_at,
            len,
            flags,
        ) as ssize_t
    }
}

/// See `sendfile(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    unseen(to);
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { libc::syscall(libc::SYS_sendfile, to, from, at, len) as ssize_t }
}

/// See `sendfile(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    at: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { sendfile(to, from, at, len) }
}

/// See `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    start: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    let writable = protection & libc::PROT_WRITE != 0 && flags & libc::MAP_TYPE == libc::MAP_SHARED;
    if fd >= 0 && writable {
        unseen(fd);
    }
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { libc::syscall(libc::SYS_mmap, start, len, protection, flags, fd, at) as *mut c_void }
}

/// See `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    start: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    // SAFETY: the caller upholds the conditions of the manual.
    unsafe { mmap(start, len, protection, flags, fd, at) }
}
