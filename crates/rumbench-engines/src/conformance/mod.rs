//! Three conformance suites for engines, independent of their implementation.
//!
//! [`key_value`] checks an ordered key-value engine opened with [`KEY_VALUE_MAPS`], each case on a
//! fresh database. [`key_value_table`] checks a table store with the one table of
//! [`key_value_schema`], and [`table_store`] one with the columns and indexes of [`table_schema`].
//! A failed check panics with the value found and the value expected. No suite holds two
//! transactions on one thread, because an engine with a single writer would deadlock.

mod calls;
mod concurrency;
mod loading;
mod ranges;
mod rows;
mod table_rows;
mod tables;
mod transactions;
mod visibility;

pub use calls::KEY_VALUE_MAPS;
pub use rows::{key_value_schema, key_value_table};
pub use table_rows::table_schema;
pub use tables::table_store;

use std::path::Path;

use rumbench_core::engine::Engine;
use rumbench_core::kv::KvEngine;

use calls::ok;

/// Runs every case for a key-value engine. `open` opens [`KEY_VALUE_MAPS`] in an existing
/// directory, empty or with a database in it. `root` is an empty directory.
///
/// # Panics
/// If the engine misbehaves.
pub fn key_value<E: KvEngine + Engine>(root: &Path, open: &dyn Fn(&Path) -> E) {
    let with_transactions: &[fn(&E)] = &[
        visibility::committed_rows_are_seen,
        visibility::uncommitted_rows_are_not_seen,
        visibility::a_dropped_transaction_leaves_nothing,
        visibility::a_transaction_reads_its_own_writes,
        visibility::deleted_rows_are_gone,
        ranges::ranges_keep_to_their_prefix,
        visibility::maps_do_not_share_keys,
        concurrency::no_increment_is_lost,
        concurrency::absent_rows_are_protected_too,
        concurrency::transfers_keep_the_sum,
        visibility::unknown_maps_are_errors,
    ];
    run(&root.join("with-transactions"), open, with_transactions);
    key_value_without_transactions(root, open);
}

/// Runs the cases of [`key_value`] that begin no transaction, for an engine opened without
/// transactions.
///
/// # Panics
/// If the engine misbehaves.
pub fn key_value_without_transactions<E: KvEngine + Engine>(
    root: &Path,
    open: &dyn Fn(&Path) -> E,
) {
    let cases: &[fn(&E)] = &[
        visibility::single_puts_are_commits_of_their_own,
        visibility::multi_gets_answer_each_key_in_its_place,
        ranges::ranges_both_ways,
        ranges::visitors_stop_scans,
        ranges::keys_are_ordered_as_bytes,
        visibility::large_and_empty_values,
        loading::a_bulk_load_is_complete,
        loading::ingested_rows_are_rows_like_all_others,
        loading::two_maps_are_ingested_at_once,
        loading::bulk_deletes_remove_exactly_their_keys,
    ];
    run(&root.join("without-transactions"), open, cases);
    loading::rows_survive_settle_and_reopen(root, open);
}

fn run<E: Engine>(root: &Path, open: &dyn Fn(&Path) -> E, cases: &[fn(&E)]) {
    for (number, case) in cases.iter().enumerate() {
        let dir = root.join(format!("case-{number}"));
        std::fs::create_dir_all(&dir).expect("create a directory for the case");
        let engine = open(&dir);
        case(&engine);
        ok(Box::new(engine).close(), "close");
    }
}
