//! The caller's arguments as checked references: bytes, text, arrays, and places for results.
//!
//! Functions that take raw pointers are unsafe: they require the contract of the crate and nothing
//! else. The references that they return are valid until the C call returns.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use alluvium::{Error, Result};

use crate::value::alluvium_slice;

/// Returns an [`Error::InvalidArgument`].
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::InvalidArgument(message.into())
}

/// Returns a required argument; an error if it is NULL.
pub(crate) fn given<T>(pointer: Option<T>, name: &str) -> Result<T> {
    pointer.ok_or_else(|| invalid(format!("{name} is NULL")))
}

/// Returns the handle to which a reader or writer refers; an error if it is NULL. The caller has
/// chosen `T` by the kind that the reader or writer names.
pub(crate) unsafe fn owner<'a, T>(pointer: *const c_void, name: &str) -> Result<&'a T> {
    // SAFETY: the contract: a handle of this type, or NULL.
    given(unsafe { pointer.cast::<T>().as_ref() }, name)
}

/// Like [`owner`], for handles that only one thread at a time may use.
pub(crate) unsafe fn owner_mut<'a, T>(pointer: *mut c_void, name: &str) -> Result<&'a mut T> {
    // SAFETY: as above, and by the contract nothing else accesses it during the call.
    given(unsafe { pointer.cast::<T>().as_mut() }, name)
}

/// Returns the caller's bytes. NULL is allowed if `size` is 0.
pub(crate) unsafe fn bytes<'a, T>(data: *const T, size: usize) -> Result<&'a [u8]> {
    // SAFETY: the contract, passed on: `size` bytes are there, whatever their type in C.
    unsafe { array(data.cast(), size) }
}

/// Like [`bytes`]; `None` for NULL.
pub(crate) unsafe fn optional_bytes<'a, T>(
    data: *const T,
    size: usize,
) -> Result<Option<&'a [u8]>> {
    // SAFETY: the contract, passed on.
    let bytes = unsafe { bytes(data, size) }?;
    Ok((!data.is_null()).then_some(bytes))
}

/// Returns the caller's text; an error if it is not UTF-8.
pub(crate) unsafe fn text<'a>(data: *const c_char, size: usize) -> Result<&'a str> {
    // SAFETY: the contract, passed on.
    utf8(unsafe { bytes(data, size) }?)
}

/// Returns a name as text; an error if it is not UTF-8.
pub(crate) fn utf8(name: &[u8]) -> Result<&str> {
    std::str::from_utf8(name).map_err(|_| invalid("a name is not UTF-8"))
}

/// Returns an array of slices, each checked like [`bytes`].
pub(crate) unsafe fn slices<'a>(
    data: *const alluvium_slice,
    count: usize,
) -> Result<Vec<&'a [u8]>> {
    // SAFETY: the contract, passed on, for the array and for each slice in it.
    unsafe {
        let slices = array(data, count)?;
        slices.iter().map(|s| bytes(s.data, s.size)).collect()
    }
}

unsafe fn array<'a, T>(data: *const T, count: usize) -> Result<&'a [T]> {
    check_array(data, count)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, aligned, no larger than an object can be. The contract says that `count`
    // elements are there and stay unchanged.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// Returns the caller's place for `count` handles, all set to NULL.
pub(crate) unsafe fn handles_out<'a, T>(
    data: *mut *mut T,
    count: usize,
) -> Result<&'a mut [MaybeUninit<*mut T>]> {
    // SAFETY: the contract, passed on.
    let places = unsafe { array_out(data, count) }?;
    places.fill(MaybeUninit::new(std::ptr::null_mut()));
    Ok(places)
}

unsafe fn array_out<'a, T>(data: *mut T, count: usize) -> Result<&'a mut [MaybeUninit<T>]> {
    check_array(data, count)?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `array`, and by the contract nothing else accesses the array. It may be
    // uninitialized.
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), count) })
}

fn check_array<T>(data: *const T, count: usize) -> Result<()> {
    if data.is_null() && count > 0 {
        return Err(invalid("a pointer is NULL and its size is not 0"));
    }
    if !data.is_aligned() {
        return Err(invalid("a pointer is not aligned"));
    }
    match count.checked_mul(size_of::<T>()) {
        Some(size) if isize::try_from(size).is_ok() => Ok(()),
        _ => Err(invalid("a size is larger than any object can be")),
    }
}

/// Returns the caller's place for a number or bool, set to the type's default until the call sets
/// it.
pub(crate) fn plain<T: Default>(place: Option<&mut MaybeUninit<T>>) -> Result<&mut T> {
    Ok(given(place, "the place for the result")?.write(T::default()))
}

/// The caller's buffer for a value.
pub(crate) struct Buffer<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    value_size: &'a mut usize,
    found: &'a mut bool,
}

/// Returns the caller's buffer, with the places for the value's size and for `found`.
pub(crate) unsafe fn buffer<'a>(
    data: *mut c_void,
    size: usize,
    value_size: Option<&'a mut MaybeUninit<usize>>,
    found: Option<&'a mut MaybeUninit<bool>>,
) -> Result<Buffer<'a>> {
    let (value_size, found) = (plain(value_size)?, plain(found)?);
    // SAFETY: the contract, passed on.
    let bytes = unsafe { array_out(data.cast(), size) }?;
    Ok(Buffer {
        bytes,
        value_size,
        found,
    })
}

impl Buffer<'_> {
    /// Copies as much of the value as fits, and sets its full size and `found`. Changes nothing for
    /// `None`.
    pub fn fill(self, value: Option<&[u8]>) {
        let Some(value) = value else { return };
        let fits = value.len().min(self.bytes.len());
        self.bytes[..fits].write_copy_of_slice(&value[..fits]);
        *self.value_size = value.len();
        *self.found = true;
    }
}

/// Returns a pointer to the bytes for the caller and sets `size`. NULL stands for `None`; an empty
/// slice has a pointer and size 0.
pub(crate) fn lend(bytes: Option<&[u8]>, size: Option<&mut MaybeUninit<usize>>) -> *const u8 {
    if let Some(size) = size {
        size.write(bytes.map_or(0, <[u8]>::len));
    }
    match bytes {
        None => std::ptr::null(),
        Some([]) => c"".as_ptr().cast(),
        Some(bytes) => bytes.as_ptr(),
    }
}
