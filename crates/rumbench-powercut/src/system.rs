//! System calls, made without the functions of the C library that this library replaces.

use std::ffi::CStr;

use libc::{c_int, c_long, c_void, mode_t};

/// Status of a file, as far as the recorder needs it.
#[derive(Clone, Copy)]
pub struct Status {
    /// Device and inode.
    pub inode: (u64, u64),
    pub size: u64,
    mode: mode_t,
}

impl Status {
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    pub fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// Returns the status of an open file.
pub fn status(fd: c_int) -> Option<Status> {
    status_at(fd, c"", libc::AT_EMPTY_PATH)
}

/// Returns the status of the file with this path; of a symbolic link itself.
pub fn status_of(path: &CStr) -> Option<Status> {
    status_at(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW)
}

fn status_at(directory: c_int, path: &CStr, flags: c_int) -> Option<Status> {
    // SAFETY: `stat` has only integers, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and `stat` is a local variable that may be written.
    let result = unsafe { libc::fstatat(directory, path.as_ptr(), &raw mut stat, flags) };
    (result == 0).then_some(Status {
        inode: (stat.st_dev, stat.st_ino),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode,
    })
}

/// Returns the target of a symbolic link.
pub fn link_target(path: &CStr) -> Option<Vec<u8>> {
    let mut target = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the path ends with a zero byte; the buffer has the given size.
    let len = unsafe {
        let start = target.as_mut_ptr().cast();
        libc::readlink(path.as_ptr(), start, target.len())
    };
    target.truncate(usize::try_from(len).ok()?);
    Some(target)
}

/// Returns the current status flags of an open file.
pub fn flags(fd: c_int) -> c_int {
    // SAFETY: only reads flags.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }.max(0)
}

/// Returns the offset of the next write without an explicit offset.
pub fn position(fd: c_int) -> u64 {
    // SAFETY: does not move the offset.
    u64::try_from(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }).unwrap_or(0)
}

/// Opens a file.
pub fn open(directory: c_int, path: &CStr, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the path ends with a zero byte.
    unsafe {
        let path = path.as_ptr();
        libc::syscall(libc::SYS_openat, directory, path, flags, mode) as c_int
    }
}

/// Closes a file that this library opened.
pub fn close(fd: c_int) {
    // SAFETY: callers pass files that they have opened.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Reads up to `len` bytes from `offset`, fewer if the file ends.
pub fn read(fd: c_int, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; len];
    let mut filled = 0;
    while filled < len {
        let rest = &mut bytes[filled..];
        // SAFETY: the buffer has the given size.
        let count = unsafe {
            let start = rest.as_mut_ptr().cast::<c_void>();
            libc::pread(fd, start, rest.len(), (offset + filled as u64) as i64)
        };
        match usize::try_from(count) {
            Ok(0) | Err(_) => break,
            Ok(count) => filled += count,
        }
    }
    bytes.truncate(filled);
    bytes
}

/// Appends to the journal; returns true if all bytes were written.
pub fn append(fd: c_int, bytes: &[u8]) -> bool {
    // SAFETY: `bytes` is valid for its length. One call, so a kill leaves a whole record or a torn
    // last one.
    let count = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
    count == bytes.len() as c_long
}

/// Links a file to another name; returns true on success.
pub fn link(path: &CStr, name: &CStr) -> bool {
    let here = libc::AT_FDCWD;
    // SAFETY: both paths end with a zero byte.
    let result = unsafe {
        libc::syscall(
            libc::SYS_linkat,
            here,
            path.as_ptr(),
            here,
            name.as_ptr(),
            0,
        )
    };
    result == 0
}
