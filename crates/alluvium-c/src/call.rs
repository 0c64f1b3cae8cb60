//! Wrapper of every function's body: catches panics, turns errors into codes and error objects.

use std::any::Any;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use alluvium::Result;

use crate::borrow::{given, plain};
use crate::error::{alluvium_code, alluvium_error};

/// Runs the body of a function and returns its code. `error`, if given, gets the error, or NULL
/// after success.
pub(crate) fn call(
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
    body: impl FnOnce() -> Result<()>,
) -> alluvium_code {
    // After a panic nothing of the body is used again except the engine. The engine survives panics
    // of its callers: its locks are released by unwinding.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(alluvium_error::new(&error)),
        Err(payload) => Some(alluvium_error::panicked(&message(payload))),
    };
    let code = failure
        .as_ref()
        .map_or(alluvium_code::Ok, alluvium_error::code);
    if let Some(place) = error {
        place.write(failure.map_or(std::ptr::null_mut(), |failure| {
            Box::into_raw(Box::new(failure))
        }));
    }
    code
}

/// Runs the body of a function that makes a handle. `place` gets the handle, or NULL after an
/// error.
pub(crate) fn make<T>(
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
    place: Option<&mut MaybeUninit<*mut T>>,
    body: impl FnOnce() -> Result<T>,
) -> alluvium_code {
    find(error, place, || body().map(Some))
}

/// Like [`make`]; `place` gets NULL for `None` too.
pub(crate) fn find<T>(
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
    place: Option<&mut MaybeUninit<*mut T>>,
    body: impl FnOnce() -> Result<Option<T>>,
) -> alluvium_code {
    call(error, || {
        let place = given(place, "the place for the result")?.write(std::ptr::null_mut());
        if let Some(handle) = body()? {
            *place = Box::into_raw(Box::new(handle));
        }
        Ok(())
    })
}

/// Runs the body of a function that computes a number or bool. `place` gets it, or the type's
/// default after an error.
pub(crate) fn answer<T: Default>(
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
    place: Option<&mut MaybeUninit<T>>,
    body: impl FnOnce() -> Result<T>,
) -> alluvium_code {
    call(error, || {
        let place = plain(place)?;
        *place = body()?;
        Ok(())
    })
}

/// Runs a body that cannot report an error, such as dropping the last handle of a database. A panic
/// is ignored.
pub(crate) fn quietly(body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        message(payload);
    }
}

/// Returns the message of a panic.
fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
    // A payload of another type may panic in its destructor, so it is leaked.
    if text.is_none() {
        std::mem::forget(payload);
    }
    text.unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{alluvium_error_free, alluvium_error_message};
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let mut place = MaybeUninit::uninit();
        let code = call(Some(&mut place), || panic!("boom {}", 1));
        assert_eq!(code, alluvium_code::Panic);
        // SAFETY: `call` has written `place`, here with a boxed error.
        let error = unsafe { Box::from_raw(place.assume_init()) };
        let message = alluvium_error_message(Some(&error), None);
        // SAFETY: messages end with a zero byte and live as long as their error.
        let message = unsafe { CStr::from_ptr(message) };
        assert!(message.to_str().is_ok_and(|m| m.contains("boom 1")));
        alluvium_error_free(Some(error));
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_survived() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let code = call(None, || std::panic::panic_any(Bomb));
        assert_eq!(code, alluvium_code::Panic);
        quietly(|| std::panic::panic_any(Bomb));
    }
}
