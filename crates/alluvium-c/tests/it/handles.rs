//! Checks the header's statement about the handles that several threads may use.

use alluvium_c::*;

fn moves<T: Send>() {}
fn is_shared<T: Send + Sync>() {}

#[test]
fn handles_are_send_and_shared_ones_sync() {
    is_shared::<alluvium_database>();
    is_shared::<alluvium_keyspace>();
    is_shared::<alluvium_snapshot>();
    is_shared::<alluvium_value>();
    is_shared::<alluvium_list>();
    is_shared::<alluvium_error>();
    is_shared::<alluvium_lock_cancel>();
    is_shared::<alluvium_error_list>();
    is_shared::<alluvium_verify_report>();
    is_shared::<alluvium_repair_report>();
    is_shared::<alluvium_backup_list>();
    is_shared::<alluvium_change>();
    moves::<alluvium_batch>();
    moves::<alluvium_cursor>();
    moves::<alluvium_transaction>();
    moves::<alluvium_prepared>();
    moves::<alluvium_ingest>();
    moves::<alluvium_backup_store>();
    moves::<alluvium_changes>();
}
