// Verification, repair and backup stores.
#include "check.h"

// Opens a database with two rows in tables.
static alluvium_database *with_rows(const char *name, alluvium_keyspace **rows) {
    alluvium_options options = {.struct_size = sizeof options, .idle_after_ms = ALLUVIUM_NO_TIDYING};
    alluvium_database *database = open_new(name, &options);
    *rows = keyspace_of(database, "rows");
    OK(alluvium_put(alluvium_keyspace_writer(*rows), S("a"), S("1"), E));
    OK(alluvium_put(alluvium_keyspace_writer(*rows), S("b"), S("2"), E));
    OK(alluvium_flush(database, E));
    return database;
}

static void count_bytes(void *context, uint64_t bytes) {
    *(uint64_t *)context += bytes;
}

static void verification_finds_wrong_inserts(const alluvium_database *database, const alluvium_keyspace *rows) {
    uint64_t paused = 0;
    alluvium_verify_options options = {.struct_size = sizeof options, .pause = count_bytes, .pause_context = &paused};
    alluvium_verify_counts counts = {.struct_size = sizeof counts};
    alluvium_verify_report *report;
    OK(alluvium_verify(database, &options, &report, E));
    CHECK(alluvium_verify_report_is_clean(report) && paused > 0);
    OK(alluvium_verify_report_counts(report, &counts, E));
    CHECK(counts.tables == 1 && counts.entries == 2 && counts.log_segments > 0 && counts.bytes > 0);
    CHECK(counts.damage_count == 0 && alluvium_error_list_count(alluvium_verify_report_damages(report)) == 0);
    CHECK(alluvium_verify_report_wrong_inserts(report) == 0);
    alluvium_verify_report_free(report);

    // Untracked, because debug builds of the library check and refuse a tracked insert of this
    // kind.
    alluvium_transaction *transaction;
    OK(alluvium_begin(database, NULL, &transaction, E));
    OK(alluvium_insert(alluvium_transaction_writer_untracked(transaction, rows), S("a"), S("3"), E));
    OK(alluvium_transaction_commit(transaction, E));
    alluvium_transaction_free(transaction);
    OK(alluvium_verify(database, NULL, &report, E));
    CHECK(!alluvium_verify_report_is_clean(report) && alluvium_verify_report_wrong_inserts(report) == 1);
    OK(alluvium_verify_report_counts(report, &counts, E));
    CHECK(counts.damage_count == 0 && counts.wrong_insert_count == 1);
    alluvium_wrong_insert wrong = {.struct_size = sizeof wrong};
    OK(alluvium_verify_report_wrong_insert(report, 0, &wrong, E));
    CHECK(slice_is(wrong.keyspace, "rows") && slice_is(wrong.key, "a") && wrong.seqno > wrong.older_seqno);
    INVALID(alluvium_verify_report_wrong_insert(report, 1, &wrong, E));
    wrong.struct_size = 0;
    INVALID(alluvium_verify_report_wrong_insert(report, 0, &wrong, E));
    INVALID(alluvium_verify_report_wrong_insert(report, 0, NULL, E));
    counts.struct_size = 7;
    INVALID(alluvium_verify_report_counts(report, &counts, E));
    INVALID(alluvium_verify_report_counts(report, NULL, E));
    alluvium_verify_report_free(report);

    options.struct_size = 0;
    INVALID(alluvium_verify(database, &options, &report, E));
    CHECK(report == NULL);
    INVALID(alluvium_verify(database, NULL, NULL, E));
    INVALID(alluvium_verify(NULL, NULL, &report, E));
    INVALID(alluvium_verify_report_counts(NULL, &counts, E));
    INVALID(alluvium_verify_report_wrong_insert(NULL, 0, &wrong, E));
    CHECK(!alluvium_verify_report_is_clean(NULL) && alluvium_verify_report_wrong_inserts(NULL) == 0);
    CHECK(alluvium_verify_report_damages(NULL) == NULL && alluvium_error_list_count(NULL) == 0);
    CHECK(alluvium_error_list_item(NULL, 0) == NULL);
    alluvium_verify_report_free(NULL);
    alluvium_error_list_free(NULL);
}

static void verification_finds_damage_that_repair_reports(void) {
    alluvium_keyspace *rows;
    alluvium_database *database = with_rows("damaged", &rows);
    CHECK(damage_files("damaged", ".sst") == 1);
    alluvium_verify_report *found;
    OK(alluvium_verify(database, NULL, &found, E));
    const alluvium_error_list *damages = alluvium_verify_report_damages(found);
    CHECK(!alluvium_verify_report_is_clean(found) && alluvium_error_list_count(damages) == 1);
    const alluvium_error *damage = alluvium_error_list_item(damages, 0);
    CHECK(alluvium_error_code(damage) == ALLUVIUM_CODE_CORRUPTION && alluvium_error_path(damage, NULL) != NULL);
    CHECK(alluvium_error_list_item(damages, 1) == NULL);
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("c"), S("3"), E));
    OK(alluvium_close(database, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    // A report stays valid after its database is closed and freed.
    CHECK(strlen(alluvium_error_message(damage, NULL)) > 0);
    alluvium_verify_report_free(found);

    char source[4096];
    snprintf(source, sizeof source, "%s", path_of("damaged"));
    const char *target = path_of("repaired");
    alluvium_repair_report *report;
    OK(alluvium_repair(source, strlen(source), target, strlen(target), &report, E));
    alluvium_repair_counts counts = {.struct_size = sizeof counts};
    OK(alluvium_repair_report_counts(report, &counts, E));
    damages = alluvium_repair_report_damages(report);
    CHECK(!alluvium_repair_report_is_complete(report) && counts.damages > 0);
    CHECK(counts.damages == alluvium_error_list_count(damages) && alluvium_error_list_item(damages, 0) != NULL);
    CHECK(counts.tables_copied == 0 && counts.tables_salvaged + counts.tables_lost == 1);
    CHECK(counts.commits_replayed == 1 && counts.unknown_operations == 0);
    CHECK(counts.unnamed_tables == alluvium_list_count(alluvium_repair_report_unnamed_tables(report)));
    alluvium_lost_range lost = {.struct_size = sizeof lost};
    CHECK(counts.lost == 1);
    OK(alluvium_repair_report_lost(report, 0, &lost, E));
    CHECK(slice_is(lost.keyspace, "rows") && lost.table.size > 4 && lost.from.data != NULL && lost.to.data != NULL);
    INVALID(alluvium_repair_report_lost(report, 1, &lost, E));
    INVALID(alluvium_repair_report_lost(report, 0, NULL, E));
    INVALID(alluvium_repair_report_counts(report, NULL, E));
    alluvium_repair_report_free(report);
    database = open_again("repaired", NULL);
    rows = keyspace_of(database, "rows");
    CHECK(strcmp(read_row(rows, "c"), "3") == 0);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);

    // The target exists now.
    target = path_of("repaired");
    INVALID(alluvium_repair(source, strlen(source), target, strlen(target), &report, E));
    CHECK(report == NULL);
    target = path_of("another");
    CHECK(alluvium_repair(S("no/such/database"), target, strlen(target), &report, E) != ALLUVIUM_CODE_OK);
    alluvium_error_free(failure);
    INVALID(alluvium_repair(NULL, 1, target, strlen(target), &report, E));
    INVALID(alluvium_repair(source, strlen(source), target, strlen(target), NULL, E));
    INVALID(alluvium_repair_report_counts(NULL, &counts, E));
    INVALID(alluvium_repair_report_lost(NULL, 0, &lost, E));
    CHECK(!alluvium_repair_report_is_complete(NULL) && alluvium_repair_report_damages(NULL) == NULL);
    CHECK(alluvium_repair_report_unnamed_tables(NULL) == NULL);
    alluvium_repair_report_free(NULL);
}

static alluvium_backup_store *store_of(const char *name) {
    const char *path = path_of(name);
    alluvium_backup_store *store;
    OK(alluvium_backup_store_open(path, strlen(path), &store, E));
    return store;
}

static void backups_are_made_checked_restored_and_deleted(void) {
    alluvium_keyspace *rows;
    alluvium_database *database = with_rows("source", &rows);
    alluvium_backup_store *store = store_of("store"), *other;
    const char *path = path_of("store");
    FAILS(ALLUVIUM_CODE_LOCKED, alluvium_backup_store_open(path, strlen(path), &other, E));
    path = path_of("source");
    INVALID(alluvium_backup_store_open(path, strlen(path), &other, E));
    CHECK(other == NULL);

    alluvium_backup_info first = {.struct_size = sizeof first}, second = first, listed = first;
    OK(alluvium_backup_store_create(store, database, &first, E));
    CHECK(first.id == 1 && first.seqno > 0 && first.tables == 1 && first.copied_bytes > 0 && first.created > 0);
    OK(alluvium_put(alluvium_keyspace_writer(rows), S("c"), S("3"), E));
    OK(alluvium_backup_store_create(store, database, &second, E));
    CHECK(second.id == 2 && second.seqno > first.seqno && second.bytes >= second.copied_bytes);
    alluvium_backup_info sizeless = {.struct_size = 1};
    INVALID(alluvium_backup_store_create(store, database, &sizeless, E));

    alluvium_backup_list *list;
    OK(alluvium_backup_store_list(store, &list, E));
    CHECK(alluvium_backup_list_count(list) == 2 && alluvium_backup_list_damaged_count(list) == 0);
    OK(alluvium_backup_list_item(list, 1, &listed, E));
    CHECK(listed.id == 2 && listed.seqno == second.seqno && listed.copied_bytes == 0);
    INVALID(alluvium_backup_list_item(list, 2, &listed, E));
    INVALID(alluvium_backup_list_item(list, 0, NULL, E));
    CHECK(alluvium_backup_list_damaged(list, 0, NULL) == NULL);
    alluvium_backup_list_free(list);

    alluvium_error_list *damages;
    OK(alluvium_backup_store_verify(store, 1, &damages, E));
    CHECK(damages != NULL && alluvium_error_list_count(damages) == 0);
    alluvium_error_list_free(damages);
    INVALID(alluvium_backup_store_verify(store, 7, &damages, E));
    CHECK(damages == NULL);

    const char *target = path_of("restored");
    OK(alluvium_backup_store_restore(store, 1, target, strlen(target), E));
    INVALID(alluvium_backup_store_restore(store, 1, target, strlen(target), E));
    INVALID(alluvium_backup_store_restore(store, 7, target, strlen(target), E));
    alluvium_database *restored = open_again("restored", NULL);
    alluvium_keyspace *copied = keyspace_of(restored, "rows");
    CHECK(strcmp(read_row(copied, "a"), "1") == 0 && strcmp(read_row(copied, "c"), "absent") == 0);
    alluvium_keyspace_free(copied);
    alluvium_database_free(restored);

    OK(alluvium_backup_store_delete(store, 1, E));
    INVALID(alluvium_backup_store_delete(store, 1, E));
    alluvium_backup_store_free(store);

    path = path_of("store");
    OK(alluvium_backup_store_open_read_only(path, strlen(path), &store, E));
    OK(alluvium_backup_store_open_read_only(path, strlen(path), &other, E));
    alluvium_backup_store_free(other);
    FAILS(ALLUVIUM_CODE_LOCKED, alluvium_backup_store_open(path, strlen(path), &other, E));
    FAILS(ALLUVIUM_CODE_READ_ONLY, alluvium_backup_store_create(store, database, NULL, E));
    FAILS(ALLUVIUM_CODE_READ_ONLY, alluvium_backup_store_delete(store, 2, E));
    OK(alluvium_backup_store_list(store, &list, E));
    CHECK(alluvium_backup_list_count(list) == 1);
    alluvium_backup_list_free(list);
    path = path_of("none");
    INVALID(alluvium_backup_store_open_read_only(path, strlen(path), &other, E));
    CHECK(other == NULL);
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    alluvium_backup_store_free(store);
}

static void damaged_backups_are_named(void) {
    CHECK(damage_files("store/tables", ".table") > 0);
    alluvium_backup_store *store = store_of("store");
    alluvium_error_list *damages;
    OK(alluvium_backup_store_verify(store, 2, &damages, E));
    CHECK(alluvium_error_list_count(damages) > 0);
    CHECK(alluvium_error_code(alluvium_error_list_item(damages, 0)) == ALLUVIUM_CODE_CORRUPTION);
    alluvium_error_list_free(damages);
    const char *target = path_of("not restored");
    FAILS(ALLUVIUM_CODE_CORRUPTION, alluvium_backup_store_restore(store, 2, target, strlen(target), E));

    CHECK(damage_files("store", ".backup") == 1);
    alluvium_backup_list *list;
    OK(alluvium_backup_store_list(store, &list, E));
    CHECK(alluvium_backup_list_count(list) == 0 && alluvium_backup_list_damaged_count(list) == 1);
    uint64_t id;
    const alluvium_error *damaged = alluvium_backup_list_damaged(list, 0, &id);
    CHECK(alluvium_error_code(damaged) == ALLUVIUM_CODE_CORRUPTION && id == 2);
    CHECK(alluvium_backup_list_damaged(list, 1, &id) == NULL && id == 0);
    alluvium_backup_list_free(list);
    alluvium_backup_store_free(store);
}

static void stores_and_lists_may_be_null(void) {
    alluvium_backup_store *store;
    alluvium_backup_list *list;
    alluvium_error_list *damages;
    alluvium_backup_info info = {.struct_size = sizeof info};
    // A directory cannot be created below a file.
    FILE *file = fopen(path_of("plain"), "wb");
    CHECK(file != NULL && fclose(file) == 0);
    const char *path = path_of("plain/store");
    FAILS(ALLUVIUM_CODE_IO, alluvium_backup_store_open(path, strlen(path), &store, E));
    INVALID(alluvium_backup_store_open(NULL, 1, &store, E));
    INVALID(alluvium_backup_store_open(S("x"), NULL, E));
    INVALID(alluvium_backup_store_open_read_only(NULL, 1, &store, E));
    INVALID(alluvium_backup_store_open_read_only(S("x"), NULL, E));
    INVALID(alluvium_backup_store_create(NULL, NULL, NULL, E));
    INVALID(alluvium_backup_store_list(NULL, &list, E));
    INVALID(alluvium_backup_store_verify(NULL, 1, &damages, E));
    INVALID(alluvium_backup_store_restore(NULL, 1, S("x"), E));
    INVALID(alluvium_backup_store_delete(NULL, 1, E));
    INVALID(alluvium_backup_list_item(NULL, 0, &info, E));
    CHECK(alluvium_backup_list_count(NULL) == 0 && alluvium_backup_list_damaged_count(NULL) == 0);
    CHECK(alluvium_backup_list_damaged(NULL, 0, NULL) == NULL);
    CHECK(store == NULL && list == NULL && damages == NULL);
    alluvium_backup_store_free(NULL);
    alluvium_backup_list_free(NULL);
}

void test_copies(void) {
    alluvium_keyspace *rows;
    alluvium_database *database = with_rows("verified", &rows);
    verification_finds_wrong_inserts(database, rows);
    alluvium_verify_report *report;
    OK(alluvium_close(database, E));
    FAILS(ALLUVIUM_CODE_CLOSED, alluvium_verify(database, NULL, &report, E));
    alluvium_keyspace_free(rows);
    alluvium_database_free(database);
    verification_finds_damage_that_repair_reports();
    backups_are_made_checked_restored_and_deleted();
    damaged_backups_are_named();
    stores_and_lists_may_be_null();
}
