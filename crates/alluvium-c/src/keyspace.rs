//! Keyspaces: opening, dropping, declared options, and reads of the newest commit.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use alluvium::{Database, Error, Keyspace, Result};

use crate::borrow::{array_out, buffer, bytes, given, lend, slices, slot, text, utf8};
use crate::call::{call, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::options::alluvium_keyspace_options;
use crate::sized;
use crate::value::{alluvium_slice, alluvium_value};

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
    call(error, || {
        let slot = slot(keyspace)?;
        let database = &given(database, "database")?.0;
        let opened = database.keyspace(name?, options?.to_engine()?)?;
        slot.set(alluvium_keyspace(opened));
        Ok(())
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
            array_out(keyspaces, count),
        )
    };
    call(error, || {
        let places = keyspaces?;
        for place in &mut *places {
            place.write(std::ptr::null_mut());
        }
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
    call(error, || {
        let slot = slot(keyspace)?;
        let found = given(database, "database")?.0.existing_keyspace(name?)?;
        slot.set_option(found.map(alluvium_keyspace));
        Ok(())
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

/// Gets the newest committed value of a key, to be freed; NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_get(
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    value: Option<&mut MaybeUninit<*mut alluvium_value>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let key = unsafe { bytes(key, key_size) };
    call(error, || {
        let slot = slot(value)?;
        let found = given(keyspace, "keyspace")?.0.get(key?)?;
        slot.set_option(found.map(alluvium_value));
        Ok(())
    })
}

/// Copies the newest committed value of a key into a buffer, truncated to the size of the buffer.
/// `value_size` gets the size of the whole value; `found` gets true if there is a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_get_into(
    keyspace: Option<&alluvium_keyspace>,
    key: *const c_void,
    key_size: usize,
    data: *mut c_void,
    data_size: usize,
    value_size: Option<&mut MaybeUninit<usize>>,
    found: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (key, buffer) = unsafe {
        (
            bytes(key, key_size),
            buffer(data, data_size, value_size, found),
        )
    };
    call(error, || {
        let buffer = buffer?;
        let keyspace = &given(keyspace, "keyspace")?.0;
        keyspace.read(key?, |value| buffer.fill(value))
    })
}

/// Gets the values of `count` keys at one commit. `values` has room for `count` handles, each to be
/// freed; NULL for a key without a value. After an error all are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_keyspace_multi_get(
    keyspace: Option<&alluvium_keyspace>,
    keys: *const alluvium_slice,
    count: usize,
    values: *mut *mut alluvium_value,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (keys, values) = unsafe { (slices(keys, count), array_out(values, count)) };
    call(error, || {
        let values = Values::new(values?);
        values.set(given(keyspace, "keyspace")?.0.multi_get(&keys?)?);
        Ok(())
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

/// The caller's places for the values of several keys.
pub(crate) struct Values<'a>(&'a mut [MaybeUninit<*mut alluvium_value>]);

impl<'a> Values<'a> {
    /// Sets all places to NULL.
    pub fn new(places: &'a mut [MaybeUninit<*mut alluvium_value>]) -> Values<'a> {
        for place in &mut *places {
            place.write(std::ptr::null_mut());
        }
        Values(places)
    }

    pub fn set(self, values: Vec<Option<alluvium::Value>>) {
        for (place, value) in self.0.iter_mut().zip(values) {
            if let Some(value) = value {
                place.write(Box::into_raw(Box::new(alluvium_value(value))));
            }
        }
    }
}
