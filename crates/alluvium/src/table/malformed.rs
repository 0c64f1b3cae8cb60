//! Errors of decoders. Decoders are pure and do not know their file; their callers add path and
//! offset.

use crate::Error;
use std::fmt::Display;
use std::path::Path;

/// Content that violates the format.
#[derive(Debug)]
pub(super) struct Malformed {
    what: &'static str,
    expected: String,
    found: String,
}

impl Malformed {
    /// Creates the error for a `what` that should have been `expected`.
    pub(super) fn new(
        what: &'static str,
        expected: impl Display,
        found: impl Display,
    ) -> Malformed {
        Malformed {
            what,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// Returns the error for the structure at `offset` of the file `path`.
    pub(super) fn at(self, path: &Path, offset: u64) -> Error {
        Error::corruption(path, offset, self.what, self.expected, self.found)
    }
}
