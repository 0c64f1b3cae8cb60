//! Results on disk: the JSON of one suite ([`result`], `figures`, [`sweep`], [`rate_search`],
//! [`mod@file`]) and the SQLite file of all suites ([`history`]).

mod figures;
pub mod file;
pub mod history;
pub mod rate_search;
pub mod result;
pub mod sweep;
