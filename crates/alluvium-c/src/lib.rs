//! The C interface of Alluvium: a thin unsafe shell over the public interface of the engine.
//!
//! `include/alluvium.h` is generated from this crate by `cargo xtask header`, comments included, so comments here
//! speak to C programmers. The guide is `docs/guide/c.md`.
//!
//! What holds for every function, and what each `unsafe` block relies on (**the contract**):
//!
//! - A pointer is NULL or points to what its type says, for the size that stands beside it, as long as the call lasts;
//!   what it points to is not changed meanwhile by anyone else.
//! - A handle came from this library and was not freed. Databases, keyspaces, snapshots, values, lists, reports, single
//!   changes, errors and cancellation tokens may be used by many threads at once; batches, cursors, transactions, prepared
//!   transactions, ingests, bulk loads, backup stores and streams of changes by one at a time, whichever it is.
//!
//! What this crate gives for it: NULL where something is needed is `InvalidArgument`; nothing unwinds into the caller;
//! everything handed out has a function that frees it, which takes NULL too; this crate has no thread-locals.
//!
//! References stand for pointers in the signatures wherever they have the same form (`Option<&T>`,
//! `Option<Box<T>>`), so that only bytes, arrays, sized structs and callbacks need `unsafe`: see `borrow`, `sized`
//! and `callback`.
#![expect(non_camel_case_types, reason = "types have their C names")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the contract above is that of every function"
)]

mod borrow;
mod call;
mod sized;

// In the order of the header, so with gaps.
mod database;
mod error;
mod error_list;
mod listener;
mod options;
mod value;

mod keyspace;
mod write;

mod batch;
mod callback;
mod cursor;
mod snapshot;

mod prepared;
mod transaction;
mod transaction_rows;

mod amplification;
mod histogram;
mod maintenance;
mod stats;

mod backup;
mod change;
mod changes;
mod ingest;
mod repair;
mod verify;

pub use amplification::*;
pub use backup::*;
pub use batch::*;
pub use callback::*;
pub use change::*;
pub use changes::*;
pub use cursor::*;
pub use database::*;
pub use error::*;
pub use error_list::*;
pub use histogram::*;
pub use ingest::*;
pub use keyspace::*;
pub use listener::*;
pub use maintenance::*;
pub use options::*;
pub use prepared::*;
pub use repair::*;
pub use snapshot::*;
pub use stats::*;
pub use transaction::*;
pub use transaction_rows::*;
pub use value::*;
pub use verify::*;
pub use write::*;
