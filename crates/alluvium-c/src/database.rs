//! Databases: opening and closing, calls that concern all keyspaces, and the engine's version.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::Arc;

use alluvium::{Database, EventListener, Result};

use crate::borrow::{bytes, given};
use crate::call::{answer, call, make, quietly};
use crate::error::{alluvium_code, alluvium_error};
use crate::listener::listener;
use crate::options::alluvium_options;
use crate::sized;
use crate::value::alluvium_list;

/// An open database. It closes with alluvium_close, or when the last handle of any kind is freed.
pub struct alluvium_database(pub(crate) Database);

/// Returns the version of the library, such as "1.2.3", ended by a zero byte. It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(unix)]
pub(crate) fn path_of(bytes: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

#[cfg(not(unix))]
pub(crate) fn path_of(bytes: &[u8]) -> Result<PathBuf> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| crate::borrow::invalid("the path is not UTF-8"))?;
    Ok(PathBuf::from(text))
}

/// Opens the database in the directory `path`, creating it unless `options` say otherwise.
/// `options` may be NULL. ALLUVIUM_CODE_LOCKED if it is open elsewhere, ALLUVIUM_CODE_CORRUPTION if
/// its files exist but CURRENT does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_open(
    path: *const c_char,
    path_size: usize,
    options: *const alluvium_options,
    database: Option<&mut MaybeUninit<*mut alluvium_database>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (path, options) = unsafe { (bytes(path, path_size), sized::read(options)) };
    make(error, database, || {
        let options = options?;
        let listener = listener(&options);
        let mut options = options.to_engine()?;
        options.event_listener = listener
            .clone()
            .map(|given| given as Arc<dyn EventListener>);
        let opened = Database::open(path_of(path?)?, options)?;
        if let Some(listener) = listener {
            listener.context.own();
        }
        Ok(alluvium_database(opened))
    })
}

/// Checks the options; an error if alluvium_open would refuse them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_options_check(
    options: *const alluvium_options,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let options = unsafe { sized::read(options) };
    call(error, || options?.to_engine()?.check())
}

/// Closes the database: syncs the log, ends the threads, releases the directory. Later calls with
/// any handle give ALLUVIUM_CODE_CLOSED. Calls of other threads that wait for a row lock, for
/// memory or for changes return it at once. The handles must still be freed. An error comes from
/// the last sync; the database is closed all the same.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_close(
    database: Option<&alluvium_database>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || given(database, "database")?.0.close())
}

/// Returns another handle of the same database, to be freed too; NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_database_clone(
    database: Option<&alluvium_database>,
) -> Option<Box<alluvium_database>> {
    database.map(|database| Box::new(alluvium_database(database.0.clone())))
}

/// Frees a handle. If it is the last of any kind, the database closes, and an error of the close is
/// dropped.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_database_free(database: Option<Box<alluvium_database>>) {
    quietly(|| drop(database));
}

/// Gets the names of all keyspaces, sorted, as a list to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_names(
    database: Option<&alluvium_database>,
    names: Option<&mut MaybeUninit<*mut alluvium_list>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    make(error, names, || {
        let names = given(database, "database")?.0.keyspace_names()?;
        Ok(alluvium_list(
            names.into_iter().map(String::into_bytes).collect(),
        ))
    })
}

/// Makes everything committed so far as durable as ALLUVIUM_DURABILITY_SYNC does.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_sync(
    database: Option<&alluvium_database>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || given(database, "database")?.0.sync())
}

/// Writes all memtables to tables and waits until this is done.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_flush(
    database: Option<&alluvium_database>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || given(database, "database")?.0.flush())
}

/// Flushes, then waits until no compaction is due.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_settle(
    database: Option<&alluvium_database>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || given(database, "database")?.0.settle())
}

/// Gets the number of the newest commit that readers see.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_visible_seqno(
    database: Option<&alluvium_database>,
    seqno: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, seqno, || {
        Ok(given(database, "database")?.0.visible_seqno())
    })
}

/// Gets the time by which a read that begins now judges expiry, in milliseconds since 1970. It
/// follows the wall clock, or after a jump of the wall clock the clock since the machine's start.
/// Compute expiry times from this time: then a wrong wall clock cannot hide the rows.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_now_ms(
    database: Option<&alluvium_database>,
    now_ms: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, now_ms, || given(database, "database")?.0.now_ms())
}

/// Sets back the time stored in the closed database at `path`. The time of reads never falls below
/// this stored time. For a database that has recorded a wrong clock, as
/// ALLUVIUM_EVENT_KIND_STORED_TIME_AHEAD reports. `stored_ms` gets the time stored before the call.
/// Durable when the call returns. ALLUVIUM_CODE_INVALID_ARGUMENT for a time later than the stored
/// one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_set_stored_time(
    path: *const c_char,
    path_size: usize,
    to_ms: u64,
    stored_ms: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let path = unsafe { bytes(path, path_size) };
    answer(error, stored_ms, || {
        alluvium::set_stored_time(path_of(path?)?, to_ms)
    })
}
