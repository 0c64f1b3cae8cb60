// Callbacks of the engine: clocks and compaction filters.
#include <stdatomic.h>

#include "check.h"

static uint64_t now(void *time) {
    return atomic_load((_Atomic uint64_t *)time);
}

static void rows_expire_by_the_clock_that_was_given(void) {
    _Atomic uint64_t time = 1000;
    alluvium_options options = {.struct_size = sizeof options, .clock = now, .clock_context = &time};
    alluvium_database *database = open_new("expiry", &options);
    alluvium_keyspace_options expiring = {.struct_size = sizeof expiring, .expiry = ALLUVIUM_EXPIRY_PER_ROW};
    alluvium_keyspace *rows;
    OK(alluvium_keyspace_open(database, S("rows"), &expiring, &rows, E));
    OK(alluvium_put_until(alluvium_keyspace_writer(rows), S("a"), S("1"), 2000, E));
    alluvium_batch *batch = alluvium_batch_new();
    OK(alluvium_put_until(alluvium_batch_writer(batch, rows), S("b"), S("2"), 3000, E));
    OK(alluvium_write(database, batch, NULL, E));
    alluvium_batch_free(batch);
    alluvium_transaction *transaction;
    OK(alluvium_begin(database, NULL, &transaction, E));
    OK(alluvium_put_until(alluvium_transaction_writer(transaction, rows), S("c"), S("3"), 4000, E));
    OK(alluvium_transaction_commit(transaction, E));
    alluvium_transaction_free(transaction);
    CHECK(strcmp(read_row(rows, "a"), "1") == 0);
    atomic_store(&time, 2000);
    CHECK(strcmp(read_row(rows, "a"), "absent") == 0 && strcmp(read_row(rows, "b"), "2") == 0);
    atomic_store(&time, 3999);
    CHECK(strcmp(read_row(rows, "b"), "absent") == 0 && strcmp(read_row(rows, "c"), "3") == 0);
    uint64_t shown;
    OK(alluvium_now_ms(database, &shown, E));
    CHECK(shown == 3999);
    OK(alluvium_flush(database, E));
    alluvium_stats stats = {.struct_size = sizeof stats};
    OK(alluvium_get_stats(database, &stats, E));
    CHECK(stats.confirmed_time_ms == 3999 && stats.clock_jumps == 0);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    uint64_t stored;
    OK(alluvium_set_stored_time(path_of("expiry"), strlen(path_of("expiry")), 3000, &stored, E));
    CHECK(stored == 3999);
    OK(alluvium_set_stored_time(path_of("expiry"), strlen(path_of("expiry")), 3000, &stored, E));
    CHECK(stored == 3000);
}

typedef struct {
    atomic_int calls, freed;
} filter_context;

static uint32_t decide(void *context, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
                       uint64_t seqno, alluvium_replacement *replacement) {
    filter_context *own = context;
    atomic_fetch_add(&own->calls, 1);
    (void)seqno;
    if (same(key, key_size, "remove")) {
        return ALLUVIUM_DECISION_REMOVE;
    }
    if (same(value, value_size, "replace")) {
        alluvium_replacement_set(replacement, S("replaced"));
        return ALLUVIUM_DECISION_REPLACE;
    }
    if (same(key, key_size, "unset")) {
        return ALLUVIUM_DECISION_REPLACE;
    }
    return same(key, key_size, "odd") ? 77 : ALLUVIUM_DECISION_KEEP;
}

static void free_context(void *context) {
    filter_context *own = context;
    atomic_fetch_add(&own->freed, 1);
}

static void a_filter_keeps_removes_and_replaces(void) {
    filter_context context = {0};
    alluvium_compaction_filter filter = {
        .struct_size = sizeof filter, .filter = decide, .context = &context, .free_context = free_context};
    alluvium_database *database = open_new("filter", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    OK(alluvium_keyspace_set_compaction_filter(rows, &filter, E));
    const char *keys[] = {"keep", "remove", "change", "unset", "odd"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = i == 2 ? "replace" : "v";
        OK(alluvium_put(alluvium_keyspace_writer(rows), keys[i], strlen(keys[i]), value, strlen(value), E));
    }
    OK(alluvium_flush(database, E));
    CHECK(atomic_load(&context.calls) >= 5 && atomic_load(&context.freed) == 0);
    CHECK(strcmp(read_row(rows, "keep"), "v") == 0 && strcmp(read_row(rows, "remove"), "absent") == 0);
    CHECK(strcmp(read_row(rows, "change"), "replaced") == 0);
    CHECK(strcmp(read_row(rows, "unset"), "v") == 0 && strcmp(read_row(rows, "odd"), "v") == 0);

    OK(alluvium_settle(database, E));
    OK(alluvium_keyspace_set_compaction_filter(rows, NULL, E));
    OK(alluvium_close(database, E));
    CHECK(atomic_load(&context.freed) == 1);
    // A context is not freed if the call that received it failed.
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_keyspace_set_compaction_filter(rows, &filter, E));
    filter.filter = NULL;
    INVALID(alluvium_keyspace_set_compaction_filter(rows, &filter, E));
    CHECK(atomic_load(&context.freed) == 1);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}

void test_callbacks(void) {
    rows_expire_by_the_clock_that_was_given();
    a_filter_keeps_removes_and_replaces();
}
