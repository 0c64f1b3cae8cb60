//! Keyspaces: opening, dropping and declared options.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use alluvium::{Database, Error, Keyspace, Result};

use crate::borrow::{given, handles_out, lend, slices, text, utf8};
use crate::call::{answer, call, find, make, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::options::alluvium_keyspace_options;
use crate::sized;
use crate::value::alluvium_slice;

/// Handle of a keyspace: an ordered map from byte keys to byte values. Keeps the database open.
pub struct alluvium_keyspace(pub(crate) Keyspace);

/// Opens the keyspace of this name (UTF-8), creating it with `options` if it does not exist. The
/// options of an existing keyspace stay unchanged. `options` may be NULL. A creation is durable
/// when the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_open(
    database: Option<&alluvium_database>,
    name: *const c_char,
    name_size: usize,
    options: *const alluvium_keyspace_options,
    keyspace: Option<&mut MaybeUninit<*mut alluvium_keyspace>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (name, options) = unsafe { (text(name, name_size), sized::read(options)) };
    make(error, keyspace, || {
        let database = &given(database, "database")?.0;
        let opened = database.keyspace(name?, options?.to_engine()?)?;
        Ok(alluvium_keyspace(opened))
    })
}

/// Opens the keyspaces of `count` names (UTF-8) and writes their handles to the array `keyspaces`,
/// in this order. Missing keyspaces are created with `options`, which may be NULL. After an error
/// none is created, and all handles are NULL. Creating any number takes as many syncs as creating
/// one. Durable when the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspaces_open(
    database: Option<&alluvium_database>,
    names: *const alluvium_slice,
    count: usize,
    options: *const alluvium_keyspace_options,
    keyspaces: *mut *mut alluvium_keyspace,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (names, options, keyspaces) = unsafe {
        (
            slices(names, count),
            sized::read(options),
            handles_out(keyspaces, count),
        )
    };
    call(error, || {
        let places = keyspaces?;
        let options = options?.to_engine()?;
        let names = names?.into_iter().map(utf8).collect::<Result<Vec<_>>>()?;
        let wanted: Vec<_> = names.iter().map(|name| (name, options.clone())).collect();
        let opened = given(database, "database")?.0.keyspaces(&wanted)?;
        for (place, keyspace) in places.iter_mut().zip(opened) {
            place.write(Box::into_raw(Box::new(alluvium_keyspace(keyspace))));
        }
        Ok(())
    })
}

/// Opens the existing keyspace of this name; `keyspace` gets NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_existing(
    database: Option<&alluvium_database>,
    name: *const c_char,
    name_size: usize,
    keyspace: Option<&mut MaybeUninit<*mut alluvium_keyspace>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let name = unsafe { text(name, name_size) };
    find(error, keyspace, || {
        let found = given(database, "database")?.0.existing_keyspace(name?)?;
        Ok(found.map(alluvium_keyspace))
    })
}

/// Drops a keyspace with everything in it, durably. From then on its handles give
/// ALLUVIUM_CODE_KEYSPACE_DROPPED; they must still be freed. ALLUVIUM_CODE_KEYSPACE_IN_USE while a
/// prepared transaction writes to it.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_drop(
    database: Option<&alluvium_database>,
    keyspace: Option<&alluvium_keyspace>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let keyspace = given(keyspace, "keyspace")?;
        given(database, "database")?.0.drop_keyspace(&keyspace.0)
    })
}

/// Gets true if a prepared transaction without a decision writes to the keyspace.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_has_prepared_writer(
    database: Option<&alluvium_database>,
    keyspace: Option<&alluvium_keyspace>,
    has: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    answer(error, has, || {
        let keyspace = &given(keyspace, "keyspace")?.0;
        let writer = given(database, "database")?.0.prepared_writer(keyspace)?;
        Ok(writer.is_some())
    })
}

/// Returns another handle of the same keyspace, to be freed too; NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_clone(
    keyspace: Option<&alluvium_keyspace>,
) -> Option<Box<alluvium_keyspace>> {
    keyspace.map(|keyspace| Box::new(alluvium_keyspace(keyspace.0.clone())))
}

/// Frees a handle; the keyspace stays.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_free(keyspace: Option<Box<alluvium_keyspace>>) {
    quietly(|| drop(keyspace));
}

/// Returns the keyspace's name, without a terminating zero byte, valid as long as the handle.
/// `size` may be NULL. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_name(
    keyspace: Option<&alluvium_keyspace>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(keyspace.map(|keyspace| keyspace.0.name().as_bytes()), size)
}

/// Returns the keyspace's identity on disk, never 0; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_keyspace_id(keyspace: Option<&alluvium_keyspace>) -> u32 {
    keyspace.map_or(0, |keyspace| keyspace.0.id().0)
}

/// Fills `options` (its struct_size must be set) with the keyspace's declared options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_get_options(
    keyspace: Option<&alluvium_keyspace>,
    options: *mut alluvium_keyspace_options,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let declared = given(keyspace, "keyspace")?.0.options();
        let declared = alluvium_keyspace_options::of_engine(&declared);
        // SAFETY: the contract of the crate.
        unsafe { sized::write(options, &declared) }
    })
}

/// Returns the keyspace's name for look-ups in the database. Error if the keyspace was dropped,
/// even if another one now has its name.
pub(crate) fn name_within<'a>(database: &Database, keyspace: &'a Keyspace) -> Result<&'a str> {
    let name = keyspace.name();
    let existing = database.existing_keyspace(name)?;
    if existing.is_some_and(|existing| existing.id() == keyspace.id()) {
        Ok(name)
    } else {
        Err(Error::KeyspaceDropped(name.to_owned()))
    }
}
