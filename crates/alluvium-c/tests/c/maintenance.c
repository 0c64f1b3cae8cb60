// Checkpoints, changed options, compaction of a range, estimates.
#include "check.h"

static void a_checkpoint_goes_its_own_way(const alluvium_database *database, const alluvium_keyspace *rows) {
    const char *target = path_of("copy");
    alluvium_checkpoint_info info = {.struct_size = 1};
    INVALID(alluvium_checkpoint(database, target, strlen(target), &info, E));
    info.struct_size = sizeof info;
    OK(alluvium_checkpoint(database, target, strlen(target), &info, E));
    CHECK(info.seqno > 0 && info.linked_tables + info.copied_tables > 0);
    INVALID(alluvium_checkpoint(database, target, strlen(target), NULL, E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("later"), S("v"), E));
    alluvium_database *copy = open_again("copy", NULL);
    alluvium_keyspace *copied = keyspace_of(copy, "rows");
    CHECK(strcmp(read_row(copied, "a"), "1") == 0 && strcmp(read_row(copied, "later"), "absent") == 0);
    alluvium_keyspace_free(copied);
    alluvium_database_free(copy);
}

void test_maintenance(void) {
    alluvium_database *database = open_new("maintenance", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    uint64_t row_count, byte_count;
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("1"), E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("b"), S("2"), E));
    OK(alluvium_keyspace_estimate_range(rows, S("a"), S("b"), &row_count, &byte_count, E));
    CHECK(row_count == 1 && byte_count > 0);
    OK(alluvium_keyspace_estimate_range(rows, NULL, 0, NULL, 0, &row_count, &byte_count, E));
    CHECK(row_count == 2);
    OK(alluvium_keyspace_compact_range(rows, NULL, 0, NULL, 0, E));
    alluvium_keyspace_stats stats = {.struct_size = sizeof stats};
    OK(alluvium_keyspace_get_stats(database, rows, &stats, E));
    CHECK(stats.upper_tables == 0 && stats.last_tables == 1);

    OK(alluvium_set_memory_bytes(database, 32 << 20, E));
    INVALID(alluvium_set_memory_bytes(database, 1, E));
    alluvium_keyspace_options options = {.struct_size = sizeof options};
    OK(alluvium_keyspace_get_options(rows, &options, E));
    options.block_bytes = 16384;
    OK(alluvium_keyspace_set_options(rows, &options, E));
    options.block_bytes = 1;
    INVALID(alluvium_keyspace_set_options(rows, &options, E));
    OK(alluvium_keyspace_get_options(rows, &options, E));
    CHECK(options.block_bytes == 16384);

    a_checkpoint_goes_its_own_way(database, rows);
    INVALID(alluvium_checkpoint(NULL, S("x"), NULL, E));
    INVALID(alluvium_set_memory_bytes(NULL, 1, E));
    INVALID(alluvium_keyspace_set_options(NULL, NULL, E));
    INVALID(alluvium_keyspace_compact_range(NULL, NULL, 0, NULL, 0, E));
    INVALID(alluvium_keyspace_estimate_range(NULL, NULL, 0, NULL, 0, &row_count, &byte_count, E));
    INVALID(alluvium_keyspace_estimate_range(rows, NULL, 0, NULL, 0, NULL, NULL, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}
