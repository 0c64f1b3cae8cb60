// Streams of changes: the contents of a change. Begin, wait and end of a stream are in streams.c.
#include <stdarg.h>

#include "check.h"

static char line[1024];

static void add(const char *format, ...) {
    va_list arguments;
    size_t used = strlen(line);
    va_start(arguments, format);
    int size = vsnprintf(line + used, sizeof line - used, format, arguments);
    va_end(arguments);
    CHECK(size >= 0 && used + (size_t)size < sizeof line);
}

// A slice as arguments for the format %.*s.
#define SHOW(slice) (int)(slice).size, (const char *)(slice).data

static void add_operation(const alluvium_change *change, size_t index) {
    alluvium_operation operation = {.struct_size = sizeof operation};
    OK(alluvium_change_operation(change, index, &operation, E));
    CHECK(operation.struct_size == sizeof operation && operation.keyspace_id > 0);
    add("%s%.*s[%.*s", index == 0 ? "" : " ", SHOW(operation.keyspace), SHOW(operation.key));
    switch (operation.kind) {
        case ALLUVIUM_OPERATION_KIND_PUT:
            CHECK(operation.value.data != NULL && operation.end.data == NULL);
            if (operation.value.size > 100) {
                add("]=%zu bytes", operation.value.size);
            } else {
                add("]=%.*s", SHOW(operation.value));
            }
            if (operation.until_ms != ALLUVIUM_NEVER) {
                add(" until %llu", (unsigned long long)operation.until_ms);
            }
            break;
        case ALLUVIUM_OPERATION_KIND_DELETE:
            CHECK(operation.value.data == NULL && operation.end.data == NULL && operation.until_ms == 0);
            add("]-");
            break;
        default:
            CHECK(operation.kind == ALLUVIUM_OPERATION_KIND_DELETE_RANGE);
            CHECK(operation.value.data == NULL && operation.until_ms == 0);
            add("..%.*s]-", SHOW(operation.end));
    }
}

static void add_keyspaces(const alluvium_change *change, const char *what) {
    add("%s", what);
    for (size_t i = 0; i < alluvium_change_keyspace_count(change); i++) {
        alluvium_changed_keyspace keyspace = {.struct_size = sizeof keyspace};
        OK(alluvium_change_keyspace(change, i, &keyspace, E));
        CHECK(keyspace.struct_size == sizeof keyspace && keyspace.id > 0 && keyspace.reserved == 0);
        add(" %.*s", SHOW(keyspace.name));
        if (keyspace.rows > 0) {
            add("+%llu", (unsigned long long)keyspace.rows);
        }
    }
}

const char *shown(const alluvium_change *change) {
    line[0] = 0;
    size_t size;
    const uint8_t *xid = alluvium_change_xid(change, &size);
    if (xid != NULL) {
        add("%.*s: ", (int)size, (const char *)xid);
    }
    switch (alluvium_change_get_kind(change)) {
        case ALLUVIUM_CHANGE_KIND_COMMIT:
            CHECK(alluvium_change_keyspace_count(change) == 0);
            for (size_t i = 0; i < alluvium_change_operation_count(change); i++) {
                add_operation(change, i);
            }
            break;
        case ALLUVIUM_CHANGE_KIND_INGEST:
            add_keyspaces(change, "ingest");
            break;
        case ALLUVIUM_CHANGE_KIND_KEYSPACE_CREATED:
            add_keyspaces(change, "create");
            break;
        case ALLUVIUM_CHANGE_KIND_KEYSPACE_DROPPED:
            add_keyspaces(change, "drop");
            break;
        case ALLUVIUM_CHANGE_KIND_OPTIONS_CHANGED:
            add_keyspaces(change, "options of");
            break;
        default:
            CHECK(change == NULL);
            add("the end");
    }
    return line;
}

bool next_is(alluvium_changes *changes, const char *expected) {
    alluvium_change *change;
    uint64_t before = alluvium_changes_next_seqno(changes);
    OK(alluvium_changes_next(changes, &change, E));
    if (change != NULL) {
        CHECK(alluvium_change_seqno(change) >= before);
        CHECK(alluvium_changes_next_seqno(changes) > alluvium_change_seqno(change));
    }
    bool is = strcmp(shown(change), expected) == 0;
    if (!is) {
        fprintf(stderr, "the change is: %s\n", line);
    }
    alluvium_change_free(change);
    return is;
}

alluvium_changes *changes_from(const alluvium_database *database, uint64_t from) {
    alluvium_changes *changes;
    OK(alluvium_changes_open(database, from, NULL, &changes, E));
    CHECK(changes != NULL && alluvium_changes_next_seqno(changes) == from);
    return changes;
}

uint64_t next_commit(const alluvium_database *database) {
    uint64_t seqno;
    OK(alluvium_visible_seqno(database, &seqno, E));
    return seqno + 1;
}

// Commits over two keyspaces, large values, an ingest, changed options, a drop: change n is at
// index n - 1.
static const char *const history[] = {
    "create rows",
    "create log",
    "log[c..d]- rows[a]=1 log[b]-",
    "rows[big]=5000 bytes",
    "log[soon]=2 until 1",
    "ingest log+2 rows+1",
    "options of rows",
    "log[last]=",
    "drop log",
    "create log",
    "log[first]=v",
};
#define STEPS (sizeof history / sizeof history[0])

static void write_history(const alluvium_database *database) {
    alluvium_keyspace *rows = keyspace_of(database, "rows"), *log;
    alluvium_keyspace_options options = {
        .struct_size = sizeof options, .expiry = ALLUVIUM_EXPIRY_PER_ROW, .block_bytes = 16384};
    OK(alluvium_keyspace_open(database, S("log"), &options, &log, E));
    alluvium_batch *batch = alluvium_batch_new();
    OK(alluvium_put(alluvium_batch_writer(batch, rows), S("a"), S("1"), E));
    OK(alluvium_delete(alluvium_batch_writer(batch, log), S("b"), E));
    OK(alluvium_delete_range(alluvium_batch_writer(batch, log), S("c"), S("d"), E));
    OK(alluvium_write(database, batch, NULL, E));
    alluvium_batch_free(batch);
    static const char large[5000];
    OK(alluvium_insert(alluvium_keyspace_writer(rows), S("big"), large, sizeof large, E));
    OK(alluvium_put_until(alluvium_keyspace_writer(log), S("soon"), S("2"), 1, E));
    alluvium_ingest *ingest;
    OK(alluvium_ingest_begin(database, NULL, &ingest, E));
    OK(alluvium_put(alluvium_ingest_writer(ingest, log), S("x"), S("1"), E));
    OK(alluvium_put(alluvium_ingest_writer(ingest, log), S("y"), S("2"), E));
    OK(alluvium_put(alluvium_ingest_writer(ingest, rows), S("z"), S("3"), E));
    OK(alluvium_ingest_finish(ingest, NULL, E));
    alluvium_ingest_free(ingest);
    options = (alluvium_keyspace_options){.struct_size = sizeof options, .block_bytes = 4096};
    OK(alluvium_keyspace_set_options(rows, &options, E));
    OK(alluvium_put(alluvium_keyspace_writer(log), S("last"), NULL, 0, E));
    OK(alluvium_keyspace_drop(database, log, E));
    alluvium_keyspace_free(log);
    log = keyspace_of(database, "log");
    OK(alluvium_flush(database, E));
    OK(alluvium_put(alluvium_keyspace_writer(log), S("first"), S("v"), E));
    alluvium_keyspace_free(log);
    alluvium_keyspace_free(rows);
}

static void everything_comes_in_order(const alluvium_database *database) {
    CHECK(next_commit(database) == STEPS + 1);
    // A stream from each number. The names of keyspaces that are dropped later are still known.
    for (uint64_t from = 1; from <= STEPS + 1; from++) {
        alluvium_changes *changes = changes_from(database, from);
        for (size_t i = from - 1; i < STEPS; i++) {
            CHECK(next_is(changes, history[i]));
        }
        CHECK(next_is(changes, "the end") && next_is(changes, "the end"));
        CHECK(alluvium_changes_next_seqno(changes) == STEPS + 1);
        alluvium_changes_free(changes);
    }
}

static alluvium_change *change_at(const alluvium_database *database, uint64_t seqno) {
    alluvium_changes *changes = changes_from(database, seqno);
    alluvium_change *change;
    OK(alluvium_changes_next(changes, &change, E));
    CHECK(alluvium_change_seqno(change) == seqno);
    alluvium_changes_free(changes);
    return change;
}

static void parts_are_lent_by_index(const alluvium_database *database) {
    alluvium_operation operation = {.struct_size = sizeof operation}, other = operation;
    alluvium_changed_keyspace keyspace = {.struct_size = sizeof keyspace};
    alluvium_keyspace_options options = {.struct_size = sizeof options};
    alluvium_change *change = change_at(database, 3);
    CHECK(alluvium_change_operation_count(change) == 3);
    OK(alluvium_change_operation(change, 1, &operation, E));
    OK(alluvium_change_operation(change, 2, &other, E));
    CHECK(slice_is(operation.keyspace, "rows") && slice_is(operation.key, "a") && slice_is(operation.value, "1"));
    CHECK(operation.until_ms == ALLUVIUM_NEVER && operation.keyspace_id != other.keyspace_id);
    // The struct of an older header has no room for later fields.
    operation = (alluvium_operation){.struct_size = offsetof(alluvium_operation, value), .until_ms = 7};
    OK(alluvium_change_operation(change, 1, &operation, E));
    CHECK(slice_is(operation.key, "a") && operation.value.data == NULL && operation.until_ms == 7);
    INVALID(alluvium_change_operation(change, 3, &other, E));
    INVALID(alluvium_change_operation(change, SIZE_MAX, &other, E));
    INVALID(alluvium_change_operation(change, 0, NULL, E));
    other.struct_size = 0;
    INVALID(alluvium_change_operation(change, 0, &other, E));
    INVALID(alluvium_change_keyspace(change, 0, &keyspace, E));
    INVALID(alluvium_change_options(change, &options, E));
    CHECK(alluvium_change_xid(change, NULL) == NULL);
    alluvium_change_free(change);

    change = change_at(database, 6);
    CHECK(alluvium_change_keyspace_count(change) == 2 && alluvium_change_operation_count(change) == 0);
    OK(alluvium_change_keyspace(change, 1, &keyspace, E));
    CHECK(slice_is(keyspace.name, "rows") && keyspace.rows == 1);
    INVALID(alluvium_change_keyspace(change, 2, &keyspace, E));
    INVALID(alluvium_change_keyspace(change, 0, NULL, E));
    INVALID(alluvium_change_operation(change, 0, &operation, E));
    INVALID(alluvium_change_options(change, &options, E));
    CHECK(alluvium_change_xid(change, NULL) == NULL);
    keyspace.struct_size = 5;
    INVALID(alluvium_change_keyspace(change, 0, &keyspace, E));
    alluvium_change_free(change);
}

static void created_and_changed_keyspaces_come_with_their_options(const alluvium_database *database) {
    alluvium_changed_keyspace dropped = {.struct_size = sizeof dropped}, again = dropped;
    alluvium_keyspace_options options = {.struct_size = sizeof options};
    alluvium_change *change = change_at(database, 2);
    OK(alluvium_change_options(change, &options, E));
    CHECK(options.expiry == ALLUVIUM_EXPIRY_PER_ROW && options.block_bytes == 16384);
    INVALID(alluvium_change_options(change, NULL, E));
    INVALID(alluvium_change_keyspace(change, 1, &dropped, E));
    alluvium_change_free(change);
    change = change_at(database, 7);
    OK(alluvium_change_options(change, &options, E));
    CHECK(options.expiry == ALLUVIUM_EXPIRY_NEVER && options.block_bytes == 4096);
    alluvium_change_free(change);
    change = change_at(database, 9);
    OK(alluvium_change_keyspace(change, 0, &dropped, E));
    INVALID(alluvium_change_options(change, &options, E));
    alluvium_change_free(change);
    change = change_at(database, 10);
    OK(alluvium_change_keyspace(change, 0, &again, E));
    CHECK(again.id != dropped.id && again.rows == 0);
    alluvium_change_free(change);
}

static void only_keyspaces_that_were_named_come(const alluvium_database *database) {
    alluvium_slice names[] = {{S("nobody's")}, {S("log")}};
    alluvium_changes_options options = {.struct_size = sizeof options, .keyspaces = names, .keyspace_count = 2};
    static const char *const expected[] = {"log[c..d]- log[b]-", "log[soon]=2 until 1", "ingest log+2", "log[last]=",
                                           "drop log", "create log", "log[first]=v", "the end"};
    alluvium_changes *changes;
    OK(alluvium_changes_open(database, 3, &options, &changes, E));
    // The stream has copied the names.
    names[1] = (alluvium_slice){S("rows")};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        CHECK(next_is(changes, expected[i]));
    }
    CHECK(alluvium_changes_next_seqno(changes) == next_commit(database));
    alluvium_changes_free(changes);
}

static void a_prepared_transaction_comes_with_its_commit(const alluvium_database *database) {
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    alluvium_changes *changes = changes_from(database, next_commit(database));
    static const char *const xids[] = {"x1", "x2"};
    for (size_t i = 0; i < 2; i++) {
        alluvium_transaction *transaction;
        alluvium_prepared *prepared;
        OK(alluvium_begin(database, NULL, &transaction, E));
        OK(alluvium_put(alluvium_transaction_writer(transaction, rows), S("p"), xids[i], 2, E));
        OK(alluvium_transaction_prepare(transaction, xids[i], 2, &prepared, E));
        alluvium_transaction_free(transaction);
        CHECK(next_is(changes, "the end"));
        OK(i == 0 ? alluvium_prepared_rollback(prepared, E) : alluvium_prepared_commit(prepared, E));
        alluvium_prepared_free(prepared);
    }
    CHECK(next_is(changes, "x2: rows[p]=x2") && next_is(changes, "the end"));
    alluvium_changes_free(changes);
    alluvium_keyspace_free(rows);
}

void test_changes(void) {
    alluvium_options options = {
        .struct_size = sizeof options, .change_log_bytes = 1 << 30, .idle_after_ms = ALLUVIUM_NO_TIDYING};
    alluvium_database *database = open_new("changes", &options);
    write_history(database);
    everything_comes_in_order(database);
    parts_are_lent_by_index(database);
    created_and_changed_keyspaces_come_with_their_options(database);
    only_keyspaces_that_were_named_come(database);
    a_prepared_transaction_comes_with_its_commit(database);
    alluvium_database_free(database);
}
