// Readers and writers: operations that an owner cannot do, and owners that have ended.
#include "check.h"

// Returns true if the message of the last failure contains the text.
static bool message_has(const char *text) {
    return strstr(alluvium_error_message(failure, NULL), text) != NULL;
}

static void loads_only_put(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_ingest *ingest, *load;
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_ingest_begin(database, &any_order, &load, E));
    alluvium_writer writers[] = {alluvium_ingest_writer(ingest, rows), alluvium_ingest_writer(load, rows)};
    for (size_t i = 0; i < 2; i++) {
        OK(alluvium_put(writers[i], S("load"), S("v"), E));
        INVALID(alluvium_insert(writers[i], S("load 2"), S("v"), E));
        CHECK(message_has("an ingest only puts rows"));
        INVALID(alluvium_delete(writers[i], S("load"), E));
        CHECK(message_has("an ingest only puts rows"));
        INVALID(alluvium_delete_range(writers[i], S("a"), S("z"), E));
        CHECK(message_has("an ingest only puts rows"));
        INVALID(alluvium_delete_prefix(writers[i], S("load"), E));
        CHECK(message_has("an ingest only puts rows"));
    }
    // Refused writes do not end a load.
    alluvium_ingested ingested = {.struct_size = sizeof ingested};
    OK(alluvium_ingest_finish(ingest, &ingested, E));
    CHECK(ingested.rows == 1 && strcmp(read_row(rows, "load"), "v") == 0);
    OK(alluvium_ingest_finish(load, &ingested, E));
    CHECK(ingested.rows == 1);
    INVALID(alluvium_put(writers[0], S("z"), S("v"), E));
    CHECK(message_has("the ingest is finished"));
    INVALID(alluvium_put(writers[1], S("z"), S("v"), E));
    CHECK(message_has("the ingest is finished"));
    alluvium_ingest_free(ingest);
    alluvium_ingest_free(load);
}

static void untracked_writes_can_expire(const alluvium_database *database) {
    alluvium_keyspace_options options = {.struct_size = sizeof options, .expiry = ALLUVIUM_EXPIRY_PER_ROW};
    alluvium_keyspace *rows;
    OK(alluvium_keyspace_open(database, S("expiring"), &options, &rows, E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("1"), E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("pre"), S("1"), E));
    alluvium_transaction *transaction;
    OK(alluvium_begin(database, NULL, &transaction, E));
    alluvium_writer writer = alluvium_transaction_writer_untracked(transaction, rows);
    OK(alluvium_put_until(writer, S("b"), S("1"), UINT64_MAX / 2, E));
    OK(alluvium_put_until(writer, S("c"), S("1"), 1, E));
    OK(alluvium_delete_range(writer, S("a"), S("aa"), E));
    OK(alluvium_delete_prefix(writer, S("pre"), E));
    OK(alluvium_transaction_commit(transaction, E));
    alluvium_transaction_free(transaction);
    CHECK(strcmp(read_row(rows, "a"), "absent") == 0 && strcmp(read_row(rows, "pre"), "absent") == 0);
    CHECK(strcmp(read_row(rows, "b"), "1") == 0 && strcmp(read_row(rows, "c"), "absent") == 0);
    alluvium_keyspace_free(rows);
}

static void a_missing_owner_is_named(const alluvium_keyspace *rows) {
    struct {
        alluvium_writer writer;
        const char *message;
    } writers[] = {
        {alluvium_keyspace_writer(NULL), "keyspace is NULL"},
        {alluvium_batch_writer(NULL, rows), "batch is NULL"},
        {alluvium_transaction_writer(NULL, rows), "transaction is NULL"},
        {alluvium_transaction_writer_untracked(NULL, rows), "transaction is NULL"},
        {alluvium_ingest_writer(NULL, rows), "ingest is NULL"},
        {{0}, "keyspace is NULL"},
        {{.keyspace = rows}, "not made by alluvium_..._writer"},
    };
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        INVALID(alluvium_put(writers[i].writer, S("k"), S("v"), E));
        CHECK(message_has(writers[i].message));
    }
    struct {
        alluvium_reader reader;
        const char *message;
    } readers[] = {
        {alluvium_keyspace_reader(NULL), "keyspace is NULL"},
        // Not the newest commit, although the keyspace is there.
        {alluvium_snapshot_reader(NULL, rows), "snapshot is NULL"},
        {alluvium_transaction_reader(NULL, rows), "transaction is NULL"},
        {{0}, "keyspace is NULL"},
        {{.keyspace = rows}, "not made by alluvium_..._reader"},
    };
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        alluvium_value *value;
        INVALID(alluvium_get(readers[i].reader, S("k"), &value, E));
        CHECK(value == NULL && message_has(readers[i].message));
    }
}

static void the_owner_is_of_the_keyspace_s_database(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_database *other = open_new("owners2", NULL);
    alluvium_keyspace *foreign = keyspace_of(other, "rows");
    alluvium_snapshot *snapshot;
    alluvium_transaction *transaction;
    alluvium_batch *batch = alluvium_batch_new();
    alluvium_ingest *ingest, *load;
    alluvium_value *value;
    OK(alluvium_snapshot_open(database, &snapshot, E));
    OK(alluvium_begin(database, NULL, &transaction, E));
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_ingest_begin(database, &any_order, &load, E));
    OK(alluvium_put(alluvium_batch_writer(batch, rows), S("k"), S("v"), E));
    INVALID(alluvium_get(alluvium_snapshot_reader(snapshot, foreign), S("k"), &value, E));
    INVALID(alluvium_get(alluvium_transaction_reader(transaction, foreign), S("k"), &value, E));
    INVALID(alluvium_put(alluvium_transaction_writer(transaction, foreign), S("k"), S("v"), E));
    INVALID(alluvium_put(alluvium_transaction_writer_untracked(transaction, foreign), S("k"), S("v"), E));
    INVALID(alluvium_put(alluvium_batch_writer(batch, foreign), S("k"), S("v"), E));
    INVALID(alluvium_put(alluvium_ingest_writer(ingest, foreign), S("k"), S("v"), E));
    INVALID(alluvium_put(alluvium_ingest_writer(load, foreign), S("k"), S("v"), E));
    alluvium_snapshot_free(snapshot);
    alluvium_transaction_free(transaction);
    alluvium_batch_free(batch);
    alluvium_ingest_free(ingest);
    alluvium_ingest_free(load);
    alluvium_keyspace_free(foreign);
    alluvium_database_free(other);
}

static void readers_and_writers_outlast_no_owner(alluvium_database *database, alluvium_keyspace *rows) {
    alluvium_transaction *transaction;
    alluvium_snapshot *snapshot;
    alluvium_value *value;
    OK(alluvium_begin(database, NULL, &transaction, E));
    OK(alluvium_snapshot_open(database, &snapshot, E));
    // Copies are as good as the first.
    alluvium_reader reader = alluvium_transaction_reader(transaction, rows), copy = reader;
    alluvium_writer writer = alluvium_transaction_writer(transaction, rows);
    OK(alluvium_put(writer, S("own"), S("v"), E));
    OK(alluvium_get(copy, S("own"), &value, E));
    CHECK(value_is(value, "v"));
    OK(alluvium_transaction_rollback(transaction, E));
    INVALID(alluvium_get(copy, S("own"), &value, E));
    CHECK(message_has("the transaction has ended"));
    INVALID(alluvium_put(writer, S("own"), S("v"), E));
    CHECK(message_has("the transaction has ended"));
    alluvium_transaction_free(transaction);

    alluvium_keyspace *dropped = keyspace_of(database, "dropped");
    reader = alluvium_keyspace_reader(dropped);
    writer = alluvium_keyspace_writer(dropped);
    OK(alluvium_keyspace_drop(database, dropped, E));
    FAILS(ALLUVIUM_CODE_KEYSPACE_DROPPED, alluvium_get(reader, S("k"), &value, E));
    FAILS(ALLUVIUM_CODE_KEYSPACE_DROPPED, alluvium_put(writer, S("k"), S("v"), E));
    alluvium_keyspace_free(dropped);

    alluvium_batch *batch = alluvium_batch_new();
    reader = alluvium_snapshot_reader(snapshot, rows);
    OK(alluvium_close(database, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_get(reader, S("k"), &value, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_get(alluvium_keyspace_reader(rows), S("k"), &value, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_put(alluvium_keyspace_writer(rows), S("k"), S("v"), E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_put(alluvium_batch_writer(batch, rows), S("k"), S("v"), E));
    alluvium_batch_free(batch);
    alluvium_snapshot_free(snapshot);
}

void test_owners(void) {
    alluvium_database *database = open_new("owners", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    loads_only_put(database, rows);
    untracked_writes_can_expire(database);
    a_missing_owner_is_named(rows);
    the_owner_is_of_the_keyspace_s_database(database, rows);
    readers_and_writers_outlast_no_owner(database, rows);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}
