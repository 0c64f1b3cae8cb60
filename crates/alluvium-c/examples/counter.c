// Counts its own runs, in a database in the directory given as argument.
#include <alluvium.h>
#include <stdio.h>
#include <string.h>

// Prints and frees the error, if there is one; returns true if there is none.
static bool done(alluvium_error *error) {
    if (error == NULL) {
        return true;
    }
    fprintf(stderr, "%s\n", alluvium_error_message(error, NULL));
    alluvium_error_free(error);
    return false;
}

// Adds one to the counter in a transaction. Fails with a conflict if another one was faster.
static bool count_visit(const alluvium_database *database, const alluvium_keyspace *counters, uint64_t *visits) {
    alluvium_error *error;
    alluvium_transaction *transaction;
    alluvium_value *old;
    alluvium_begin(database, NULL, &transaction, &error);
    if (!done(error)) {
        return false;
    }
    *visits = 0;
    alluvium_transaction_get_for_update(transaction, counters, "visits", 6, &old, &error);
    bool fine = done(error);
    size_t size;
    const uint8_t *data = alluvium_value_data(old, &size);
    if (size == sizeof *visits) {
        memcpy(visits, data, size);
    }
    alluvium_value_free(old);
    *visits += 1;
    if (fine) {
        alluvium_put(alluvium_transaction_writer(transaction, counters), "visits", 6, visits, sizeof *visits, &error);
        fine = done(error);
    }
    if (fine) {
        alluvium_transaction_commit(transaction, &error);
        fine = done(error);
    }
    // Rolls back if the transaction is not committed.
    alluvium_transaction_free(transaction);
    return fine;
}

int main(int count, char **arguments) {
    const char *path = count == 2 ? arguments[1] : "counter.db";
    alluvium_options options = {.struct_size = sizeof options, .memory_bytes = 64 << 20};
    alluvium_error *error;
    alluvium_database *database;
    alluvium_keyspace *counters = NULL;
    uint64_t visits;
    alluvium_open(path, strlen(path), &options, &database, &error);
    if (!done(error)) {
        return 1;
    }
    alluvium_keyspace_open(database, "counters", 8, NULL, &counters, &error);
    bool fine = done(error) && count_visit(database, counters, &visits);
    alluvium_close(database, &error);
    fine = done(error) && fine;
    alluvium_keyspace_free(counters);
    alluvium_database_free(database);
    if (fine) {
        printf("visits: %llu\n", (unsigned long long)visits);
    }
    return fine ? 0 : 1;
}
