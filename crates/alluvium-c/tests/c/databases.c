// Databases and keyspaces: opening, closing, dropping, options, statistics.
#include "check.h"

static void options_are_checked(void) {
    alluvium_options options = {.struct_size = sizeof options};
    OK(alluvium_options_check(&options, E));
    OK(alluvium_options_check(NULL, E));
    options.memory_bytes = 1;
    INVALID(alluvium_options_check(&options, E));
    CHECK(strstr(alluvium_error_message(failure, NULL), "memory_bytes") != NULL);
    options = (alluvium_options){.struct_size = 3};
    INVALID(alluvium_options_check(&options, E));
    options = (alluvium_options){.struct_size = sizeof options, .durability = 9};
    INVALID(alluvium_options_check(&options, E));
    options = (alluvium_options){.struct_size = sizeof options, .upper_fraction = 7.0};
    INVALID(alluvium_options_check(&options, E));
    // A struct as defined by a later version of the header.
    struct {
        alluvium_options known;
        uint64_t added;
    } newer = {.known = {.struct_size = sizeof newer}};
    OK(alluvium_options_check(&newer.known, E));
    newer.added = 1;
    INVALID(alluvium_options_check(&newer.known, E));
}

static void a_database_is_open_once_and_closes(void) {
    alluvium_options options = {.struct_size = sizeof options, .must_exist = 1};
    alluvium_database *database, *other;
    const char *path = path_of("databases");
    CHECK(alluvium_open(path, strlen(path), &options, &database, NULL) != ALLUVIUM_CODE_OK);
    CHECK(database == NULL);

    options = (alluvium_options){
        .struct_size = sizeof options, .memory_bytes = 16 << 20, .sync_interval_us = 50000, .lock_timeout_ms = 100,
        .upper_fraction = 0.5, .memtable_bytes = 1 << 20, .table_bytes = 1 << 20, .transaction_bytes = 1 << 16,
        .durability = ALLUVIUM_DURABILITY_SYNC, .compaction_threads = 2,
    };
    database = open_new("databases", &options);
    path = path_of("databases");
    FAILS(ALLUVIUM_CODE_LOCKED, alluvium_open(path, strlen(path), NULL, &other, E));
    CHECK(other == NULL);
    size_t size;
    const uint8_t *locked = alluvium_error_path(failure, &size);
    CHECK(locked != NULL && size > strlen("databases"));

    alluvium_keyspace *rows = keyspace_of(database, "rows");
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("k"), S("v"), E));
    OK(alluvium_sync(database, E));
    OK(alluvium_flush(database, E));
    OK(alluvium_settle(database, E));
    uint64_t seqno;
    OK(alluvium_visible_seqno(database, &seqno, E));
    CHECK(seqno > 0);

    other = alluvium_database_clone(database);
    OK(alluvium_close(database, E));
    OK(alluvium_close(other, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_sync(database, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_flush(other, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_settle(other, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_put(alluvium_keyspace_writer(rows), S("k"), S("v"), E));
    alluvium_value *value;
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_get(alluvium_keyspace_reader(rows), S("k"), &value, E));
    CHECK(value == NULL);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    alluvium_database_free(other);

    // A read-only database cannot be changed.
    options = (alluvium_options){.struct_size = sizeof options, .read_only = 1, .idle_after_ms = ALLUVIUM_NO_TIDYING};
    database = open_again("databases", &options);
    rows = keyspace_of(database, "rows");
    CHECK(strcmp(read_row(rows, "k"), "v") == 0);
    FAILS(ALLUVIUM_CODE_READ_ONLY, alluvium_put(alluvium_keyspace_writer(rows), S("k"), S("w"), E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);

    // Freeing the last handle also closes the database.
    database = open_again("databases", NULL);
    rows = keyspace_of(database, "rows");
    alluvium_database_free(database);
    CHECK(strcmp(read_row(rows, "k"), "v") == 0);
    alluvium_keyspace_free(rows);
    database = open_again("databases", NULL);
    alluvium_database_free(database);
}

void test_databases(void) {
    CHECK(strchr(alluvium_version(), '.') != NULL);
    options_are_checked();
    a_database_is_open_once_and_closes();
}

static void options_come_back(const alluvium_database *database) {
    alluvium_keyspace_options options = {
        .struct_size = sizeof options, .no_whole_key_filter = 1, .expect_hits = 1, .prefix_filter_bytes = 4,
        .compression = ALLUVIUM_COMPRESSION_LZ4, .block_bytes = 4096, .value_separation_bytes = ALLUVIUM_NEVER,
        .expiry = ALLUVIUM_EXPIRY_AFTER, .expire_after_ms = 5000,
    };
    alluvium_keyspace *keyspace;
    OK(alluvium_keyspace_open(database, S("special"), &options, &keyspace, E));
    alluvium_keyspace_options declared = {.struct_size = sizeof declared};
    OK(alluvium_keyspace_get_options(keyspace, &declared, E));
    CHECK(memcmp(&options, &declared, sizeof options) == 0);
    declared.struct_size = 0;
    INVALID(alluvium_keyspace_get_options(keyspace, &declared, E));
    alluvium_keyspace_free(keyspace);

    options = (alluvium_keyspace_options){.struct_size = sizeof options, .reserved = 1};
    INVALID(alluvium_keyspace_open(database, S("other"), &options, &keyspace, E));
    options = (alluvium_keyspace_options){.struct_size = sizeof options, .compression = 3};
    INVALID(alluvium_keyspace_open(database, S("other"), &options, &keyspace, E));
    options = (alluvium_keyspace_options){.struct_size = sizeof options, .expiry = 3};
    INVALID(alluvium_keyspace_open(database, S("other"), &options, &keyspace, E));
    options = (alluvium_keyspace_options){.struct_size = sizeof options, .expire_after_ms = 3};
    INVALID(alluvium_keyspace_open(database, S("other"), &options, &keyspace, E));
    CHECK(keyspace == NULL);
}

static void many_keyspaces_are_opened_at_once(const alluvium_database *database) {
    const alluvium_slice names[] = {
        {"many1", 5}, {"special", 7}, {"many1", 5}};
    alluvium_keyspace *opened[3], *special;
    OK(alluvium_keyspaces_open(database, names, 3, NULL, opened, E));
    OK(alluvium_keyspace_existing(database, S("special"), &special, E));
    CHECK(alluvium_keyspace_id(opened[0]) == alluvium_keyspace_id(opened[2]));
    CHECK(alluvium_keyspace_id(opened[1]) == alluvium_keyspace_id(special));
    OK(alluvium_keyspace_drop(database, opened[0], E));
    alluvium_keyspace_free(special);
    for (int i = 0; i < 3; i++) {
        alluvium_keyspace_free(opened[i]);
    }
    const alluvium_slice wrong[] = {{"many2", 5}, {"\xFF", 1}};
    INVALID(alluvium_keyspaces_open(database, wrong, 2, NULL, opened, E));
    CHECK(opened[0] == NULL && opened[1] == NULL);
    OK(alluvium_keyspace_existing(database, S("many2"), &special, E));
    CHECK(special == NULL);
    OK(alluvium_keyspaces_open(database, NULL, 0, NULL, NULL, E));
}

static void keyspaces_are_listed_and_dropped(const alluvium_database *database) {
    alluvium_keyspace *first = keyspace_of(database, "first"), *second = keyspace_of(database, "second");
    alluvium_keyspace *copy = alluvium_keyspace_clone(first), *found;
    size_t size;
    const uint8_t *name = alluvium_keyspace_name(copy, &size);
    CHECK(same(name, size, "first"));
    CHECK(alluvium_keyspace_id(first) != 0 && alluvium_keyspace_id(first) != alluvium_keyspace_id(second));

    alluvium_list *names;
    OK(alluvium_keyspace_names(database, &names, E));
    CHECK(alluvium_list_count(names) == 3);
    name = alluvium_list_item(names, 1, &size);
    CHECK(same(name, size, "second"));
    CHECK(alluvium_list_item(names, 3, &size) == NULL && size == 0);
    alluvium_list_free(names);

    OK(alluvium_keyspace_existing(database, S("second"), &found, E));
    CHECK(alluvium_keyspace_id(found) == alluvium_keyspace_id(second));
    alluvium_keyspace_free(found);
    OK(alluvium_keyspace_existing(database, S("none"), &found, E));
    CHECK(found == NULL);
    INVALID(alluvium_keyspace_existing(database, S("\xFF"), &found, E));

    OK(alluvium_keyspace_drop(database, first, E));
    FAILS(ALLUVIUM_CODE_KEYSPACE_DROPPED, alluvium_put(alluvium_keyspace_writer(copy), S("k"), S("v"), E));
    name = alluvium_error_keyspace(failure, &size);
    CHECK(same(name, size, "first"));
    alluvium_keyspace_stats stats = {.struct_size = sizeof stats};
    FAILS(ALLUVIUM_CODE_KEYSPACE_DROPPED, alluvium_keyspace_get_stats(database, first, &stats, E));
    alluvium_keyspace_free(first);
    alluvium_keyspace_free(copy);
    alluvium_keyspace_free(second);
}

static void statistics_count(const alluvium_database *database) {
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("k"), S("v"), E));
    alluvium_stats stats = {.struct_size = sizeof stats};
    OK(alluvium_get_stats(database, &stats, E));
    CHECK(stats.memory.memtable_bytes > 0);
    OK(alluvium_flush(database, E));
    OK(alluvium_get_stats(database, &stats, E));
    CHECK(stats.struct_size == sizeof stats && stats.keyspaces == 3);
    CHECK(stats.flushes > 0 && stats.table_bytes_written > 0 && stats.ceiling_waits == 0);
    CHECK(stats.upper_bytes + stats.last_bytes > 0 && stats.log_bytes_written > 0);
    CHECK(stats.visible_seqno > 0 && stats.oldest_read_seqno == stats.visible_seqno);
    CHECK(stats.memory.table_bytes > 0);
    CHECK(stats.memory.total_bytes >= stats.memory.memtable_bytes + stats.memory.table_bytes);
    alluvium_keyspace_stats sizes = {.struct_size = sizeof sizes};
    OK(alluvium_keyspace_get_stats(database, rows, &sizes, E));
    CHECK(sizes.table_entries == 1 && sizes.groups >= 1 && sizes.rows_estimate == 1);
    stats.struct_size = 1;
    INVALID(alluvium_get_stats(database, &stats, E));
    alluvium_keyspace_free(rows);
}

void test_keyspaces(void) {
    alluvium_database *database = open_new("keyspaces", NULL);
    options_come_back(database);
    many_keyspaces_are_opened_at_once(database);
    keyspaces_are_listed_and_dropped(database);
    statistics_count(database);
    alluvium_database_free(database);
}
