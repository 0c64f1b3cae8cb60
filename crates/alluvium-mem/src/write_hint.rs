//! What a file system is told of how long written data will live: a call of the system without a safe binding elsewhere.
//!
//! Linux passes the hint to devices that can put data of like lifetimes together, so that what dies together is erased
//! together. It is a property of the file while somebody has it open, and is not stored.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

// From Linux's `fcntl.h`, since 4.13: base 1024, and the operations 11 and 12.
const F_GET_RW_HINT: libc::c_int = 1035;
const F_SET_RW_HINT: libc::c_int = 1036;

/// How long data is expected to live, relative to other data of the same program. The numbers are the system's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum WriteHint {
    /// Less than any other.
    Short = 2,
    /// Longer.
    Medium = 3,
    /// Longer than any other.
    Extreme = 5,
}

/// Tells the system how long the data of a file will live.
///
/// Errors: the system's; `Unsupported` where it is not Linux. None of them does harm.
pub fn set_write_hint(file: &File, hint: WriteHint) -> io::Result<()> {
    let mut number = hint as u64;
    call(file, F_SET_RW_HINT, &mut number)
}

/// The number that the system has for the data of a file; 0 where it was told nothing.
///
/// Errors: as for [`set_write_hint`].
pub fn write_hint(file: &File) -> io::Result<u64> {
    let mut number = 0;
    call(file, F_GET_RW_HINT, &mut number)?;
    Ok(number)
}

#[cfg(target_os = "linux")]
fn call(file: &File, operation: libc::c_int, number: &mut u64) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed. Both operations take the address of an unsigned
    // number of 64 bits, which they read or write and do not keep.
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
