// SPDX-License-Identifier: GPL-2.0-only
//
// Rows that one read of many keys brings before the server asks for them.

#pragma once

#include <string>
#include <vector>

#include "handles.h"

namespace alluvium_sql {

class Transaction;

// A series of reads of many keys. Each reads up to twice as many rows as the one before it, and
// fewer if the rows are large.
class RowsAhead {
public:
    RowsAhead() = default;
    ~RowsAhead() { clear(); }
    RowsAhead(const RowsAhead &) = delete;
    RowsAhead &operator=(const RowsAhead &) = delete;

    // Frees the rows and begins a series. `first`, `max`: keys of the first read and of any.
    void restart(size_t first, size_t max);
    // Frees the rows; the next keys are those of the next read of the series.
    void clear();

    // Adds a key to the next read. The caller writes its bytes to the place that this returns.
    std::string &add();
    // Takes the key back that was added last.
    void take_back() { count_--; }
    size_t count() const { return count_; }
    bool is_full() const { return count_ >= wanted_; }

    // Reads the rows of the keys from a keyspace. Returns an error of the server.
    int read(Transaction &transaction, const alluvium_keyspace *rows);
    // Gives the next key that has a row, and the row. False if none is left.
    bool next(std::string &key, Value &row);
    // Number of keys up to that of the row that `next` gave last.
    size_t given() const { return next_; }

private:
    size_t max_ = 0;
    size_t wanted_ = 0;
    // Buffers; the first `count_` are in use.
    std::vector<std::string> keys_;
    size_t count_ = 0;
    // After a read: null for keys without a row.
    std::vector<alluvium_value *> values_;
    size_t next_ = 0;
};

} // namespace alluvium_sql
