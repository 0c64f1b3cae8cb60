//! Results on disk: the JSON of one suite ([`result`], `phase`, `figures`, [`finding`],
//! [`sweep`], [`rate_search`], [`mod@file`]) and the SQLite file of all suites ([`history`]).

mod figures;
pub mod file;
pub mod finding;
pub mod history;
mod phase;
pub mod rate_search;
pub mod result;
pub mod sweep;
