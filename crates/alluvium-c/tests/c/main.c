// Calls every function of alluvium.h, errors included. The argument is an empty directory.
#include "check.h"

alluvium_error *failure;
const alluvium_ingest_options any_order = {.struct_size = sizeof any_order, .any_order = 1};
static const char *directory;

// The failure of the last FAILS. The next call overwrites `failure`, so the error is freed through
// this pointer.
static alluvium_error *kept;

void check_ok(alluvium_code code, const char *call, const char *file, int line) {
    if (code != ALLUVIUM_CODE_OK || failure != NULL) {
        fprintf(stderr, "%s:%d: %s: code %d: %s\n", file, line, call, (int)code,
                failure ? alluvium_error_message(failure, NULL) : "no error");
        exit(1);
    }
}

void check_fails(alluvium_code expected, alluvium_code code, const char *call, const char *file, int line) {
    alluvium_error_free(kept);
    kept = failure;
    size_t size = 0;
    const char *message = alluvium_error_message(kept, &size);
    if (code != expected || alluvium_error_code(kept) != expected || message == NULL || size == 0 ||
        strlen(message) != size) {
        fprintf(stderr, "%s:%d: %s: code %d instead of %d: %s\n", file, line, call, (int)code, (int)expected,
                message ? message : "no error");
        exit(1);
    }
}

bool same(const void *data, size_t size, const char *expected) {
    return data != NULL && size == strlen(expected) && memcmp(data, expected, size) == 0;
}

bool slice_is(alluvium_slice slice, const char *expected) {
    return same(slice.data, slice.size, expected);
}

bool value_is(alluvium_value *value, const char *expected) {
    size_t size;
    const uint8_t *data = alluvium_value_data(value, &size);
    bool is = same(data, size, expected);
    alluvium_value_free(value);
    return is;
}

const char *read_row(const alluvium_keyspace *keyspace, const char *key) {
    static char buffer[64];
    size_t size;
    bool found;
    alluvium_reader reader = alluvium_keyspace_reader(keyspace);
    OK(alluvium_get_into(reader, key, strlen(key), buffer, sizeof buffer - 1, &size, &found, E));
    CHECK(size < sizeof buffer);
    buffer[size] = 0;
    return found ? buffer : "absent";
}

const char *path_of(const char *name) {
    static char path[4096];
    CHECK(snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path);
    return path;
}

alluvium_database *open_again(const char *name, const alluvium_options *options) {
    alluvium_database *database;
    const char *path = path_of(name);
    OK(alluvium_open(path, strlen(path), options, &database, E));
    CHECK(database != NULL);
    return database;
}

alluvium_database *open_new(const char *name, const alluvium_options *options) {
    alluvium_options small = {.struct_size = sizeof small};
    if (options != NULL) {
        small = *options;
    }
    if (small.memory_bytes == 0) {
        small.memory_bytes = 16 << 20;
    }
    return open_again(name, &small);
}

alluvium_keyspace *keyspace_of(const alluvium_database *database, const char *name) {
    alluvium_keyspace *keyspace;
    OK(alluvium_keyspace_open(database, name, strlen(name), NULL, &keyspace, E));
    CHECK(keyspace != NULL);
    return keyspace;
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: %s EMPTY_DIRECTORY\n", arguments[0]);
        return 2;
    }
    directory = arguments[1];
    test_databases();
    test_keyspaces();
    test_rows();
    test_batches();
    test_owners();
    test_snapshots();
    test_cursors();
    test_transactions();
    test_statements();
    test_prepared();
    test_callbacks();
    test_maintenance();
    test_listeners();
    test_loads();
    test_copies();
    test_measures();
    test_changes();
    test_streams();
    test_errors();
    test_null();
    test_processes();
    alluvium_error_free(kept);
    printf("all calls answered as they should\n");
    return 0;
}
