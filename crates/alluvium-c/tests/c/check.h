// Code shared by the tests: checks that print their line and end the program, and macros for long
// arguments.
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alluvium.h"

// The error of the last call in OK or FAILS.
extern alluvium_error *failure;
#define E (&failure)

// Options of a bulk load.
extern const alluvium_ingest_options any_order;

// A string literal as pointer and size arguments.
#define S(literal) (literal), (sizeof(literal) - 1)

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);        \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

// Checks that the call succeeds and leaves no error.
#define OK(call) check_ok((call), #call, __FILE__, __LINE__)
// Checks that the call fails with this code, and that its error has the same code. The error stays
// in `failure` until the next call.
#define FAILS(code, call) check_fails((code), (call), #call, __FILE__, __LINE__)
#define INVALID(call) FAILS(ALLUVIUM_CODE_INVALID_ARGUMENT, call)

void check_ok(alluvium_code code, const char *call, const char *file, int line);
void check_fails(alluvium_code expected, alluvium_code code, const char *call, const char *file, int line);

// Returns true if the value has these bytes; frees the value.
bool value_is(alluvium_value *value, const char *expected);
// Returns true if the bytes are those of the string.
bool same(const void *data, size_t size, const char *expected);
// Returns the newest committed value of a key, or "absent"; valid until the next call.
const char *read_row(const alluvium_keyspace *keyspace, const char *key);

// Opens a database in a directory of the test's own, or a keyspace.
alluvium_database *open_new(const char *name, const alluvium_options *options);
alluvium_database *open_again(const char *name, const alluvium_options *options);
alluvium_keyspace *keyspace_of(const alluvium_database *database, const char *name);
// Returns the path of that directory; valid until the next call.
const char *path_of(const char *name);
// Inverts the last bytes of each file with this name ending in the test's directory; returns the
// number of files.
int damage_files(const char *name, const char *ending);
// Finds the smallest file name with this ending in the test's directory; false if there is none.
bool first_file(const char *name, const char *ending, char *file, size_t size);
// Returns true if the bytes of the slice are those of the string.
bool slice_is(alluvium_slice slice, const char *expected);

// Formats a change as a line, "the end" for NULL; valid until the next call.
const char *shown(const alluvium_change *change);
// Returns true if the next change is this one.
bool next_is(alluvium_changes *changes, const char *expected);
alluvium_changes *changes_from(const alluvium_database *database, uint64_t from);
// Returns the number of the next commit.
uint64_t next_commit(const alluvium_database *database);

void test_databases(void);
void test_keyspaces(void);
void test_rows(void);
void test_batches(void);
void test_owners(void);
void test_snapshots(void);
void test_cursors(void);
void test_transactions(void);
void test_statements(void);
void test_prepared(void);
void test_callbacks(void);
void test_maintenance(void);
void test_listeners(void);
void test_loads(void);
void test_copies(void);
void test_measures(void);
void test_changes(void);
void test_streams(void);
void test_errors(void);
void test_null(void);
void test_processes(void);

#endif
