// SPDX-License-Identifier: GPL-2.0-only
//
// Rows of the dictionary as bytes and back: `docs/format/sql-dictionary.md`.
//
//   t<database/table>  entry of a table: id, version, layouts and indexes
//   a<table id>        mark of AUTO_INCREMENT: no smaller number is given out again
//   s<table id>        statistics of the indexes
//   n                  next free number
//
// Decoding checks every length and number, so damaged bytes are reported and never used.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "row_codec.h"

namespace alluvium_sql {

enum class DecodedEntry {
    Ok,
    Damaged,
    // A later version of the plugin wrote the entry.
    Newer,
};

struct TableEntry {
    uint64_t id = 0;
    // Changes with every change of the definition.
    uint64_t version = 0;
    uint64_t next_index = 1;
    uint32_t next_column = 1;
    // Ids in the order of the table's keys; last the hidden primary key, if there is one.
    std::vector<uint64_t> indexes;
    // All layouts that rows may have; the last is the current one.
    std::vector<StoredLayout> layouts;
    // For each column of the current layout: its value in rows that were written before the column
    // was added; no value: NULL.
    std::vector<std::optional<std::string>> initial;

    std::string encode() const;
    DecodedEntry decode(Bytes bytes);
};

// Statistics of one index: average number of rows for each value of its first parts.
struct IndexStatistics {
    std::vector<uint64_t> rows_per_value;
};

std::string encode_statistics(const std::vector<IndexStatistics> &statistics);
// Returns false for damage.
bool decode_statistics(Bytes bytes, std::vector<IndexStatistics> &statistics);

// Value of the rows `a` and `n`.
std::string encode_number(uint64_t number);
// Returns false for damage.
bool decode_number(Bytes bytes, uint64_t &number);

// Key of the row `n`.
extern const std::string number_key;
// Returns the key of a table's entry; `name` is as `db/t`.
std::string entry_key(const std::string &name);
// Returns the key of a row of the kind `a` or `s`.
std::string numbered_key(char kind, uint64_t table);

// Returns the name of the keyspace of an index.
std::string keyspace_name(uint64_t table, uint64_t index);
// Splits the name of a keyspace. Returns false if it is not one of an index.
bool parse_keyspace_name(const std::string &name, uint64_t &table, uint64_t &index);

} // namespace alluvium_sql
