// Reads and writes outside transactions: single keys, batches, snapshots.
#include "check.h"

void test_rows(void) {
    alluvium_database *database = open_new("rows", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_value *value, *copy, *values[3];
    char buffer[3];
    size_t size;
    bool found;

    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("first"), E));
    OK(alluvium_insert(alluvium_keyspace_writer(rows), S("b"), S("second"), E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), NULL, 0, NULL, 0, E));
    OK(alluvium_get(alluvium_keyspace_reader(rows), S("a"), &value, E));
    copy = alluvium_value_clone(value);
    CHECK(value_is(value, "first") && value_is(copy, "first"));
    // The empty key has a value, which is empty; an absent key has none.
    OK(alluvium_get(alluvium_keyspace_reader(rows), NULL, 0, &value, E));
    CHECK(alluvium_value_data(value, NULL) != NULL && value_is(value, ""));
    OK(alluvium_get(alluvium_keyspace_reader(rows), S("z"), &value, E));
    CHECK(value == NULL);

    OK(alluvium_get_into(alluvium_keyspace_reader(rows), S("b"), buffer, sizeof buffer, &size, &found, E));
    CHECK(found && size == 6 && memcmp(buffer, "sec", 3) == 0);
    OK(alluvium_get_into(alluvium_keyspace_reader(rows), S("b"), NULL, 0, &size, &found, E));
    CHECK(found && size == 6);
    OK(alluvium_get_into(alluvium_keyspace_reader(rows), S("z"), buffer, sizeof buffer, &size, &found, E));
    CHECK(!found && size == 0);

    alluvium_slice keys[] = {{S("b")}, {S("z")}, {S("a")}};
    OK(alluvium_multi_get(alluvium_keyspace_reader(rows), keys, 3, values, E));
    CHECK(value_is(values[0], "second") && values[1] == NULL && value_is(values[2], "first"));
    OK(alluvium_multi_get(alluvium_keyspace_reader(rows), NULL, 0, NULL, E));
    keys[1].data = NULL;
    INVALID(alluvium_multi_get(alluvium_keyspace_reader(rows), keys, 3, values, E));
    CHECK(values[0] == NULL && values[2] == NULL);

    OK(alluvium_delete(alluvium_keyspace_writer(rows), S("b"), E));
    CHECK(strcmp(read_row(rows, "b"), "absent") == 0);
    OK(alluvium_delete_range(alluvium_keyspace_writer(rows), S("a"), S("b"), E));
    CHECK(strcmp(read_row(rows, "a"), "absent") == 0);
    INVALID(alluvium_delete_range(alluvium_keyspace_writer(rows), S("b"), S("a"), E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("pre1"), S("v"), E));
    OK(alluvium_delete_prefix(alluvium_keyspace_writer(rows), S("pre"), E));
    CHECK(strcmp(read_row(rows, "pre1"), "absent") == 0);
    INVALID(alluvium_put_until(alluvium_keyspace_writer(rows), S("a"), S("v"), 1, E));

    static const char long_key[ALLUVIUM_KEY_BYTES_MAX + 1];
    INVALID(alluvium_put(alluvium_keyspace_writer(rows), long_key, sizeof long_key, S("v"), E));
    INVALID(alluvium_put(alluvium_keyspace_writer(rows), S("k"), "v", SIZE_MAX, E));

    // Values stay valid after their database is closed.
    char large[5000];
    memset(large, 'x', sizeof large);
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("large"), large, sizeof large, E));
    OK(alluvium_flush(database, E));
    OK(alluvium_get(alluvium_keyspace_reader(rows), S("large"), &value, E));
    OK(alluvium_close(database, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    const uint8_t *data = alluvium_value_data(value, &size);
    CHECK(size == sizeof large && memcmp(data, large, size) == 0);
    alluvium_value_free(value);
}

void test_batches(void) {
    alluvium_database *database = open_new("batches", NULL), *other = open_new("batches2", NULL);
    alluvium_keyspace *one = keyspace_of(database, "one"), *two = keyspace_of(database, "two");
    alluvium_keyspace *foreign = keyspace_of(other, "one");
    alluvium_batch *batch = alluvium_batch_new();

    CHECK(alluvium_batch_is_empty(batch));
    OK(alluvium_write(database, batch, NULL, E));
    OK(alluvium_put(alluvium_batch_writer(batch, one), S("a"), S("1"), E));
    OK(alluvium_insert(alluvium_batch_writer(batch, two), S("b"), S("2"), E));
    OK(alluvium_put(alluvium_batch_writer(batch, two), S("c"), S("3"), E));
    CHECK(alluvium_batch_count(batch) == 3 && !alluvium_batch_is_empty(batch));
    INVALID(alluvium_put(alluvium_batch_writer(batch, foreign), S("a"), S("1"), E));
    INVALID(alluvium_put_until(alluvium_batch_writer(batch, one), S("a"), S("1"), 5, E));
    OK(alluvium_write(database, batch, NULL, E));
    CHECK(strcmp(read_row(one, "a"), "1") == 0 && strcmp(read_row(two, "b"), "2") == 0);
    INVALID(alluvium_write(other, batch, NULL, E));

    alluvium_batch_clear(batch);
    CHECK(alluvium_batch_is_empty(batch));
    OK(alluvium_delete(alluvium_batch_writer(batch, one), S("a"), E));
    OK(alluvium_delete_range(alluvium_batch_writer(batch, two), S("b"), S("bb"), E));
    OK(alluvium_delete_prefix(alluvium_batch_writer(batch, two), S("c"), E));
    CHECK(alluvium_batch_count(batch) == 1);
    alluvium_write_options options = {
        .struct_size = sizeof options, .durability = ALLUVIUM_DURABILITY_SYNC, .untracked = 1};
    OK(alluvium_write(database, batch, &options, E));
    CHECK(strcmp(read_row(one, "a"), "absent") == 0 && strcmp(read_row(two, "b"), "absent") == 0);
    CHECK(strcmp(read_row(two, "c"), "absent") == 0);
    options.durability = ALLUVIUM_DURABILITY_NONE;
    INVALID(alluvium_write(database, batch, &options, E));
    options.durability = 4;
    INVALID(alluvium_write(database, batch, &options, E));

    alluvium_batch_free(batch);
    alluvium_keyspace_free(one);
    alluvium_keyspace_free(two);
    alluvium_keyspace_free(foreign);
    alluvium_database_free(database);
    alluvium_database_free(other);
}

void test_snapshots(void) {
    alluvium_database *database = open_new("snapshots", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_snapshot *snapshot, *copy;
    alluvium_value *value, *values[2];
    char buffer[8];
    size_t size;
    bool found;

    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("old"), E));
    OK(alluvium_snapshot_open(database, &snapshot, E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("new"), E));
    copy = alluvium_snapshot_clone(snapshot);
    CHECK(alluvium_snapshot_seqno(copy) == alluvium_snapshot_seqno(snapshot));
    alluvium_snapshot_free(snapshot);
    OK(alluvium_get(alluvium_snapshot_reader(copy, rows), S("a"), &value, E));
    CHECK(value_is(value, "old"));
    OK(alluvium_get_into(alluvium_snapshot_reader(copy, rows), S("a"), buffer, sizeof buffer, &size, &found, E));
    CHECK(found && same(buffer, size, "old"));
    alluvium_slice keys[] = {{S("a")}, {S("b")}};
    OK(alluvium_multi_get(alluvium_snapshot_reader(copy, rows), keys, 2, values, E));
    CHECK(value_is(values[0], "old") && values[1] == NULL);
    alluvium_cursor *cursor;
    OK(alluvium_cursor_open(alluvium_snapshot_reader(copy, rows), NULL, &cursor, E));
    CHECK(alluvium_cursor_seqno(cursor) == alluvium_snapshot_seqno(copy));
    alluvium_snapshot_free(copy);
    OK(alluvium_cursor_seek_first(cursor, &found, E));
    const uint8_t *data = alluvium_cursor_value(cursor, &size);
    CHECK(found && same(data, size, "old"));
    alluvium_cursor_free(cursor);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}
