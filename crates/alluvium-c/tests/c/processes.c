// Handles in a process that was forked from their creator.
#include "check.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

// Calls functions with every kind of inherited handle in the child, then frees all handles. Returns
// the number of calls that were not refused. The places for errors are NULL, so that the child has
// only the handles to free.
static int calls_let_through(alluvium_database *database, alluvium_keyspace *rows, alluvium_cursor *cursor,
                             alluvium_transaction *transaction, alluvium_snapshot *snapshot) {
    alluvium_value *value;
    bool found;
    int wrong = 0;
    wrong += alluvium_keyspace_put(rows, S("child"), S("1"), NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_keyspace_get(rows, S("parent"), &value, NULL) != ALLUVIUM_CODE_FORKED || value != NULL;
    wrong += alluvium_sync(database, NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_flush(database, NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_cursor_next(cursor, &found, NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_transaction_put(transaction, rows, S("child"), S("1"), NULL) != ALLUVIUM_CODE_FORKED;
    wrong += alluvium_close(database, NULL) != ALLUVIUM_CODE_FORKED;
    alluvium_cursor_free(cursor);
    alluvium_transaction_free(transaction);
    alluvium_snapshot_free(snapshot);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    return wrong;
}

void test_processes(void) {
    alluvium_database *database = open_new("processes", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    OK(alluvium_keyspace_put(rows, S("parent"), S("before"), E));
    alluvium_cursor *cursor;
    OK(alluvium_keyspace_cursor(rows, NULL, &cursor, E));
    bool found;
    OK(alluvium_cursor_seek_first(cursor, &found, E));
    CHECK(found);
    alluvium_snapshot *snapshot;
    OK(alluvium_snapshot_open(database, &snapshot, E));
    alluvium_transaction *transaction;
    OK(alluvium_begin(database, NULL, &transaction, E));
    OK(alluvium_transaction_put(transaction, rows, S("in transaction"), S("1"), E));

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // Ends a child that hangs.
        alarm(60);
        _exit(calls_let_through(database, rows, cursor, transaction, snapshot));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

    // The parent can still use all handles, including handles freed by the child in its own memory.
    OK(alluvium_transaction_commit(transaction, E));
    OK(alluvium_keyspace_put(rows, S("parent"), S("after"), E));
    alluvium_cursor_free(cursor);
    alluvium_snapshot_free(snapshot);
    OK(alluvium_close(database, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    database = open_again("processes", NULL);
    rows = keyspace_of(database, "rows");
    CHECK(strcmp(read_row(rows, "parent"), "after") == 0);
    CHECK(strcmp(read_row(rows, "in transaction"), "1") == 0);
    CHECK(strcmp(read_row(rows, "child"), "absent") == 0);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}
