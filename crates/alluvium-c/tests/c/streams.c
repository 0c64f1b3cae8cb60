// Streams of changes: how they begin, wait, resume and end. The contents of a change are in
// changes.c.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static void put(const alluvium_keyspace *rows, const char *key) {
    OK(alluvium_put(alluvium_keyspace_writer(rows), key, strlen(key), S("v"), E));
}

static bool more_within(const alluvium_changes *changes, uint64_t timeout_ms) {
    bool more;
    OK(alluvium_changes_wait(changes, timeout_ms, &more, E));
    return more;
}

// Puts a row and flushes: one segment of the log.
static void put_and_flush(const alluvium_database *database, const alluvium_keyspace *rows, const char *key) {
    put(rows, key);
    OK(alluvium_flush(database, E));
}

static void a_stream_resumes_where_it_stopped(void) {
    alluvium_options options = {.struct_size = sizeof options, .change_log_bytes = 1 << 30};
    alluvium_database *database = open_new("resumed", &options);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_changes *changes = changes_from(database, next_commit(database));
    put(rows, "a");
    put_and_flush(database, rows, "b");
    CHECK(next_is(changes, "rows[a]=v"));
    alluvium_change *kept;
    OK(alluvium_changes_next(changes, &kept, E));
    uint64_t next = alluvium_changes_next_seqno(changes);
    put_and_flush(database, rows, "c");
    OK(alluvium_close(database, E));
    alluvium_change *change;
    bool more;
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_changes_next(changes, &change, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_changes_wait(changes, 0, &more, E));
    CHECK(change == NULL && !more && alluvium_changes_next_seqno(changes) == next);
    alluvium_changes *other;
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_changes_open(database, next, NULL, &other, E));
    CHECK(other == NULL);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    alluvium_changes_free(changes);
    // A change outlives its stream, keyspace and database.
    CHECK(strcmp(shown(kept), "rows[b]=v") == 0 && alluvium_change_seqno(kept) == next - 1);
    alluvium_change_free(kept);

    database = open_again("resumed", &options);
    changes = changes_from(database, next);
    // The stream alone keeps the database open.
    alluvium_database_free(database);
    CHECK(next_is(changes, "rows[c]=v") && next_is(changes, "the end"));
    alluvium_changes_free(changes);
}

static void durable_streams_hold_back_what_a_power_loss_could_take(void) {
    // One hour between syncs.
    alluvium_options options = {.struct_size = sizeof options, .sync_interval_us = UINT64_C(3600000000)};
    alluvium_database *database = open_new("durable", &options);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_changes_options durable_only = {.struct_size = sizeof durable_only, .durable_only = 1};
    alluvium_changes *all = changes_from(database, next_commit(database)), *durable;
    OK(alluvium_changes_open(database, next_commit(database), &durable_only, &durable, E));
    put(rows, "a");
    CHECK(more_within(all, 0) && next_is(all, "rows[a]=v") && !more_within(all, 0));
    CHECK(!more_within(durable, 0) && next_is(durable, "the end"));
    OK(alluvium_sync(database, E));
    CHECK(more_within(durable, 0) && next_is(durable, "rows[a]=v") && next_is(durable, "the end"));
    alluvium_changes_free(all);
    alluvium_changes_free(durable);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}

static void lost_changes_are_reported(void) {
    alluvium_options options = {.struct_size = sizeof options, .memory_bytes = 8 << 20};
    alluvium_database *database = open_new("lost", &options);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_changes *changes = changes_from(database, 1), *late;
    put_and_flush(database, rows, "a");
    CHECK(next_is(changes, "create rows") && next_is(changes, "rows[a]=v") && next_is(changes, "the end"));
    uint64_t next = alluvium_changes_next_seqno(changes);
    // More segments than memory_bytes has room for.
    for (int i = 0; i < 20; i++) {
        put_and_flush(database, rows, "b");
    }
    FAILS(ALLUVIUM_CODE_CHANGES_LOST, alluvium_changes_open(database, 1, NULL, &late, E));
    CHECK(late == NULL && alluvium_error_from_seqno(failure) == 1 && alluvium_error_oldest_seqno(failure) > next);
    alluvium_change *change;
    alluvium_code code;
    // Ends at the latest after the 20 commits.
    while ((code = alluvium_changes_next(changes, &change, NULL)) == ALLUVIUM_CODE_OK) {
        CHECK(change != NULL);
        alluvium_change_free(change);
    }
    CHECK(code == ALLUVIUM_CODE_CHANGES_LOST && change == NULL);
    next = alluvium_changes_next_seqno(changes);
    FAILS(ALLUVIUM_CODE_CHANGES_LOST, alluvium_changes_next(changes, &change, E));
    uint64_t oldest = alluvium_error_oldest_seqno(failure);
    CHECK(alluvium_error_from_seqno(failure) == next && oldest > next);
    CHECK(alluvium_changes_next_seqno(changes) == next);
    alluvium_changes_free(changes);
    changes = changes_from(database, oldest);
    CHECK(next_is(changes, "rows[b]=v"));
    alluvium_changes_free(changes);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}

static void invalid_arguments_are_refused(void) {
    alluvium_options unlogged = {.struct_size = sizeof unlogged, .durability = ALLUVIUM_DURABILITY_NONE};
    alluvium_database *database = open_new("unlogged", &unlogged);
    alluvium_changes *changes;
    INVALID(alluvium_changes_open(database, 1, NULL, &changes, E));
    CHECK(alluvium_error_from_seqno(failure) == 0 && alluvium_error_oldest_seqno(failure) == 0);
    alluvium_database_free(database);

    database = open_new("refused", NULL);
    uint64_t next = next_commit(database);
    INVALID(alluvium_changes_open(database, next + 1, NULL, &changes, E));
    INVALID(alluvium_changes_open(database, UINT64_MAX - 1, NULL, &changes, E));
    alluvium_slice names[] = {{S("\xff")}, {NULL, 1}};
    alluvium_changes_options options = {.struct_size = sizeof options, .keyspaces = names, .keyspace_count = 1};
    INVALID(alluvium_changes_open(database, next, &options, &changes, E));
    options.keyspaces = names + 1;
    INVALID(alluvium_changes_open(database, next, &options, &changes, E));
    options.keyspaces = NULL;
    INVALID(alluvium_changes_open(database, next, &options, &changes, E));
    options = (alluvium_changes_options){.struct_size = sizeof options, .reserved = 1};
    INVALID(alluvium_changes_open(database, next, &options, &changes, E));
    options = (alluvium_changes_options){.struct_size = 3};
    INVALID(alluvium_changes_open(database, next, &options, &changes, E));
    CHECK(changes == NULL);
    alluvium_database_free(database);
}

// Returns the path of the oldest log segment; valid until the next call. Segment names have the
// same length, so the smallest name has the smallest number.
static const char *oldest_segment(const char *name) {
    static char path[8192];
    char oldest[256];
    CHECK(first_file(name, ".wal", oldest, sizeof oldest));
    CHECK(snprintf(path, sizeof path, "%s/%s", path_of(name), oldest) < (int)sizeof path);
    return path;
}

static void damaged_and_unreadable_segments_are_errors(void) {
    alluvium_options options = {.struct_size = sizeof options, .change_log_bytes = 1 << 30};
    alluvium_database *database = open_new("unreadable", &options);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    put_and_flush(database, rows, "a");
    put_and_flush(database, rows, "b");
    alluvium_changes *behind = changes_from(database, next_commit(database)), *changes = changes_from(database, 1);
    // After this damage the readable part of the segment ends before the row.
    const char *segment = oldest_segment("unreadable");
    alluvium_change *change;
    char bytes[4096];
    FILE *file = fopen(segment, "r+b");
    CHECK(file != NULL && fread(bytes, 1, sizeof bytes, file) == sizeof bytes);
    // The value is the last nonzero byte of the last record.
    size_t end = sizeof bytes;
    while (end > 0 && bytes[end - 1] == 0) {
        end--;
    }
    CHECK(end > 0 && fseek(file, (long)end - 1, SEEK_SET) == 0 && fputc(bytes[end - 1] ^ 1, file) != EOF);
    CHECK(fclose(file) == 0);
    CHECK(next_is(changes, "create rows"));
    FAILS(ALLUVIUM_CODE_CORRUPTION, alluvium_changes_next(changes, &change, E));
    CHECK(change == NULL && alluvium_changes_next_seqno(changes) == 2);
    size_t size;
    const uint8_t *path = alluvium_error_path(failure, &size);
    CHECK(same(path, size, segment) && alluvium_error_offset(failure) > 0);
    alluvium_changes_free(changes);

    // A directory in place of the segment can be listed but not read.
    CHECK(unlink(segment) == 0 && mkdir(segment, 0700) == 0);
    FAILS(ALLUVIUM_CODE_IO, alluvium_changes_open(database, 1, NULL, &changes, E));
    CHECK(changes == NULL && alluvium_error_os_code(failure) != 0 && rmdir(segment) == 0);
    // Newer segments are still readable.
    put(rows, "c");
    CHECK(next_is(behind, "rows[c]=v") && next_is(behind, "the end"));
    alluvium_changes_free(behind);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}

static void a_wait_fails_after_a_failed_write(void) {
    alluvium_database *database = open_new("poisoned", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_changes *changes = changes_from(database, next_commit(database));
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK(handler != SIG_ERR && setrlimit(RLIMIT_FSIZE, &none) == 0);
    alluvium_code code = alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("v"), NULL);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0 && signal(SIGXFSZ, handler) != SIG_ERR);
    CHECK(code != ALLUVIUM_CODE_OK);
    bool more;
    FAILS(ALLUVIUM_CODE_POISONED, alluvium_changes_wait(changes, UINT64_MAX, &more, E));
    CHECK(!more && next_is(changes, "the end"));
    alluvium_changes_free(changes);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}

static void *wait_and_read(void *changes) {
    bool more = false;
    alluvium_change *change = NULL;
    // Ends when the row of the other thread arrives.
    while (change == NULL) {
        CHECK(alluvium_changes_wait(changes, UINT64_MAX, &more, NULL) == ALLUVIUM_CODE_OK && more);
        CHECK(alluvium_changes_next(changes, &change, NULL) == ALLUVIUM_CODE_OK);
    }
    return change;
}

static void *wait_for_the_close(void *changes) {
    bool more;
    alluvium_code code = alluvium_changes_wait(changes, UINT64_MAX, &more, NULL);
    CHECK(!more);
    return code == ALLUVIUM_CODE_CLOSED ? changes : NULL;
}

static void *read_often(void *change) {
    alluvium_operation operation = {.struct_size = sizeof operation};
    for (int i = 0; i < 1000; i++) {
        CHECK(alluvium_change_operation(change, 0, &operation, NULL) == ALLUVIUM_CODE_OK);
        CHECK(slice_is(operation.key, "from here") && alluvium_change_seqno(change) > 0);
    }
    return NULL;
}

static void other_threads_wait_and_read(void) {
    alluvium_database *database = open_new("threads", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_changes *changes = changes_from(database, next_commit(database));
    pthread_t thread;
    void *change, *answer;
    CHECK(pthread_create(&thread, NULL, wait_and_read, changes) == 0);
    put(rows, "from here");
    CHECK(pthread_join(thread, &change) == 0 && strcmp(shown(change), "rows[from here]=v") == 0);
    // Two threads share one change; from here on the stream is used by this thread.
    CHECK(pthread_create(&thread, NULL, read_often, change) == 0);
    read_often(change);
    CHECK(next_is(changes, "the end") && !more_within(changes, 1));
    CHECK(pthread_join(thread, NULL) == 0);
    alluvium_change_free(change);

    CHECK(pthread_create(&thread, NULL, wait_for_the_close, changes) == 0);
    OK(alluvium_close(database, E));
    CHECK(pthread_join(thread, &answer) == 0 && answer == changes);
    alluvium_changes_free(changes);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}

static void streams_and_changes_may_be_null(void) {
    alluvium_database *database = open_new("null changes", NULL);
    alluvium_changes *changes;
    alluvium_change *change;
    alluvium_operation operation = {.struct_size = sizeof operation};
    alluvium_changed_keyspace keyspace = {.struct_size = sizeof keyspace};
    alluvium_keyspace_options options = {.struct_size = sizeof options};
    size_t size = 1;
    bool more;
    INVALID(alluvium_changes_open(NULL, 1, NULL, &changes, E));
    CHECK(changes == NULL);
    INVALID(alluvium_changes_open(database, 1, NULL, NULL, E));
    INVALID(alluvium_changes_next(NULL, &change, E));
    INVALID(alluvium_changes_wait(NULL, 0, &more, E));
    CHECK(change == NULL && !more && alluvium_changes_next_seqno(NULL) == 0);
    changes = changes_from(database, 1);
    INVALID(alluvium_changes_next(changes, NULL, E));
    INVALID(alluvium_changes_wait(changes, 0, NULL, E));
    CHECK(alluvium_changes_next(changes, NULL, NULL) == ALLUVIUM_CODE_INVALID_ARGUMENT);
    INVALID(alluvium_change_operation(NULL, 0, &operation, E));
    INVALID(alluvium_change_keyspace(NULL, 0, &keyspace, E));
    INVALID(alluvium_change_options(NULL, &options, E));
    CHECK(alluvium_change_seqno(NULL) == 0 && alluvium_change_get_kind(NULL) == ALLUVIUM_CHANGE_KIND_OTHER);
    CHECK(alluvium_change_operation_count(NULL) == 0 && alluvium_change_keyspace_count(NULL) == 0);
    CHECK(alluvium_change_xid(NULL, &size) == NULL && size == 0);
    CHECK(alluvium_error_from_seqno(NULL) == 0 && alluvium_error_oldest_seqno(NULL) == 0);
    alluvium_change_free(NULL);
    alluvium_changes_free(NULL);
    alluvium_changes_free(changes);
    alluvium_database_free(database);
}

void test_streams(void) {
    a_stream_resumes_where_it_stopped();
    durable_streams_hold_back_what_a_power_loss_could_take();
    lost_changes_are_reported();
    invalid_arguments_are_refused();
    damaged_and_unreadable_segments_are_errors();
    a_wait_fails_after_a_failed_write();
    other_threads_wait_and_read();
    streams_and_changes_may_be_null();
}
