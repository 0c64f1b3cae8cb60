//! Bytes returned to callers: values that outlive the call, and lists of names.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use alluvium::Value;

use crate::borrow::lend;
use crate::call::quietly;

/// Bytes with their size. NULL is valid for no bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_slice {
    /// The bytes.
    pub data: *const c_void,
    /// Number of bytes.
    pub size: usize,
}

impl alluvium_slice {
    /// Returns bytes of this library for the caller to read: never NULL.
    pub(crate) fn lent(bytes: &[u8]) -> alluvium_slice {
        alluvium_slice {
            data: lend(Some(bytes), None).cast(),
            size: bytes.len(),
        }
    }

    /// Returns NULL with size 0.
    pub(crate) fn none() -> alluvium_slice {
        alluvium_slice {
            data: std::ptr::null(),
            size: 0,
        }
    }
}

/// A value that stays readable until it is freed, also after the database is closed.
pub struct alluvium_value(pub(crate) Value);

/// Returns the bytes of a value, valid until the value is freed; NULL only for NULL. `size` may be
/// NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_value_data(
    value: Option<&alluvium_value>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    lend(value.map(|value| &value.0[..]), size)
}

/// Returns another handle of the same value, to be freed too; NULL for NULL. A large value is not
/// copied.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_value_clone(
    value: Option<&alluvium_value>,
) -> Option<Box<alluvium_value>> {
    value.map(|value| Box::new(alluvium_value(value.0.clone())))
}

/// Frees a value.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_value_free(value: Option<Box<alluvium_value>>) {
    quietly(|| drop(value));
}

/// A list of byte strings.
pub struct alluvium_list(pub(crate) Vec<Vec<u8>>);

/// Returns the number of strings in the list; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_list_count(list: Option<&alluvium_list>) -> usize {
    list.map_or(0, |list| list.0.len())
}

/// Returns the string at this index, counted from 0, without a terminating zero byte; NULL if the
/// index is out of range. It lives as long as the list. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_list_item(
    list: Option<&alluvium_list>,
    index: usize,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    let item = list.and_then(|list| list.0.get(index));
    lend(item.map(Vec::as_slice), size)
}

/// Frees a list.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_list_free(list: Option<Box<alluvium_list>>) {
    quietly(|| drop(list));
}
