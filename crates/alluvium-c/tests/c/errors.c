// Contents of errors.
#include "check.h"

static void damage_is_found_and_located(void) {
    alluvium_database *database = open_new("damage", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("k"), S("v"), E));
    OK(alluvium_flush(database, E));
    OK(alluvium_close(database, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    CHECK(damage_files("damage", ".sst") > 0);
    const char *path = path_of("damage");
    FAILS(ALLUVIUM_CODE_CORRUPTION, alluvium_open(path, strlen(path), NULL, &database, E));
    CHECK(database == NULL);
    size_t size;
    const uint8_t *file = alluvium_error_path(failure, &size);
    CHECK(file != NULL && size > 4 && memcmp(file + size - 4, ".sst", 4) == 0);
    CHECK(alluvium_error_offset(failure) > 0 && alluvium_error_os_code(failure) == 0);
}

void test_errors(void) {
    damage_is_found_and_located();
    // A directory cannot be created below a file.
    FILE *file = fopen(path_of("file"), "wb");
    CHECK(file != NULL && fclose(file) == 0);
    alluvium_database *database;
    const char *path = path_of("file/below");
    FAILS(ALLUVIUM_CODE_IO, alluvium_open(path, strlen(path), NULL, &database, E));
    CHECK(alluvium_error_os_code(failure) != 0);
    CHECK(alluvium_error_cause_count(failure) == 1);
    size_t size;
    const char *cause = alluvium_error_cause(failure, 0, &size);
    CHECK(cause != NULL && strlen(cause) == size && size > 0);
    CHECK(alluvium_error_cause(failure, 1, &size) == NULL && alluvium_error_cause(failure, SIZE_MAX, NULL) == NULL);
    CHECK(alluvium_error_key(failure, NULL) == NULL && alluvium_error_keyspace(failure, NULL) == NULL);
    // The error for a path with a zero byte has a message that C can read.
    CHECK(alluvium_open("a\0b", 3, NULL, &database, E) != ALLUVIUM_CODE_OK);
    CHECK(strlen(alluvium_error_message(failure, &size)) == size);
    alluvium_error_free(failure);
}
