// Histograms and amplification.
#include "check.h"

static void histograms_count(const alluvium_database *database) {
    alluvium_histogram histogram = {.struct_size = sizeof histogram};
    for (uint32_t kind = ALLUVIUM_HISTOGRAM_KIND_COMMIT_US; kind <= ALLUVIUM_HISTOGRAM_KIND_COMPACTION_BYTES; kind++) {
        OK(alluvium_get_histogram(database, kind, &histogram, E));
        uint64_t total = 0;
        for (size_t i = 0; i < ALLUVIUM_HISTOGRAM_ITEMS; i++) {
            total += histogram.counts[i];
        }
        CHECK(total == histogram.total);
    }
    OK(alluvium_get_histogram(database, ALLUVIUM_HISTOGRAM_KIND_FLUSH_BYTES, &histogram, E));
    CHECK(histogram.total > 0 && alluvium_histogram_quantile(&histogram, 1.0) > 0);
    OK(alluvium_get_histogram(database, ALLUVIUM_HISTOGRAM_KIND_COMMIT_US, &histogram, E));
    // Two commits of one thread: the first was timed, and counts for 16.
    CHECK(histogram.total == 16);
    histogram = (alluvium_histogram){.struct_size = sizeof histogram, .total = 3, .counts = {0, 1, 0, 2}};
    CHECK(alluvium_histogram_quantile(&histogram, 0.1) == 1 && alluvium_histogram_quantile(&histogram, 0.9) == 7);
    histogram = (alluvium_histogram){.struct_size = sizeof histogram};
    CHECK(alluvium_histogram_quantile(&histogram, 0.5) == 0 && alluvium_histogram_quantile(NULL, 0.5) == 0);

    INVALID(alluvium_get_histogram(database, 6, &histogram, E));
    INVALID(alluvium_get_histogram(database, 0, NULL, E));
    INVALID(alluvium_get_histogram(NULL, 0, &histogram, E));
    histogram.struct_size = 0;
    INVALID(alluvium_get_histogram(database, 0, &histogram, E));
    CHECK(alluvium_histogram_quantile(&histogram, 0.5) == 0);
}

static void amplification_is_compared(const alluvium_database *database, alluvium_keyspace *rows) {
    alluvium_amplification whole = {.struct_size = sizeof whole};
    alluvium_keyspace_amplification one = {.struct_size = sizeof one};
    OK(alluvium_get_amplification(database, &whole, E));
    // Nothing was read, so the number is NaN, and NaN is not equal to itself.
    CHECK(whole.blocks_per_read != whole.blocks_per_read);
    OK(alluvium_keyspace_get_amplification(database, rows, &one, E));
    CHECK(one.gets == 0 && one.get_sources.measured != one.get_sources.measured && one.get_sources.predicted >= 1);
    CHECK(strcmp(read_row(rows, "a"), "1") == 0);
    OK(alluvium_get_amplification(database, &whole, E));
    CHECK(whole.blocks_per_read > 0 && whole.file_blocks_per_read >= 0);
    OK(alluvium_keyspace_get_amplification(database, rows, &one, E));
    CHECK(one.gets == 1 && one.get_sources.measured == 1 && one.user_bytes == 4 && one.seeks == 0);
    CHECK(one.flush_writes.measured > 0 && one.stored_bytes > 0 && one.space.measured > 0);

    whole.struct_size = one.struct_size = 3;
    INVALID(alluvium_get_amplification(database, &whole, E));
    INVALID(alluvium_keyspace_get_amplification(database, rows, &one, E));
    INVALID(alluvium_get_amplification(NULL, &whole, E));
    INVALID(alluvium_get_amplification(database, NULL, E));
    INVALID(alluvium_keyspace_get_amplification(database, NULL, &one, E));
    INVALID(alluvium_keyspace_get_amplification(NULL, rows, &one, E));
    one.struct_size = sizeof one;
    OK(alluvium_keyspace_drop(database, rows, E));
    FAILS(ALLUVIUM_CODE_KEYSPACE_DROPPED, alluvium_keyspace_get_amplification(database, rows, &one, E));
}

void test_measures(void) {
    alluvium_database *database = open_new("measures", NULL);
    alluvium_keyspace *rows = keyspace_of(database, "rows");
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("a"), S("1"), E));
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("b"), S("2"), E));
    OK(alluvium_flush(database, E));
    histograms_count(database);
    amplification_is_compared(database, rows);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
}
