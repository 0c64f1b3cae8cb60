// SPDX-License-Identifier: GPL-2.0-only
//
// Options of a table in SQL, and of the keyspaces of a new table or index; columns of a key.

#pragma once

#include <alluvium.h>

#include "index_codec.h"

// Values of the table options of CREATE TABLE. The server gives this name to each engine's
// structure.
struct ha_table_option_struct {
    ulonglong expire_after_seconds;
    uint compression;
    // Null: none.
    char *expire_column;
};

namespace alluvium_sql {

extern ha_create_table_option table_options[];

// Returns true if two tables have the same values of the options.
bool same_options(const TABLE &a, const TABLE &b);

// Returns the options of the keyspace of a key, or of the hidden primary key after all keys.
alluvium_keyspace_options keyspace_options(const TABLE &table, const PrimaryCodec &primary,
                                           uint number);

// Computes the virtual columns of a key, which a row does not store, in the table's first record.
// The server does it after a read, but not for all columns. Returns 0 or an error of the handler.
int compute_key_columns(TABLE &table, uint number, bool ignore_warnings);

} // namespace alluvium_sql
