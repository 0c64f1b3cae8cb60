// Ingests and bulk loads.
#include "check.h"

static void rows_in_order_become_one_commit(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_ingest *ingest;
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    for (uint32_t i = 0; i < 1000; i++) {
        uint8_t key[4] = {(uint8_t)(i >> 24), (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i};
        OK(alluvium_put(alluvium_ingest_writer(ingest, rows), key, sizeof key, S("value"), E));
    }
    OK(alluvium_put(alluvium_ingest_writer(ingest, rows), S("last"), S("row"), E));
    CHECK(strcmp(read_row(rows, "last"), "absent") == 0);
    alluvium_ingested ingested = {.struct_size = sizeof ingested};
    OK(alluvium_ingest_finish(ingest, &ingested, E));
    CHECK(ingested.rows == 1001 && ingested.tables >= 1 && ingested.seqno > 0);
    CHECK(ingested.table_bytes > 0 && ingested.last_level_bytes == ingested.table_bytes);
    CHECK(strcmp(read_row(rows, "last"), "row") == 0);
    INVALID(alluvium_ingest_finish(ingest, &ingested, E));
    INVALID(alluvium_put(alluvium_ingest_writer(ingest, rows), S("later"), S("row"), E));
    alluvium_ingest_free(ingest);
}

static void an_ingest_that_fails_or_is_freed_leaves_nothing(const alluvium_database *database,
                                                            const alluvium_keyspace *rows) {
    alluvium_ingest *ingest;
    size_t size;
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_put(alluvium_ingest_writer(ingest, rows), S("x2"), S("v"), E));
    INVALID(alluvium_put(alluvium_ingest_writer(ingest, NULL), S("x3"), S("v"), E));
    INVALID(alluvium_put(alluvium_ingest_writer(ingest, rows), NULL, 1, S("v"), E));
    FAILS(ALLUVIUM_CODE_OUT_OF_ORDER, alluvium_put(alluvium_ingest_writer(ingest, rows), S("x1"), S("v"), E));
    const uint8_t *key = alluvium_error_key(failure, &size);
    CHECK(same(key, size, "x1"));
    FAILS(ALLUVIUM_CODE_OUT_OF_ORDER, alluvium_ingest_finish(ingest, NULL, E));
    alluvium_ingest_free(ingest);

    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_put(alluvium_ingest_writer(ingest, rows), S("x2"), S("v"), E));
    INVALID(alluvium_put_until(alluvium_ingest_writer(ingest, rows), S("x3"), S("v"), 1, E));
    alluvium_ingest_free(ingest);

    // A struct without its size ends the ingest, and nothing is installed.
    alluvium_ingested ingested = {.struct_size = 1};
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_put(alluvium_ingest_writer(ingest, rows), S("x2"), S("v"), E));
    INVALID(alluvium_ingest_finish(ingest, &ingested, E));
    INVALID(alluvium_put(alluvium_ingest_writer(ingest, rows), S("x3"), S("v"), E));
    alluvium_ingest_free(ingest);
    CHECK(strcmp(read_row(rows, "x2"), "absent") == 0);

    INVALID(alluvium_ingest_begin(NULL, NULL, &ingest, E));
    CHECK(ingest == NULL);
    INVALID(alluvium_ingest_begin(database, NULL, NULL, E));
    INVALID(alluvium_put(alluvium_ingest_writer(NULL, rows), S("k"), S("v"), E));
    INVALID(alluvium_put_until(alluvium_ingest_writer(NULL, rows), S("k"), S("v"), 1, E));
    INVALID(alluvium_ingest_finish(NULL, NULL, E));
    alluvium_ingest_free(NULL);
}

static void a_bulk_load_sorts(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_ingest_options options = {.struct_size = sizeof options, .memory_bytes = 65536, .any_order = 1};
    alluvium_ingest *load;
    OK(alluvium_ingest_begin(database, &options, &load, E));
    // More rows than fit into its memory, so that runs have to be merged.
    for (uint32_t i = 5000; i > 0; i--) {
        char key[16];
        snprintf(key, sizeof key, "row %08u", i);
        OK(alluvium_put(alluvium_ingest_writer(load, rows), key, strlen(key), S("0123456789"), E));
    }
    OK(alluvium_put(alluvium_ingest_writer(load, rows), S("row 00000001"), S("newer"), E));
    alluvium_ingested ingested = {.struct_size = sizeof ingested};
    OK(alluvium_ingest_finish(load, &ingested, E));
    CHECK(ingested.rows == 5000);
    CHECK(strcmp(read_row(rows, "row 00000001"), "newer") == 0);
    CHECK(strcmp(read_row(rows, "row 00005000"), "0123456789") == 0);
    INVALID(alluvium_ingest_finish(load, NULL, E));
    INVALID(alluvium_put(alluvium_ingest_writer(load, rows), S("k"), S("v"), E));
    alluvium_ingest_free(load);
}

static void a_bulk_load_refuses_duplicates_and_bad_options(const alluvium_database *database,
                                                           const alluvium_keyspace *rows) {
    alluvium_ingest_options options = any_order;
    options.duplicates = ALLUVIUM_DUPLICATES_REFUSE;
    alluvium_ingest *load;
    OK(alluvium_ingest_begin(database, &options, &load, E));
    OK(alluvium_put(alluvium_ingest_writer(load, rows), S("twice"), S("1"), E));
    OK(alluvium_put(alluvium_ingest_writer(load, rows), S("twice"), S("2"), E));
    FAILS(ALLUVIUM_CODE_DUPLICATE_KEY, alluvium_ingest_finish(load, NULL, E));
    size_t size;
    const uint8_t *key = alluvium_error_key(failure, &size);
    CHECK(same(key, size, "twice"));
    alluvium_ingest_free(load);

    OK(alluvium_ingest_begin(database, &any_order, &load, E));
    OK(alluvium_put(alluvium_ingest_writer(load, rows), S("twice"), S("1"), E));
    INVALID(alluvium_put_until(alluvium_ingest_writer(load, rows), S("k"), S("v"), 1, E));
    alluvium_ingest_free(load);
    CHECK(strcmp(read_row(rows, "twice"), "absent") == 0);

    options.duplicates = 2;
    INVALID(alluvium_ingest_begin(database, &options, &load, E));
    options = any_order;
    options.memory_bytes = 1;
    INVALID(alluvium_ingest_begin(database, &options, &load, E));
    // Rows in order need no memory and have no duplicates.
    options = (alluvium_ingest_options){.struct_size = sizeof options, .memory_bytes = 1 << 20};
    INVALID(alluvium_ingest_begin(database, &options, &load, E));
    options = (alluvium_ingest_options){.struct_size = sizeof options, .duplicates = ALLUVIUM_DUPLICATES_REFUSE};
    INVALID(alluvium_ingest_begin(database, &options, &load, E));
    options = (alluvium_ingest_options){.struct_size = 2};
    INVALID(alluvium_ingest_begin(database, &options, &load, E));
    CHECK(load == NULL);
    INVALID(alluvium_ingest_begin(database, &any_order, NULL, E));
    INVALID(alluvium_ingest_begin(NULL, &any_order, &load, E));
    INVALID(alluvium_put(alluvium_ingest_writer(NULL, rows), S("k"), S("v"), E));
    INVALID(alluvium_put_until(alluvium_ingest_writer(NULL, rows), S("k"), S("v"), 1, E));
    INVALID(alluvium_ingest_finish(NULL, NULL, E));
    alluvium_ingest_free(NULL);
}

static void loaded_rows_expire(const alluvium_database *database) {
    alluvium_keyspace_options options = {.struct_size = sizeof options, .expiry = ALLUVIUM_EXPIRY_PER_ROW};
    alluvium_keyspace *rows;
    OK(alluvium_keyspace_open(database, S("expiring"), &options, &rows, E));
    alluvium_ingest *ingest;
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_put_until(alluvium_ingest_writer(ingest, rows), S("long ago"), S("v"), 1, E));
    OK(alluvium_put_until(alluvium_ingest_writer(ingest, rows), S("much later"), S("v"), UINT64_MAX / 2, E));
    OK(alluvium_ingest_finish(ingest, NULL, E));
    alluvium_ingest_free(ingest);
    CHECK(strcmp(read_row(rows, "long ago"), "absent") == 0 && strcmp(read_row(rows, "much later"), "v") == 0);
    alluvium_ingest *load;
    OK(alluvium_ingest_begin(database, &any_order, &load, E));
    OK(alluvium_put_until(alluvium_ingest_writer(load, rows), S("also long ago"), S("v"), 1, E));
    OK(alluvium_put_until(alluvium_ingest_writer(load, rows), S("also later"), S("v"), UINT64_MAX / 2, E));
    OK(alluvium_ingest_finish(load, NULL, E));
    alluvium_ingest_free(load);
    CHECK(strcmp(read_row(rows, "also long ago"), "absent") == 0 && strcmp(read_row(rows, "also later"), "v") == 0);
    alluvium_keyspace_free(rows);
}

void test_loads(void) {
    alluvium_database *database = open_new("loads", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    rows_in_order_become_one_commit(database, rows);
    an_ingest_that_fails_or_is_freed_leaves_nothing(database, rows);
    a_bulk_load_sorts(database, rows);
    a_bulk_load_refuses_duplicates_and_bad_options(database, rows);
    loaded_rows_expire(database);

    alluvium_ingest *ingest, *other;
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_put(alluvium_ingest_writer(ingest, rows), S("z"), S("v"), E));
    OK(alluvium_close(database, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_ingest_finish(ingest, NULL, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_ingest_begin(database, NULL, &other, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    alluvium_ingest_free(ingest);
}
