//! Hint to the file system about the lifetime of written data. The system call is made here because
//! no crate in use has a safe binding to it.
//!
//! Linux passes the hint to the device. Some devices place data of similar lifetimes together, and
//! erase it together. The hint is a property of the file while it is open, and is not stored.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

// From Linux's `fcntl.h`, since 4.13: base 1024, and the operations 11 and 12.
const F_GET_RW_HINT: libc::c_int = 1035;
const F_SET_RW_HINT: libc::c_int = 1036;

/// Expected lifetime of data, relative to other data of the same program. The numbers are the
/// kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum WriteHint {
    /// Shortest lifetime.
    Short = 2,
    /// Longer than `Short`.
    Medium = 3,
    /// Longest lifetime.
    Extreme = 5,
}

/// Sets the expected lifetime of a file's data.
///
/// Errors: the system's; `Unsupported` on systems other than Linux. After an error the data is only
/// written without the hint.
pub fn set_write_hint(file: &File, hint: WriteHint) -> io::Result<()> {
    let mut number = hint as u64;
    call(file, F_SET_RW_HINT, &mut number)
}

/// Returns the kernel's number for the lifetime of a file's data; 0 if none was set.
///
/// Errors: as for [`set_write_hint`].
pub fn write_hint(file: &File) -> io::Result<u64> {
    let mut number = 0;
    call(file, F_GET_RW_HINT, &mut number)?;
    Ok(number)
}

#[cfg(target_os = "linux")]
fn call(file: &File, operation: libc::c_int, number: &mut u64) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed. Both operations take the
    // address of a `u64`; the kernel reads or writes it and does not keep the address.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), operation, std::ptr::from_mut(number)) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn call(_: &File, _: libc::c_int, _: &mut u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
