//! Backups: numbered copies of databases in one directory, which share their common files.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use alluvium::backup::{BackupInfo, BackupStore};

use crate::borrow::{bytes, given, invalid};
use crate::call::{call, make, quietly};
use crate::database::{alluvium_database, path_of};
use crate::error::{alluvium_code, alluvium_error};
use crate::error_list::alluvium_error_list;
use crate::sized::{self, SizedStruct};

/// Properties of one backup.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_backup_info {
    /// sizeof(alluvium_backup_info), set by the caller.
    pub struct_size: usize,
    /// The backup's number. Larger is newer; after the newest backup is deleted, its number is used
    /// again.
    pub id: u64,
    /// Newest commit in the backup. It contains every commit up to this one, and no later one.
    pub seqno: u64,
    /// Time of its creation, in seconds since 1970 by the system's clock.
    pub created: u64,
    /// Number of its table files and value files.
    pub tables: u64,
    /// Bytes of all its files, shared or not.
    pub bytes: u64,
    /// Bytes copied to create it; 0 in a listing.
    pub copied_bytes: u64,
}

// SAFETY: repr(C), the size first, integers only; the assertion below finds padding.
unsafe impl SizedStruct for alluvium_backup_info {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<alluvium_backup_info>() == 7 * 8);

impl alluvium_backup_info {
    fn of_engine(info: &BackupInfo) -> alluvium_backup_info {
        alluvium_backup_info {
            struct_size: size_of::<alluvium_backup_info>(),
            id: info.id,
            seqno: info.seqno,
            created: info.created,
            tables: info.tables,
            bytes: info.bytes,
            copied_bytes: info.copied_bytes,
        }
    }
}

/// A directory of backups, locked until this is freed. For one thread at a time.
pub struct alluvium_backup_store(BackupStore);

/// The backups of a store at the time of the call, oldest first, and the unreadable listings.
pub struct alluvium_backup_list {
    backups: Vec<BackupInfo>,
    damaged: Vec<(u64, alluvium_error)>,
}

/// Opens the store in a directory, creating it if it is missing; its parent must exist.
/// ALLUVIUM_CODE_LOCKED while it is open elsewhere, ALLUVIUM_CODE_INVALID_ARGUMENT for the
/// directory of a database. A store that cannot be written, as on a read-only mount, is opened for
/// reading: calls that make or delete a backup then give the error from the opening.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_backup_store_open(
    path: *const c_char,
    path_size: usize,
    store: Option<&mut MaybeUninit<*mut alluvium_backup_store>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let path = unsafe { bytes(path, path_size) };
    make(error, store, || {
        let opened = BackupStore::open(path_of(path?)?)?;
        Ok(alluvium_backup_store(opened))
    })
}

/// Opens an existing store, to list, verify and restore its backups. Nothing in the directory
/// changes, and any number of readers share it. Calls that make or delete a backup give
/// ALLUVIUM_CODE_READ_ONLY. ALLUVIUM_CODE_LOCKED while it is open for writing elsewhere,
/// ALLUVIUM_CODE_INVALID_ARGUMENT for a directory that is no store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_backup_store_open_read_only(
    path: *const c_char,
    path_size: usize,
    store: Option<&mut MaybeUninit<*mut alluvium_backup_store>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let path = unsafe { bytes(path, path_size) };
    make(error, store, || {
        let opened = BackupStore::open_read_only(path_of(path?)?)?;
        Ok(alluvium_backup_store(opened))
    })
}

/// Makes a backup of everything committed, while commits continue. It copies only files that no
/// earlier backup has, and checks every row of a copy. Durable when the call returns; after an
/// error there is no new backup. `info` may be NULL; its struct_size must be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_backup_store_create(
    store: Option<&alluvium_backup_store>,
    database: Option<&alluvium_database>,
    info: *mut alluvium_backup_info,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let info_given = unsafe { sized::check(info) };
    call(error, || {
        // Checked first: a failure after the backup was made would report an error although the
        // backup exists.
        info_given?;
        let database = &given(database, "database")?.0;
        let made = given(store, "store")?.0.create(database)?;
        // SAFETY: the contract of the crate.
        unsafe { sized::write_if_given(info, &alluvium_backup_info::of_engine(&made)) }
    })
}

/// Gets all backups, as a list to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_backup_store_list(
    store: Option<&alluvium_backup_store>,
    list: Option<&mut MaybeUninit<*mut alluvium_backup_list>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    make(error, list, || {
        let found = given(store, "store")?.0.list()?;
        let damaged = found.damaged.iter();
        Ok(alluvium_backup_list {
            damaged: damaged
                .map(|(id, error)| (*id, alluvium_error::new(error)))
                .collect(),
            backups: found.backups,
        })
    })
}

/// Reads every file of a backup. `damages` gets the list of damages, to be freed; if it is empty,
/// the backup can be restored. ALLUVIUM_CODE_INVALID_ARGUMENT if there is no backup with this
/// number.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_backup_store_verify(
    store: Option<&alluvium_backup_store>,
    id: u64,
    damages: Option<&mut MaybeUninit<*mut alluvium_error_list>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    make(error, damages, || {
        let found = given(store, "store")?.0.verify(id)?;
        Ok(alluvium_error_list::new(&found))
    })
}

/// Restores a backup as a database at `target`, which must not exist; its parent must exist.
/// Durable when the call returns; after an error nothing is left at the target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_backup_store_restore(
    store: Option<&alluvium_backup_store>,
    id: u64,
    target: *const c_char,
    target_size: usize,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let target = unsafe { bytes(target, target_size) };
    call(error, || {
        given(store, "store")?.0.restore(id, path_of(target?)?)
    })
}

/// Removes a backup, and the tables that no other backup has. ALLUVIUM_CODE_INVALID_ARGUMENT if
/// there is no such backup.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_backup_store_delete(
    store: Option<&alluvium_backup_store>,
    id: u64,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || given(store, "store")?.0.delete(id))
}

/// Frees a store and releases its lock; the backups stay.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_backup_store_free(store: Option<Box<alluvium_backup_store>>) {
    quietly(|| drop(store));
}

/// Returns the number of backups in the list, without damaged ones; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_backup_list_count(list: Option<&alluvium_backup_list>) -> usize {
    list.map_or(0, |list| list.backups.len())
}

/// Fills `info` (its struct_size must be set) with the backup at this index, counted from 0.
/// ALLUVIUM_CODE_INVALID_ARGUMENT if the index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_backup_list_item(
    list: Option<&alluvium_backup_list>,
    index: usize,
    info: *mut alluvium_backup_info,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let found = given(list, "list")?.backups.get(index);
        let found = found.ok_or_else(|| invalid("the list has less backups"))?;
        // SAFETY: the contract of the crate.
        unsafe { sized::write(info, &alluvium_backup_info::of_engine(found)) }
    })
}

/// Returns the number of unreadable listings of backups; 0 for NULL. While there is one, the store
/// removes no table, because that backup may need it.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_backup_list_damaged_count(list: Option<&alluvium_backup_list>) -> usize {
    list.map_or(0, |list| list.damaged.len())
}

/// Returns the error of the damaged listing at this index, counted from 0; NULL if the index is out
/// of range. `id`, which may be NULL, gets the number of its backup. The error is part of the list.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_backup_list_damaged<'a>(
    list: Option<&'a alluvium_backup_list>,
    index: usize,
    id: Option<&mut MaybeUninit<u64>>,
) -> Option<&'a alluvium_error> {
    let damaged = list.and_then(|list| list.damaged.get(index));
    if let Some(id) = id {
        id.write(damaged.map_or(0, |(id, _)| *id));
    }
    damaged.map(|(_, error)| error)
}

/// Frees a list.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_backup_list_free(list: Option<Box<alluvium_backup_list>>) {
    quietly(|| drop(list));
}
