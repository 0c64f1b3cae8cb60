//! What a decoder found wrong: decoders are pure and do not know their file, their callers add path
//! and offset.

use crate::Error;
use std::fmt::Display;
use std::path::Path;

/// A structure that does not say what its format allows.
#[derive(Debug)]
pub(in crate::table) struct Malformed {
    what: &'static str,
    expected: String,
    found: String,
}

impl Malformed {
    /// `what` should have been `expected`.
    pub(in crate::table) fn new(
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

    /// The error for the structure at `offset` of the file `path`.
    pub(in crate::table) fn at(self, path: &Path, offset: u64) -> Error {
        Error::corruption(path, offset, self.what, self.expected, self.found)
    }
}
