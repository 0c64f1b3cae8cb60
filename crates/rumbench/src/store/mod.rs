//! Results on disk: the JSON of one suite ([`result`], [`sweep`], [`mod@file`]) and the SQLite file of all suites ([`history`]).

pub mod file;
pub mod history;
pub mod result;
pub mod sweep;
