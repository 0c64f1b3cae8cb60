// Transactions: isolation, locks, savepoints, prepares.
#include <pthread.h>

#include "check.h"

static alluvium_transaction *begin(const alluvium_database *database, uint32_t isolation) {
    alluvium_transaction_options options = {
        .struct_size = sizeof options, .isolation = isolation, .lock_timeout_ms = ALLUVIUM_NO_WAIT};
    alluvium_transaction *transaction;
    OK(alluvium_begin(database, &options, &transaction, E));
    return transaction;
}

static void a_transaction_sees_its_writes(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT);
    alluvium_writer writer = alluvium_transaction_writer(transaction, rows);
    alluvium_writer untracked = alluvium_transaction_writer_untracked(transaction, rows);
    alluvium_reader reader = alluvium_transaction_reader(transaction, rows);
    alluvium_value *value, *values[2];
    alluvium_cursor *cursor;
    char buffer[8];
    size_t size;
    bool found;
    OK(alluvium_put(writer, S("a"), S("1"), E));
    OK(alluvium_insert(writer, S("b"), S("2"), E));
    OK(alluvium_put(untracked, S("c"), S("3"), E));
    OK(alluvium_insert(untracked, S("d"), S("4"), E));
    OK(alluvium_delete(writer, S("b"), E));
    OK(alluvium_delete(untracked, S("d"), E));
    INVALID(alluvium_put_until(writer, S("a"), S("1"), 5, E));
    OK(alluvium_get(reader, S("a"), &value, E));
    CHECK(value_is(value, "1"));
    OK(alluvium_transaction_get_for_update(transaction, rows, S("b"), &value, E));
    CHECK(value == NULL);
    OK(alluvium_get_into(reader, S("c"), buffer, sizeof buffer, &size, &found, E));
    CHECK(found && same(buffer, size, "3"));
    alluvium_slice keys[] = {{S("a")}, {S("d")}};
    OK(alluvium_multi_get(reader, keys, 2, values, E));
    CHECK(value_is(values[0], "1") && values[1] == NULL);
    OK(alluvium_cursor_open(reader, NULL, &cursor, E));
    OK(alluvium_cursor_seek_last(cursor, &found, E));
    const uint8_t *key = alluvium_cursor_key(cursor, &size);
    CHECK(found && same(key, size, "c"));
    alluvium_cursor_free(cursor);
    CHECK(strcmp(read_row(rows, "a"), "absent") == 0);
    OK(alluvium_transaction_commit(transaction, E));
    INVALID(alluvium_transaction_commit(transaction, E));
    INVALID(alluvium_transaction_rollback(transaction, E));
    INVALID(alluvium_put(writer, S("a"), S("1"), E));
    alluvium_transaction_free(transaction);
    CHECK(strcmp(read_row(rows, "a"), "1") == 0 && strcmp(read_row(rows, "c"), "3") == 0);

    transaction = begin(database, ALLUVIUM_ISOLATION_READ_COMMITTED);
    OK(alluvium_delete_range(alluvium_transaction_writer(transaction, rows), S("a"), S("b"), E));
    OK(alluvium_delete_prefix(alluvium_transaction_writer(transaction, rows), S("c"), E));
    OK(alluvium_transaction_rollback(transaction, E));
    alluvium_transaction_free(transaction);
    CHECK(strcmp(read_row(rows, "a"), "1") == 0);
}

static void savepoints_nest(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT);
    uint64_t first, second, third;
    OK(alluvium_put(alluvium_transaction_writer(transaction, rows), S("s"), S("0"), E));
    OK(alluvium_transaction_savepoint(transaction, &first, E));
    OK(alluvium_put(alluvium_transaction_writer(transaction, rows), S("s"), S("1"), E));
    OK(alluvium_transaction_savepoint(transaction, &second, E));
    OK(alluvium_put(alluvium_transaction_writer(transaction, rows), S("s"), S("2"), E));
    CHECK(first < second);
    OK(alluvium_transaction_rollback_to(transaction, first, E));
    INVALID(alluvium_transaction_rollback_to(transaction, second, E));
    OK(alluvium_transaction_savepoint(transaction, &third, E));
    CHECK(third > second);
    OK(alluvium_transaction_release(transaction, first, E));
    OK(alluvium_transaction_release(transaction, third, E));
    INVALID(alluvium_transaction_rollback_to(transaction, third, E));
    OK(alluvium_transaction_commit(transaction, E));
    INVALID(alluvium_transaction_savepoint(transaction, &first, E));
    INVALID(alluvium_transaction_rollback_to(transaction, first, E));
    INVALID(alluvium_transaction_release(transaction, first, E));
    alluvium_transaction_free(transaction);
    CHECK(strcmp(read_row(rows, "s"), "0") == 0);
}

static void conflicts_name_their_row(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT);
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("hot"), S("1"), E));
    FAILS(ALLUVIUM_CODE_CONFLICT, alluvium_put(alluvium_transaction_writer(transaction, rows), S("hot"), S("2"), E));
    size_t size;
    const uint8_t *key = alluvium_error_key(failure, &size);
    CHECK(same(key, size, "hot"));
    key = alluvium_error_keyspace(failure, &size);
    CHECK(same(key, size, "rows"));
    CHECK(alluvium_error_xid(failure, NULL) == NULL);
    alluvium_transaction_free(transaction);

    // Write skew: each transaction reads the row that the other one writes.
    alluvium_transaction *one = begin(database, ALLUVIUM_ISOLATION_SERIALIZABLE);
    alluvium_transaction *two = begin(database, ALLUVIUM_ISOLATION_SERIALIZABLE);
    alluvium_value *value;
    OK(alluvium_get(alluvium_transaction_reader(one, rows), S("x"), &value, E));
    OK(alluvium_get(alluvium_transaction_reader(two, rows), S("y"), &value, E));
    OK(alluvium_put(alluvium_transaction_writer(one, rows), S("y"), S("1"), E));
    OK(alluvium_put(alluvium_transaction_writer(two, rows), S("x"), S("1"), E));
    OK(alluvium_transaction_commit(one, E));
    FAILS(ALLUVIUM_CODE_CONFLICT, alluvium_transaction_commit(two, E));
    alluvium_transaction_free(one);
    alluvium_transaction_free(two);

    alluvium_transaction_options options = {.struct_size = sizeof options, .optimistic = 1};
    OK(alluvium_begin(database, &options, &one, E));
    OK(alluvium_put(alluvium_transaction_writer(one, rows), S("hot"), S("3"), E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("hot"), S("4"), E));
    FAILS(ALLUVIUM_CODE_CONFLICT, alluvium_transaction_commit(one, E));
    alluvium_transaction_free(one);

    options.isolation = 3;
    INVALID(alluvium_begin(database, &options, &one, E));
    CHECK(one == NULL);
    OK(alluvium_begin(database, NULL, &one, E));
    static const char large[70000];
    FAILS(ALLUVIUM_CODE_TRANSACTION_TOO_LARGE,
          alluvium_put(alluvium_transaction_writer(one, rows), S("l"), large, sizeof large, E));
    alluvium_transaction_free(one);
}

static void locks_keep_others_out(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_transaction *one = begin(database, ALLUVIUM_ISOLATION_READ_COMMITTED);
    alluvium_transaction *two = begin(database, ALLUVIUM_ISOLATION_READ_COMMITTED), *three;
    OK(alluvium_transaction_lock(one, rows, S("row"), ALLUVIUM_LOCK_MODE_SHARED, E));
    OK(alluvium_transaction_lock(two, rows, S("row"), ALLUVIUM_LOCK_MODE_SHARED, E));
    FAILS(ALLUVIUM_CODE_LOCK_TIMEOUT,
          alluvium_transaction_lock(two, rows, S("row"), ALLUVIUM_LOCK_MODE_EXCLUSIVE, E));
    INVALID(alluvium_transaction_lock(two, rows, S("row"), 2, E));

    alluvium_lock_cancel *cancel = alluvium_lock_cancel_new();
    alluvium_transaction_options options = {.struct_size = sizeof options, .lock_timeout_ms = 600000, .cancel = cancel};
    OK(alluvium_begin(database, &options, &three, E));
    CHECK(!alluvium_lock_cancel_is_canceled(cancel));
    alluvium_lock_cancel_cancel(cancel);
    CHECK(alluvium_lock_cancel_is_canceled(cancel));
    alluvium_lock_cancel_free(cancel);
    FAILS(ALLUVIUM_CODE_CANCELED, alluvium_put(alluvium_transaction_writer(three, rows), S("row"), S("v"), E));
    alluvium_transaction_free(one);
    alluvium_transaction_free(two);
    OK(alluvium_put(alluvium_transaction_writer(three, rows), S("row"), S("v"), E));
    alluvium_transaction_free(three);
}

static void *commit_here(void *transaction) {
    alluvium_error *error;
    alluvium_code code = alluvium_transaction_commit(transaction, &error);
    alluvium_error_free(error);
    alluvium_transaction_free(transaction);
    return code == ALLUVIUM_CODE_OK ? transaction : NULL;
}

static void handles_move_between_threads(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT);
    OK(alluvium_put(alluvium_transaction_writer(transaction, rows), S("moved"), S("yes"), E));
    pthread_t thread;
    void *answer;
    CHECK(pthread_create(&thread, NULL, commit_here, transaction) == 0);
    CHECK(pthread_join(thread, &answer) == 0 && answer != NULL);
    CHECK(strcmp(read_row(rows, "moved"), "yes") == 0);
}

void test_transactions(void) {
    alluvium_options options = {.struct_size = sizeof options, .transaction_bytes = 1 << 16};
    alluvium_database *database = open_new("transactions", &options);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    a_transaction_sees_its_writes(database, rows);
    savepoints_nest(database, rows);
    conflicts_name_their_row(database, rows);
    locks_keep_others_out(database, rows);
    handles_move_between_threads(database, rows);
    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT);
    OK(alluvium_close(database, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_put(alluvium_transaction_writer(transaction, rows), S("a"), S("1"), E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_transaction_commit(transaction, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    alluvium_transaction_free(transaction);
}

static alluvium_prepared *prepare(const alluvium_database *database, const alluvium_keyspace *rows, const char *name) {
    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT);
    alluvium_prepared *prepared;
    OK(alluvium_put(alluvium_transaction_writer(transaction, rows), name, strlen(name), S("v"), E));
    OK(alluvium_transaction_prepare(transaction, name, strlen(name), &prepared, E));
    INVALID(alluvium_transaction_commit(transaction, E));
    alluvium_transaction_free(transaction);
    size_t size;
    const uint8_t *xid = alluvium_prepared_xid(prepared, &size);
    CHECK(same(xid, size, name));
    return prepared;
}

static void decisions_after_a_restart(void) {
    alluvium_database *database = open_again("prepared", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_prepared *prepared, *other;
    alluvium_list *xids;
    size_t size;
    OK(alluvium_prepared_list(database, &xids, E));
    CHECK(alluvium_list_count(xids) == 1);
    const uint8_t *xid = alluvium_list_item(xids, 0, &size);
    OK(alluvium_prepared_take(database, xid, size, &prepared, E));
    INVALID(alluvium_prepared_take(database, xid, size, &other, E));
    CHECK(other == NULL);
    alluvium_list_free(xids);
    CHECK(strcmp(read_row(rows, "third"), "absent") == 0);
    OK(alluvium_prepared_commit(prepared, E));
    CHECK(strcmp(read_row(rows, "third"), "v") == 0);
    alluvium_prepared_free(prepared);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}

void test_prepared(void) {
    alluvium_database *database = open_new("prepared", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_prepared *prepared = prepare(database, rows, "first");
    bool has = false;
    OK(alluvium_keyspace_has_prepared_writer(database, rows, &has, E));
    CHECK(has);
    FAILS(ALLUVIUM_CODE_KEYSPACE_IN_USE, alluvium_keyspace_drop(database, rows, E));
    size_t size;
    const uint8_t *xid = alluvium_error_xid(failure, &size);
    CHECK(same(xid, size, "first"));
    OK(alluvium_prepared_commit(prepared, E));
    OK(alluvium_keyspace_has_prepared_writer(database, rows, &has, E));
    CHECK(!has);
    INVALID(alluvium_prepared_commit(prepared, E));
    INVALID(alluvium_prepared_rollback(prepared, E));
    CHECK(alluvium_prepared_xid(prepared, &size) == NULL);
    alluvium_prepared_free(prepared);
    CHECK(strcmp(read_row(rows, "first"), "v") == 0);

    prepared = prepare(database, rows, "ordered");
    OK(alluvium_prepared_commit_ordered(prepared, E));
    CHECK(strcmp(read_row(rows, "ordered"), "v") == 0);
    OK(alluvium_prepared_commit_ordered(prepared, E));
    OK(alluvium_prepared_commit(prepared, E));
    INVALID(alluvium_prepared_commit_ordered(prepared, E));
    alluvium_prepared_free(prepared);

    alluvium_transaction *buffered = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT);
    OK(alluvium_put(alluvium_transaction_writer(buffered, rows), S("buffered"), S("v"), E));
    OK(alluvium_transaction_prepare_with(buffered, S("buffered"), ALLUVIUM_DURABILITY_BUFFERED, &prepared, E));
    OK(alluvium_prepared_commit(prepared, E));
    alluvium_prepared_free(prepared);
    alluvium_transaction_free(buffered);
    buffered = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT);
    INVALID(alluvium_transaction_prepare_with(buffered, S("none"), ALLUVIUM_DURABILITY_NONE, &prepared, E));
    INVALID(alluvium_transaction_commit(buffered, E));
    alluvium_transaction_free(buffered);

    prepared = prepare(database, rows, "second");
    OK(alluvium_prepared_rollback(prepared, E));
    alluvium_prepared_free(prepared);
    CHECK(strcmp(read_row(rows, "second"), "absent") == 0);

    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_SERIALIZABLE);
    OK(alluvium_put(alluvium_transaction_writer(transaction, rows), S("k"), S("v"), E));
    INVALID(alluvium_transaction_prepare(transaction, S("serializable"), &prepared, E));
    CHECK(prepared == NULL);
    alluvium_transaction_free(transaction);

    alluvium_prepared_free(prepare(database, rows, "third"));
    OK(alluvium_close(database, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    decisions_after_a_restart();
}
