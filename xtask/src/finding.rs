//! Finding of a check: a place and a sentence.

use std::fmt;

/// One violation of a rule, shown as `path:line: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the root of the workspace.
    pub path: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Description of the violation and, if it is not obvious, of the fix.
    pub message: String,
    /// True if it is shown but does not fail the check.
    pub warning: bool,
}

impl Finding {
    /// Returns a violation that fails the check.
    pub fn error(path: &str, line: usize, message: impl Into<String>) -> Finding {
        let (path, message, warning) = (path.to_string(), message.into(), false);
        Finding {
            path,
            line,
            message,
            warning,
        }
    }

    /// Returns a warning, which does not fail the check.
    pub fn warning(path: &str, line: usize, message: impl Into<String>) -> Finding {
        let warning = true;
        Finding {
            warning,
            ..Finding::error(path, line, message)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.warning { "warning: " } else { "" };
        write!(f, "{}:{}: {mark}{}", self.path, self.line, self.message)
    }
}
