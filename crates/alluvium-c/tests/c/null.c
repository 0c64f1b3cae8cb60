// NULL for any handle, place or struct gives an error or a defined result, never a crash.
#include "check.h"

static void free_and_get_accept_null(void) {
    alluvium_error_free(NULL);
    alluvium_value_free(NULL);
    alluvium_list_free(NULL);
    alluvium_database_free(NULL);
    alluvium_keyspace_free(NULL);
    alluvium_batch_free(NULL);
    alluvium_snapshot_free(NULL);
    alluvium_cursor_free(NULL);
    alluvium_transaction_free(NULL);
    alluvium_prepared_free(NULL);
    alluvium_lock_cancel_free(NULL);
    alluvium_lock_cancel_cancel(NULL);
    alluvium_batch_clear(NULL);
    CHECK(alluvium_database_clone(NULL) == NULL && alluvium_keyspace_clone(NULL) == NULL);
    CHECK(alluvium_snapshot_clone(NULL) == NULL && alluvium_value_clone(NULL) == NULL);
    CHECK(alluvium_error_code(NULL) == ALLUVIUM_CODE_OK && alluvium_error_message(NULL, NULL) == NULL);
    CHECK(alluvium_error_cause_count(NULL) == 0 && alluvium_error_cause(NULL, 0, NULL) == NULL);
    CHECK(alluvium_error_keyspace(NULL, NULL) == NULL && alluvium_error_key(NULL, NULL) == NULL);
    CHECK(alluvium_error_xid(NULL, NULL) == NULL && alluvium_error_path(NULL, NULL) == NULL);
    CHECK(alluvium_error_offset(NULL) == 0 && alluvium_error_os_code(NULL) == 0);
    CHECK(alluvium_value_data(NULL, NULL) == NULL && alluvium_prepared_xid(NULL, NULL) == NULL);
    CHECK(alluvium_list_count(NULL) == 0 && alluvium_list_item(NULL, 0, NULL) == NULL);
    CHECK(alluvium_keyspace_name(NULL, NULL) == NULL && alluvium_keyspace_id(NULL) == 0);
    CHECK(alluvium_batch_count(NULL) == 0 && alluvium_batch_is_empty(NULL));
    CHECK(alluvium_snapshot_seqno(NULL) == 0 && alluvium_cursor_seqno(NULL) == 0);
    CHECK(!alluvium_cursor_valid(NULL) && !alluvium_lock_cancel_is_canceled(NULL));
    CHECK(alluvium_cursor_key(NULL, NULL) == NULL && alluvium_cursor_value(NULL, NULL) == NULL);
    CHECK(alluvium_replacement_set(NULL, NULL, 0) == ALLUVIUM_CODE_INVALID_ARGUMENT);
}

static void handles_are_missing(void) {
    alluvium_database *database;
    alluvium_keyspace *keyspace;
    alluvium_list *list;
    alluvium_snapshot *snapshot;
    alluvium_transaction *transaction;
    alluvium_prepared *prepared;
    alluvium_value *value;
    alluvium_cursor *cursor;
    uint64_t number;
    size_t size;
    bool found;
    INVALID(alluvium_open("x", 1, NULL, NULL, E));
    INVALID(alluvium_open(NULL, 1, NULL, &database, E));
    INVALID(alluvium_close(NULL, E));
    INVALID(alluvium_sync(NULL, E));
    INVALID(alluvium_flush(NULL, E));
    INVALID(alluvium_settle(NULL, E));
    INVALID(alluvium_visible_seqno(NULL, &number, E));
    INVALID(alluvium_now_ms(NULL, &number, E));
    INVALID(alluvium_set_stored_time(NULL, 1, 0, &number, E));
    INVALID(alluvium_get_stats(NULL, NULL, E));
    INVALID(alluvium_keyspace_get_stats(NULL, NULL, NULL, E));
    INVALID(alluvium_keyspace_names(NULL, &list, E));
    INVALID(alluvium_keyspace_open(NULL, S("x"), NULL, &keyspace, E));
    INVALID(alluvium_keyspaces_open(NULL, NULL, 0, NULL, NULL, E));
    INVALID(alluvium_keyspace_existing(NULL, S("x"), &keyspace, E));
    INVALID(alluvium_keyspace_drop(NULL, NULL, E));
    INVALID(alluvium_keyspace_has_prepared_writer(NULL, NULL, NULL, E));
    INVALID(alluvium_keyspace_get_options(NULL, NULL, E));
    INVALID(alluvium_get(alluvium_keyspace_reader(NULL), S("x"), &value, E));
    INVALID(alluvium_get_into(alluvium_keyspace_reader(NULL), S("x"), NULL, 0, &size, &found, E));
    INVALID(alluvium_multi_get(alluvium_keyspace_reader(NULL), NULL, 0, NULL, E));
    INVALID(alluvium_put(alluvium_keyspace_writer(NULL), S("x"), S("x"), E));
    INVALID(alluvium_put_until(alluvium_keyspace_writer(NULL), S("x"), S("x"), 1, E));
    INVALID(alluvium_insert(alluvium_keyspace_writer(NULL), S("x"), S("x"), E));
    INVALID(alluvium_delete(alluvium_keyspace_writer(NULL), S("x"), E));
    INVALID(alluvium_delete_range(alluvium_keyspace_writer(NULL), S("x"), S("y"), E));
    INVALID(alluvium_delete_prefix(alluvium_keyspace_writer(NULL), S("x"), E));
    INVALID(alluvium_keyspace_set_compaction_filter(NULL, NULL, E));
    INVALID(alluvium_cursor_open(alluvium_keyspace_reader(NULL), NULL, &cursor, E));
    INVALID(alluvium_write(NULL, NULL, NULL, E));
    INVALID(alluvium_put(alluvium_batch_writer(NULL, NULL), S("x"), S("x"), E));
    INVALID(alluvium_delete(alluvium_batch_writer(NULL, NULL), S("x"), E));
    INVALID(alluvium_snapshot_open(NULL, &snapshot, E));
    INVALID(alluvium_get(alluvium_snapshot_reader(NULL, NULL), S("x"), &value, E));
    INVALID(alluvium_get_into(alluvium_snapshot_reader(NULL, NULL), S("x"), NULL, 0, &size, &found, E));
    INVALID(alluvium_multi_get(alluvium_snapshot_reader(NULL, NULL), NULL, 0, NULL, E));
    INVALID(alluvium_cursor_open(alluvium_snapshot_reader(NULL, NULL), NULL, &cursor, E));
    INVALID(alluvium_cursor_seek(NULL, S("x"), &found, E));
    INVALID(alluvium_cursor_seek_before(NULL, S("x"), &found, E));
    INVALID(alluvium_cursor_seek_first(NULL, &found, E));
    INVALID(alluvium_cursor_seek_last(NULL, &found, E));
    INVALID(alluvium_cursor_next(NULL, &found, E));
    INVALID(alluvium_cursor_prev(NULL, &found, E));
    INVALID(alluvium_cursor_pin_value(NULL, &value, E));
    INVALID(alluvium_begin(NULL, NULL, &transaction, E));
    INVALID(alluvium_get(alluvium_transaction_reader(NULL, NULL), S("x"), &value, E));
    INVALID(alluvium_transaction_get_for_update(NULL, NULL, S("x"), &value, E));
    INVALID(alluvium_transaction_lock(NULL, NULL, S("x"), 0, E));
    INVALID(alluvium_put(alluvium_transaction_writer(NULL, NULL), S("x"), S("x"), E));
    INVALID(alluvium_cursor_open(alluvium_transaction_reader(NULL, NULL), NULL, &cursor, E));
    INVALID(alluvium_transaction_savepoint(NULL, &number, E));
    INVALID(alluvium_transaction_rollback_to(NULL, 0, E));
    INVALID(alluvium_transaction_release(NULL, 0, E));
    INVALID(alluvium_transaction_commit(NULL, E));
    INVALID(alluvium_transaction_rollback(NULL, E));
    INVALID(alluvium_transaction_prepare(NULL, S("x"), &prepared, E));
    INVALID(alluvium_prepared_list(NULL, &list, E));
    INVALID(alluvium_prepared_take(NULL, S("x"), &prepared, E));
    INVALID(alluvium_prepared_commit(NULL, E));
    INVALID(alluvium_prepared_rollback(NULL, E));
    CHECK(database == NULL && keyspace == NULL && list == NULL && snapshot == NULL && transaction == NULL);
    CHECK(prepared == NULL && value == NULL && cursor == NULL && number == 0 && size == 0 && !found);
}

static void places_are_missing(void) {
    alluvium_database *database = open_new("null", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_cursor *cursor;
    size_t size;
    // The place for the error may be missing too: then there is only the code.
    CHECK(alluvium_get(alluvium_keyspace_reader(rows), S("x"), NULL, NULL) == ALLUVIUM_CODE_INVALID_ARGUMENT);
    CHECK(alluvium_put(alluvium_keyspace_writer(rows), S("x"), S("x"), NULL) == ALLUVIUM_CODE_OK);
    INVALID(alluvium_put(alluvium_keyspace_writer(rows), NULL, 1, S("x"), E));
    INVALID(alluvium_put(alluvium_keyspace_writer(rows), S("x"), NULL, 1, E));
    INVALID(alluvium_get(alluvium_keyspace_reader(rows), S("x"), NULL, E));
    INVALID(alluvium_get_into(alluvium_keyspace_reader(rows), S("x"), NULL, 0, &size, NULL, E));
    INVALID(alluvium_multi_get(alluvium_keyspace_reader(rows), NULL, 1, NULL, E));
    INVALID(alluvium_keyspace_open(database, NULL, 1, NULL, NULL, E));
    INVALID(alluvium_cursor_open(alluvium_keyspace_reader(rows), NULL, NULL, E));
    OK(alluvium_cursor_open(alluvium_keyspace_reader(rows), NULL, &cursor, E));
    INVALID(alluvium_cursor_next(cursor, NULL, E));
    alluvium_cursor_free(cursor);
    INVALID(alluvium_visible_seqno(database, NULL, E));
    INVALID(alluvium_now_ms(database, NULL, E));
    INVALID(alluvium_set_stored_time("x", 1, 0, NULL, E));
    INVALID(alluvium_get_stats(database, NULL, E));
    INVALID(alluvium_snapshot_open(database, NULL, E));
    INVALID(alluvium_begin(database, NULL, NULL, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}

void test_null(void) {
    free_and_get_accept_null();
    handles_are_missing();
    places_are_missing();
}
