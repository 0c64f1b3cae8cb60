// Cursors: bounds, prefixes, both directions.
#include "check.h"

// Returns the keys from the cursor's position to its end, as one string; valid until the next call.
static const char *keys_from(alluvium_cursor *cursor, bool found, bool forward) {
    static char keys[64];
    keys[0] = 0;
    while (found) {
        size_t size;
        const uint8_t *key = alluvium_cursor_key(cursor, &size);
        CHECK(alluvium_cursor_valid(cursor) && strlen(keys) + size < sizeof keys);
        strncat(keys, (const char *)key, size);
        if (forward) {
            OK(alluvium_cursor_next(cursor, &found, E));
        } else {
            OK(alluvium_cursor_prev(cursor, &found, E));
        }
    }
    CHECK(!alluvium_cursor_valid(cursor) && alluvium_cursor_key(cursor, NULL) == NULL);
    return keys;
}

static const char *all_keys(const alluvium_keyspace *rows, const alluvium_cursor_options *options) {
    alluvium_cursor *cursor;
    bool found;
    OK(alluvium_cursor_open(alluvium_keyspace_reader(rows), options, &cursor, E));
    OK(alluvium_cursor_seek_first(cursor, &found, E));
    const char *keys = keys_from(cursor, found, true);
    alluvium_cursor_free(cursor);
    return keys;
}

static void bounds_hold(const alluvium_keyspace *rows) {
    CHECK(strcmp(all_keys(rows, NULL), "abbabbcd") == 0);
    alluvium_cursor_options options = {.struct_size = sizeof options, .start = "b", .start_size = 1};
    CHECK(strcmp(all_keys(rows, &options), "bbabbcd") == 0);
    options.end = "c";
    options.end_size = 1;
    CHECK(strcmp(all_keys(rows, &options), "bbabb") == 0);
    options.prefix = "b";
    options.prefix_size = 1;
    alluvium_cursor *cursor;
    INVALID(alluvium_cursor_open(alluvium_keyspace_reader(rows), &options, &cursor, E));
    CHECK(cursor == NULL);
    options = (alluvium_cursor_options){.struct_size = sizeof options, .prefix = "bb", .prefix_size = 2, .keys_only = 1};
    CHECK(strcmp(all_keys(rows, &options), "bb") == 0);
    // An empty end key that is not NULL excludes all rows.
    options = (alluvium_cursor_options){.struct_size = sizeof options, .end = ""};
    CHECK(strcmp(all_keys(rows, &options), "") == 0);
}

void test_cursors(void) {
    alluvium_database *database = open_new("cursors", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    const char *keys[] = {"a", "b", "ba", "bb", "c", "d"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        size_t size = strlen(keys[i]);
        OK(alluvium_put(alluvium_keyspace_writer(rows), keys[i], size, keys[i], size, E));
    }
    bounds_hold(rows);

    alluvium_cursor *cursor;
    alluvium_value *value;
    bool found;
    OK(alluvium_cursor_open(alluvium_keyspace_reader(rows), NULL, &cursor, E));
    CHECK(!alluvium_cursor_valid(cursor) && alluvium_cursor_value(cursor, NULL) == NULL);
    INVALID(alluvium_cursor_pin_value(cursor, &value, E));
    CHECK(value == NULL);
    OK(alluvium_cursor_seek(cursor, S("bab"), &found, E));
    OK(alluvium_cursor_pin_value(cursor, &value, E));
    CHECK(strcmp(keys_from(cursor, found, true), "bbcd") == 0);
    OK(alluvium_cursor_seek_before(cursor, S("bb"), &found, E));
    CHECK(strcmp(keys_from(cursor, found, false), "baba") == 0);
    OK(alluvium_cursor_seek_last(cursor, &found, E));
    CHECK(strcmp(keys_from(cursor, found, false), "dcbbbaba") == 0);
    CHECK(value_is(value, "bb"));
    OK(alluvium_close(database, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_cursor_seek_first(cursor, &found, E));
    CHECK(!found);

    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    alluvium_cursor_free(cursor);
}
