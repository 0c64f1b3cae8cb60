//! C interface of Alluvium: a thin unsafe layer over the public interface of the engine.
//!
//! `include/alluvium.h` is generated from this crate by `cargo xtask header`, comments included, so
//! doc comments here are written for C programmers. The guide is `docs/guide/c.md`.
//!
//! Rules that the caller of every function follows, and that each `unsafe` block relies on (**the
//! contract**):
//!
//! - A pointer is NULL or points to an object of its type, of the size passed with it, for as long
//!   as the call lasts. Nothing else changes that object meanwhile.
//! - A handle came from this library and was not freed. Any number of threads may use databases,
//!   keyspaces, snapshots, values, lists, reports, single changes, errors and cancellation tokens
//!   at the same time. Batches, cursors, transactions, prepared transactions, ingests, backup
//!   stores and streams of changes may be used by any thread, but by one at a time.
//! - A reader or writer came from this library, or is zeroed, and its handles were not freed.
//!
//! In return, this crate guarantees the following. NULL in place of a required argument gives
//! `InvalidArgument`. No panic unwinds into the caller. Every object handed out has a function that
//! frees it, and that function accepts NULL. This crate has no thread-locals.
//!
//! Signatures use references in place of pointers wherever they have the same representation
//! (`Option<&T>`, `Option<Box<T>>`). Only bytes, arrays, sized structs, callbacks, readers and
//! writers need `unsafe`: see `borrow`, `sized`, `callback`, `reader` and `writer`.
//!
//! An enum that a function returns has a fixed size. The other enums only name the numbers
//! in fields and arguments of type `u32`, so they are plain C enums.
#![expect(non_camel_case_types, reason = "types have their C names")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the contract above is that of every function"
)]

mod borrow;
mod call;
mod sized;

// In the order of the header, with gaps between its sections.
mod database;
mod error;
mod error_list;
mod listener;
mod lock_wait;
mod options;
mod value;

mod keyspace;
mod reader;
mod writer;

mod batch;
mod callback;
mod cursor;
mod snapshot;

mod lock_waits;
mod prepared;
mod statement;
mod transaction;

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
pub use lock_wait::*;
pub use lock_waits::*;
pub use maintenance::*;
pub use options::*;
pub use prepared::*;
pub use reader::*;
pub use repair::*;
pub use snapshot::*;
pub use statement::*;
pub use stats::*;
pub use transaction::*;
pub use value::*;
pub use verify::*;
pub use writer::*;
