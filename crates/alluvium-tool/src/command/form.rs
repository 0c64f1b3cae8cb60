//! Form of arguments and answers, which all commands share.

use clap::Args;

use crate::text::Coding;

/// The form of arguments and answers.
#[derive(Args, Clone, Copy)]
pub struct Form {
    /// Answer with one JSON document
    #[arg(long, global = true)]
    pub json: bool,
    /// Keys and values as hexadecimal digits, given and shown; otherwise as text with \xNN escapes
    #[arg(long, global = true)]
    pub hex: bool,
}

impl Form {
    /// Returns the text form of keys and values.
    pub fn coding(self) -> Coding {
        if self.hex {
            Coding::Hex
        } else {
            Coding::Escaped
        }
    }
}
