//! The C library's functions that make changes durable.

use libc::c_int;
use rumbench_core::undo::Record;

use crate::recorder::{Recorder, path_of, recorder};
use crate::system::{self, Status};

/// Returns the record for the changes that a sync starting now makes durable if it succeeds.
fn reach(recorder: &mut Recorder, fd: c_int) -> Option<Record> {
    if let Some(watched) = recorder.file(fd) {
        return Some(Record::Synced {
            file: watched.file,
            data: recorder.next(),
            // File systems write such changes in order.
            names: recorder.names_of(watched),
        });
    }
    let is_directory = system::status(fd).is_some_and(|status: Status| status.is_directory());
    (is_directory && recorder.watches(&path_of(fd)?)).then(|| Record::NamesSynced {
        names: recorder.next(),
    })
}

/// Performs a sync, without the lock: concurrent writes do not count as synced.
fn synced(
    reach: impl FnOnce(&mut Recorder) -> Option<Record>,
    sync: impl FnOnce() -> c_int,
) -> c_int {
    let durable = recorder().and_then(|mut recorder| reach(&mut recorder));
    let result = sync();
    if result == 0
        && let Some(record) = durable
        && let Some(mut recorder) = recorder()
    {
        recorder.note(&record);
    }
    result
}

fn everything(recorder: &mut Recorder) -> Option<Record> {
    Some(Record::AllSynced {
        all: recorder.next(),
    })
}

/// See `fsync(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: takes a number only.
    let call = || unsafe { libc::syscall(libc::SYS_fsync, fd) } as c_int;
    synced(|recorder| reach(recorder, fd), call)
}

/// See `fdatasync(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: takes a number only.
    let call = || unsafe { libc::syscall(libc::SYS_fdatasync, fd) } as c_int;
    synced(|recorder| reach(recorder, fd), call)
}

/// See `syncfs(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn syncfs(fd: c_int) -> c_int {
    // SAFETY: takes a number only.
    synced(
        everything,
        || unsafe { libc::syscall(libc::SYS_syncfs, fd) } as c_int,
    )
}

/// See `sync(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn sync() {
    // SAFETY: takes nothing.
    synced(everything, || unsafe { libc::syscall(libc::SYS_sync) }
        as c_int);
}
