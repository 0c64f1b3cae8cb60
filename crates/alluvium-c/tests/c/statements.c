// What a SQL server sets for each statement of a transaction, and what it asks about lock waits.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "check.h"

typedef struct {
    atomic_int count;
    uint64_t waiter, owner;
    size_t owners;
} waits;

static void note(void *context, const alluvium_lock_wait *wait) {
    waits *own = context;
    CHECK(wait->struct_size >= sizeof *wait && slice_is(wait->keyspace, "rows") && slice_is(wait->key, "row"));
    own->waiter = wait->waiter.tag;
    own->owners = wait->owner_count;
    own->owner = wait->owners[0].tag;
    atomic_fetch_add(&own->count, 1);
}

static alluvium_transaction *begin(const alluvium_database *database, uint32_t isolation, uint64_t tag) {
    alluvium_transaction_options options = {
        .struct_size = sizeof options, .isolation = isolation, .lock_timeout_ms = 600000, .tag = tag,
    };
    alluvium_transaction *transaction;
    OK(alluvium_begin(database, &options, &transaction, E));
    return transaction;
}

static const char *read_in(const alluvium_transaction *transaction, const alluvium_keyspace *rows, const char *key) {
    static char buffer[64];
    size_t size;
    bool found;
    alluvium_reader reader = alluvium_transaction_reader(transaction, rows);
    OK(alluvium_get_into(reader, key, strlen(key), buffer, sizeof buffer - 1, &size, &found, E));
    buffer[found ? size : 0] = 0;
    return found ? buffer : "absent";
}

static void statements_have_a_read_point(const alluvium_database *database, const alluvium_keyspace *rows) {
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("1"), E));
    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_READ_COMMITTED, 0);
    alluvium_snapshot *snapshot;
    OK(alluvium_snapshot_open(database, &snapshot, E));
    uint64_t seqno = 1, shown = alluvium_snapshot_seqno(snapshot);
    OK(alluvium_transaction_read_point(transaction, &seqno, E));
    CHECK(seqno == 0);
    OK(alluvium_transaction_set_read_point(transaction, snapshot, E));
    OK(alluvium_transaction_read_point(transaction, &seqno, E));
    CHECK(seqno == shown);
    alluvium_snapshot_free(snapshot);
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("2"), E));
    CHECK(strcmp(read_in(transaction, rows, "a"), "1") == 0);
    OK(alluvium_transaction_set_read_point(transaction, NULL, E));
    CHECK(strcmp(read_in(transaction, rows, "a"), "2") == 0);
    OK(alluvium_transaction_rollback(transaction, E));
    INVALID(alluvium_transaction_set_read_point(transaction, NULL, E));
    INVALID(alluvium_transaction_read_point(transaction, &seqno, E));
    alluvium_transaction_free(transaction);

    transaction = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT, 0);
    INVALID(alluvium_transaction_set_read_point(transaction, NULL, E));
    alluvium_transaction_free(transaction);

    alluvium_transaction_options options = {.struct_size = sizeof options, .late_read_point = 1};
    OK(alluvium_begin(database, &options, &transaction, E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("3"), E));
    CHECK(strcmp(read_in(transaction, rows, "a"), "3") == 0);
    alluvium_transaction_free(transaction);
}

static void the_newest_version_counts(const alluvium_database *database, const alluvium_keyspace *rows) {
    alluvium_transaction *transaction = begin(database, ALLUVIUM_ISOLATION_SNAPSHOT, 0);
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("b"), S("1"), E));
    alluvium_value *value;
    const uint32_t exclusive = ALLUVIUM_LOCK_MODE_EXCLUSIVE;
    OK(alluvium_transaction_get_newest_locked(transaction, rows, S("b"), exclusive, &value, E));
    CHECK(value_is(value, "1"));
    OK(alluvium_transaction_get_newest_locked(transaction, rows, S("none"), exclusive, &value, E));
    CHECK(value == NULL);
    INVALID(alluvium_transaction_get_newest_locked(transaction, rows, S("b"), 2, &value, E));
    bool released;
    OK(alluvium_transaction_unlock(transaction, rows, S("none"), &released, E));
    CHECK(released);
    OK(alluvium_transaction_unlock(transaction, rows, S("none"), &released, E));
    CHECK(!released);
    OK(alluvium_transaction_insert_new(transaction, rows, S("b"), S("2"), &value, E));
    CHECK(value_is(value, "1"));
    OK(alluvium_transaction_insert_new(transaction, rows, S("c"), S("2"), &value, E));
    CHECK(value == NULL);
    OK(alluvium_transaction_commit(transaction, E));
    INVALID(alluvium_transaction_insert_new(transaction, rows, S("c"), S("2"), &value, E));
    alluvium_transaction_free(transaction);
    CHECK(strcmp(read_row(rows, "c"), "2") == 0);
}

typedef struct {
    const alluvium_transaction *transaction;
    const alluvium_keyspace *rows;
    alluvium_code code;
} lock_call;

static void *lock_row(void *argument) {
    lock_call *call = argument;
    call->code = alluvium_transaction_lock(call->transaction, call->rows, S("row"), ALLUVIUM_LOCK_MODE_SHARED, NULL);
    return NULL;
}

static void waits_are_heard_and_listed(const alluvium_database *database, const alluvium_keyspace *rows, waits *heard) {
    alluvium_transaction *owner = begin(database, ALLUVIUM_ISOLATION_READ_COMMITTED, 7);
    alluvium_transaction *waiter = begin(database, ALLUVIUM_ISOLATION_READ_COMMITTED, 8);
    OK(alluvium_transaction_lock(owner, rows, S("row"), ALLUVIUM_LOCK_MODE_EXCLUSIVE, E));
    OK(alluvium_transaction_set_lock_timeout(waiter, ALLUVIUM_NO_WAIT, E));
    FAILS(ALLUVIUM_CODE_LOCK_TIMEOUT,
          alluvium_transaction_lock(waiter, rows, S("row"), ALLUVIUM_LOCK_MODE_SHARED, E));
    CHECK(atomic_load(&heard->count) == 0);

    OK(alluvium_transaction_set_lock_timeout(waiter, 600000, E));
    alluvium_lock_cancel *cancel = alluvium_lock_cancel_new();
    OK(alluvium_transaction_set_cancel(waiter, cancel, E));
    lock_call call = {.transaction = waiter, .rows = rows};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, lock_row, &call) == 0);
    while (atomic_load(&heard->count) == 0) sched_yield();
    CHECK(heard->waiter == 8 && heard->owners == 1 && heard->owner == 7);

    alluvium_lock_wait_list *list;
    OK(alluvium_lock_waits(database, &list, E));
    CHECK(alluvium_lock_wait_list_count(list) == 1);
    alluvium_lock_wait wait = {.struct_size = sizeof wait};
    OK(alluvium_lock_wait_list_item(list, 0, &wait, E));
    CHECK(wait.waiter.tag == 8 && wait.waiter.id != wait.owners[0].id && wait.owners[0].tag == 7);
    CHECK(slice_is(wait.key, "row") && slice_is(wait.keyspace, "rows"));
    INVALID(alluvium_lock_wait_list_item(list, 1, &wait, E));
    alluvium_lock_wait_list_free(list);

    alluvium_lock_cancel_cancel(cancel);
    CHECK(pthread_join(thread, NULL) == 0 && call.code == ALLUVIUM_CODE_CANCELED);
    alluvium_lock_cancel_free(cancel);
    OK(alluvium_transaction_set_cancel(waiter, NULL, E));
    alluvium_transaction_free(owner);
    OK(alluvium_transaction_lock(waiter, rows, S("row"), ALLUVIUM_LOCK_MODE_SHARED, E));
    alluvium_transaction_free(waiter);
    OK(alluvium_lock_waits(database, &list, E));
    CHECK(alluvium_lock_wait_list_count(list) == 0);
    alluvium_lock_wait_list_free(list);
}

void test_statements(void) {
    waits heard = {0};
    alluvium_options options = {
        .struct_size = sizeof options, .lock_wait_listener = note, .lock_wait_context = &heard,
    };
    alluvium_database *database = open_new("statements", &options);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    statements_have_a_read_point(database, rows);
    the_newest_version_counts(database, rows);
    waits_are_heard_and_listed(database, rows, &heard);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}
