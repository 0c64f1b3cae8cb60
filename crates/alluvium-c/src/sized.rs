//! Structs that begin with their size, so that later versions can add fields at the end.
//!
//! The caller's size gives the part of the struct that its header defines. If it is shorter than
//! ours, the missing fields are zero, and zero means the default in every field. If it is longer,
//! the unknown part must be zero: otherwise the caller asks for a feature that this library does
//! not have. Structs filled for the caller follow the same rule.

use std::mem::MaybeUninit;

use alluvium::Result;

use crate::borrow::invalid;

/// A struct that begins with its size.
///
/// # Safety
///
/// It is `repr(C)` without padding, and its first field is a `usize`. Each field may have any bits,
/// or at least all bits that C gives a field of its type, zero among them.
pub(crate) unsafe trait SizedStruct: Copy {}

/// Upper limit of `struct_size`: no struct is larger, so a larger number means that the field is
/// not initialized.
const SIZE_MAX: usize = 4096;

fn checked_size(size: usize) -> Result<usize> {
    match size {
        size if (size_of::<usize>()..=SIZE_MAX).contains(&size) => Ok(size),
        size => Err(invalid(format!("struct_size is {size}: set it to sizeof"))),
    }
}

/// Returns a copy of the caller's struct; all zeros for NULL.
pub(crate) unsafe fn read<T: SizedStruct>(given: *const T) -> Result<T> {
    let mut own = MaybeUninit::<T>::zeroed();
    if !given.is_null() {
        // SAFETY: the contract: the size is there, and as many bytes as it says are initialized.
        // `own` is another object with room for the copied part.
        unsafe {
            let size = checked_size(given.cast::<usize>().read_unaligned())?;
            let known = size.min(size_of::<T>());
            let start = given.cast::<u8>();
            std::ptr::copy_nonoverlapping(start, own.as_mut_ptr().cast(), known);
            let unknown = std::slice::from_raw_parts(start.add(known), size - known);
            if unknown.iter().any(|byte| *byte != 0) {
                return Err(invalid(
                    "an option struct sets what this version does not know",
                ));
            }
        }
    }
    // SAFETY: zeros and the bits that C gave the fields are valid for a `SizedStruct`.
    Ok(unsafe { own.assume_init() })
}

/// Checks in advance that [`write`] will accept the caller's struct; NULL is accepted here.
pub(crate) unsafe fn check<T: SizedStruct>(place: *const T) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    // SAFETY: the contract: the size is there.
    checked_size(unsafe { place.cast::<usize>().read_unaligned() }).map(drop)
}

/// Fills the caller's struct up to its size; fields unknown to this library become zero. The size
/// stays unchanged.
pub(crate) unsafe fn write<T: SizedStruct>(place: *mut T, value: &T) -> Result<()> {
    if place.is_null() {
        return Err(invalid("the place for the result is NULL"));
    }
    // SAFETY: the contract: the size is there, and as many bytes as it says may be written. `value`
    // is another object without padding, so all its bytes are initialized.
    unsafe {
        let size = checked_size(place.cast::<usize>().read_unaligned())?;
        let start = place.cast::<u8>();
        std::ptr::write_bytes(start, 0, size);
        let known = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), start, known);
        place.cast::<usize>().write_unaligned(size);
    }
    Ok(())
}

/// Like [`write`]; does nothing for NULL.
pub(crate) unsafe fn write_if_given<T: SizedStruct>(place: *mut T, value: &T) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    // SAFETY: the contract, passed on.
    unsafe { write(place, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Known {
        struct_size: usize,
        first: u64,
    }

    #[repr(C)]
    struct Newer {
        known: Known,
        second: u64,
    }

    // SAFETY: two integers of the same size.
    unsafe impl SizedStruct for Known {}

    fn known(struct_size: usize) -> Known {
        Known {
            struct_size,
            first: 7,
        }
    }

    #[test]
    fn a_shorter_struct_has_zeros_for_the_rest() {
        let older = known(8);
        // SAFETY: a whole struct; only its first part is read.
        let read = unsafe { read(&raw const older) };
        assert_eq!(read.map(|r| r.first).ok(), Some(0));
    }

    #[test]
    fn a_longer_struct_is_refused_only_where_it_asks_for_more() {
        let known = known(24);
        for (second, fine) in [(0, true), (1, false)] {
            let newer = Newer { known, second };
            // SAFETY: the struct has the size in its first field.
            let read = unsafe { read((&raw const newer).cast::<Known>()) };
            assert_eq!(read.is_ok(), fine);
        }
    }

    #[test]
    fn sizes_that_no_struct_has_are_refused() {
        for size in [0, 7, 4097, usize::MAX] {
            let own = known(size);
            // SAFETY: the size is refused before anything after it is read.
            assert!(unsafe { read(&raw const own) }.is_err());
        }
    }

    #[test]
    fn filling_stops_at_the_callers_size_and_clears_what_is_unknown() {
        let mut older = known(8);
        let value = Known {
            struct_size: 16,
            first: 9,
        };
        // SAFETY: a whole struct; only its first part is written.
        unsafe { write(&raw mut older, &value) }.expect("the size is fine");
        assert_eq!(older, known(8));
        let (mut newer, second) = (known(24), 5);
        newer.first = 1;
        let mut newer = Newer {
            known: newer,
            second,
        };
        // SAFETY: the struct has the size in its first field.
        unsafe { write((&raw mut newer).cast::<Known>(), &value) }.expect("the size is fine");
        assert_eq!((newer.known.first, newer.second), (9, 0));
        assert_eq!(newer.known.struct_size, 24);
    }
}
