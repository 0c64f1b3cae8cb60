// Listeners: events of background work, on a thread of their own.
#include <sched.h>
#include <stdatomic.h>

#include "check.h"

typedef struct {
    // Written only by the listener's thread, and read after the database is closed.
    int seen[16];
    uint64_t last_flush_bytes, created_bytes;
    atomic_int freed;
    // Database that the listener closes at the first flush, or NULL.
    _Atomic(alluvium_database *) to_close;
    atomic_int closed;
} notes;

static void note(void *context, const alluvium_event *event) {
    notes *own = context;
    CHECK(event->struct_size >= sizeof *event && event->kind < 16);
    own->seen[event->kind]++;
    CHECK(event->error == NULL);
    switch (event->kind) {
        case ALLUVIUM_EVENT_KIND_FLUSH_END:
            own->last_flush_bytes = event->bytes;
            break;
        case ALLUVIUM_EVENT_KIND_TABLE_CREATED:
            CHECK(slice_is(event->keyspace, "rows") && event->table > 0);
            own->created_bytes += event->bytes;
            break;
        case ALLUVIUM_EVENT_KIND_COMPACTION_BEGIN:
            CHECK(slice_is(event->keyspace, "rows") && event->bytes > 0 && event->last_level == 1);
            break;
        case ALLUVIUM_EVENT_KIND_TABLE_DELETED:
            CHECK(event->keyspace.data == NULL && event->keyspace.size == 0);
            break;
        default:
            break;
    }
    alluvium_database *database = atomic_exchange(&own->to_close, NULL);
    if (database != NULL) {
        CHECK(alluvium_close(database, NULL) == ALLUVIUM_CODE_OK);
        atomic_fetch_add(&own->closed, 1);
    }
}

static void free_notes(void *context) {
    atomic_fetch_add(&((notes *)context)->freed, 1);
}

static alluvium_options listening(notes *notes) {
    return (alluvium_options){
        .struct_size = sizeof(alluvium_options), .event_listener = note, .event_context = notes,
        .free_event_context = free_notes,
    };
}

static void events_are_told_until_the_close(void) {
    notes notes = {0};
    alluvium_options options = listening(&notes);
    alluvium_database *database = open_new("listening", &options);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    for (int i = 0; i < 2; i++) {
        OK(alluvium_put(alluvium_keyspace_writer(rows), S("k"), S("v"), E));
        OK(alluvium_flush(database, E));
    }
    OK(alluvium_keyspace_compact_range(rows, NULL, 0, NULL, 0, E));
    OK(alluvium_close(database, E));
    CHECK(notes.seen[ALLUVIUM_EVENT_KIND_FLUSH_BEGIN] >= 2 && notes.last_flush_bytes > 0);
    CHECK(notes.seen[ALLUVIUM_EVENT_KIND_FLUSH_END] == notes.seen[ALLUVIUM_EVENT_KIND_FLUSH_BEGIN]);
    CHECK(notes.seen[ALLUVIUM_EVENT_KIND_TABLE_CREATED] == 3 && notes.created_bytes > 0);
    CHECK(notes.seen[ALLUVIUM_EVENT_KIND_TABLE_DELETED] == 2);
    CHECK(notes.seen[ALLUVIUM_EVENT_KIND_COMPACTION_BEGIN] == 1);
    CHECK(notes.seen[ALLUVIUM_EVENT_KIND_COMPACTION_END] == 1);
    CHECK(notes.seen[ALLUVIUM_EVENT_KIND_OTHER] == 0 && notes.seen[ALLUVIUM_EVENT_KIND_LOST] == 0);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    CHECK(atomic_load(&notes.freed) == 1);
}

static void a_listener_may_close_the_database(void) {
    notes notes = {0};
    alluvium_options options = listening(&notes);
    alluvium_database *database = open_new("closing", &options);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("k"), S("v"), E));
    atomic_store(&notes.to_close, alluvium_database_clone(database));
    alluvium_database *clone = atomic_load(&notes.to_close);
    // The flush may find the database already closed.
    CHECK(clone != NULL && alluvium_flush(database, E) != ALLUVIUM_CODE_PANIC);
    alluvium_error_free(failure);
    while (atomic_load(&notes.closed) == 0) {
        sched_yield();
    }
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_flush(database, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(clone);
    alluvium_database_free(database);
    // The listener called the close itself, so the close did not wait for the listener's thread.
    while (atomic_load(&notes.freed) == 0) {
        sched_yield();
    }
}

static void the_context_is_not_freed_if_opening_fails(void) {
    notes notes = {0};
    alluvium_options options = listening(&notes);
    alluvium_database *database;
    OK(alluvium_options_check(&options, E));
    options.must_exist = 1;
    const char *path = path_of("not there");
    CHECK(alluvium_open(path, strlen(path), &options, &database, NULL) != ALLUVIUM_CODE_OK && database == NULL);
    options.must_exist = 0;
    options.durability = 9;
    INVALID(alluvium_open(path, strlen(path), &options, &database, E));
    CHECK(atomic_load(&notes.freed) == 0);
    // Without a listener, the function that frees the context is not called.
    options = (alluvium_options){.struct_size = sizeof options, .free_event_context = free_notes};
    database = open_new("not listening", &options);
    alluvium_database_free(database);
}

void test_listeners(void) {
    events_are_told_until_the_close();
    a_listener_may_close_the_database();
    the_context_is_not_freed_if_opening_fails();
}
