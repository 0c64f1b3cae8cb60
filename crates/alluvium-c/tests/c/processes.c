// Handles in a process that was forked from their creator.
#include "check.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

// Handles of the parent, with readers and writers made before the fork.
typedef struct inherited {
    alluvium_database *database;
    alluvium_keyspace *rows;
    alluvium_cursor *cursor;
    alluvium_transaction *transaction;
    alluvium_snapshot *snapshot;
    alluvium_batch *batch;
    alluvium_ingest *ingest, *load;
    alluvium_reader readers[3];
    alluvium_writer writers[6];
} inherited;

// Calls functions with every kind of inherited handle in the child, then frees all handles. Returns
// the number of calls that were not refused. The places for errors are NULL, so that the child has
// only the handles to free.
static int calls_let_through(const inherited *handles) {
    alluvium_value *value;
    bool found;
    int wrong = 0;
    for (size_t i = 0; i < 6; i++) {
        wrong += alluvium_put(handles->writers[i], S("child"), S("1"), NULL) != ALLUVIUM_CODE_FORKED;
    }
    for (size_t i = 0; i < 3; i++) {
        wrong += alluvium_get(handles->readers[i], S("parent"), &value, NULL) != ALLUVIUM_CODE_FORKED || value != NULL;
    }
    alluvium_writer made_here = alluvium_keyspace_writer(handles->rows);
    wrong += alluvium_put(made_here, S("child"), S("1"), NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_sync(handles->database, NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_flush(handles->database, NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_cursor_next(handles->cursor, &found, NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_close(handles->database, NULL) != ALLUVIUM_CODE_FORKED;
    alluvium_cursor_free(handles->cursor);
    alluvium_transaction_free(handles->transaction);
    alluvium_snapshot_free(handles->snapshot);
    alluvium_batch_free(handles->batch);
    alluvium_ingest_free(handles->ingest);
    alluvium_ingest_free(handles->load);
    alluvium_keyspace_free(handles->rows);
    alluvium_database_free(handles->database);
    return wrong;
}

static void make_readers_and_writers(inherited *handles) {
    const alluvium_keyspace *rows = handles->rows;
    handles->readers[0] = alluvium_keyspace_reader(rows);
    handles->readers[1] = alluvium_snapshot_reader(handles->snapshot, rows);
    handles->readers[2] = alluvium_transaction_reader(handles->transaction, rows);
    handles->writers[0] = alluvium_keyspace_writer(rows);
    handles->writers[1] = alluvium_transaction_writer(handles->transaction, rows);
    handles->writers[2] = alluvium_transaction_writer_untracked(handles->transaction, rows);
    handles->writers[3] = alluvium_batch_writer(handles->batch, rows);
    handles->writers[4] = alluvium_ingest_writer(handles->ingest, rows);
    handles->writers[5] = alluvium_ingest_writer(handles->load, rows);
}

void test_processes(void) {
    alluvium_database *database = open_new("processes", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("parent"), S("before"), E));
    alluvium_cursor *cursor;
    OK(alluvium_cursor_open(alluvium_keyspace_reader(rows), NULL, &cursor, E));
    bool found;
    OK(alluvium_cursor_seek_first(cursor, &found, E));
    CHECK(found);
    alluvium_snapshot *snapshot;
    OK(alluvium_snapshot_open(database, &snapshot, E));
    alluvium_transaction *transaction;
    OK(alluvium_begin(database, NULL, &transaction, E));
    OK(alluvium_put(alluvium_transaction_writer(transaction, rows), S("in transaction"), S("1"), E));

    alluvium_batch *batch = alluvium_batch_new();
    alluvium_ingest *ingest;
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_put(alluvium_ingest_writer(ingest, rows), S("ingested"), S("1"), E));
    alluvium_ingest *load;
    OK(alluvium_ingest_begin(database, &any_order, &load, E));
    OK(alluvium_put(alluvium_ingest_writer(load, rows), S("loaded"), S("1"), E));
    inherited handles = {database, rows, cursor, transaction, snapshot, batch, ingest, load, {{0}}, {{0}}};
    make_readers_and_writers(&handles);

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // Ends a child that hangs.
        alarm(60);
        _exit(calls_let_through(&handles));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

    // The parent can still use all handles, including handles freed by the child in its own memory.
    OK(alluvium_transaction_commit(transaction, E));
    alluvium_transaction_free(transaction);
    OK(alluvium_put(handles.writers[0], S("parent"), S("after"), E));
    OK(alluvium_put(handles.writers[3], S("in batch"), S("1"), E));
    OK(alluvium_write(database, batch, NULL, E));
    OK(alluvium_ingest_finish(ingest, NULL, E));
    OK(alluvium_ingest_finish(load, NULL, E));
    alluvium_batch_free(batch);
    alluvium_ingest_free(ingest);
    alluvium_ingest_free(load);
    alluvium_cursor_free(cursor);
    alluvium_snapshot_free(snapshot);
    OK(alluvium_close(database, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    database = open_again("processes", NULL);
    rows = keyspace_of(database, "rows");
    CHECK(strcmp(read_row(rows, "parent"), "after") == 0);
    CHECK(strcmp(read_row(rows, "in transaction"), "1") == 0);
    CHECK(strcmp(read_row(rows, "in batch"), "1") == 0);
    CHECK(strcmp(read_row(rows, "ingested"), "1") == 0 && strcmp(read_row(rows, "loaded"), "1") == 0);
    CHECK(strcmp(read_row(rows, "child"), "absent") == 0);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}
