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
    // `first`, `max`: keys of the first read and of any.
    RowsAhead(size_t first, size_t max) : first_(first), max_(max), wanted_(first) {}
    ~RowsAhead() { clear(); }
    RowsAhead(const RowsAhead &) = delete;
    RowsAhead &operator=(const RowsAhead &) = delete;

    // Frees the rows and begins a series.
    void restart();
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
    const size_t first_, max_;
    size_t wanted_;
    // Buffers; the first `count_` are in use.
    std::vector<std::string> keys_;
    size_t count_ = 0;
    // After a read: null for keys without a row.
    std::vector<alluvium_value *> values_;
    size_t next_ = 0;
};

} // namespace alluvium_sql
