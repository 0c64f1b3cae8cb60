// SPDX-License-Identifier: GPL-2.0-only
//
// What all handlers of one open table share: keyspaces, codecs, counters and statistics.

#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dictionary.h"
#include "expiry.h"
#include "index_codec.h"

namespace alluvium_sql {

// Numbers of the fields that the row's value holds: stored, and not given back by the row's key.
std::vector<uint> stored_fields(const TABLE &table, const PrimaryCodec &primary);

// Columns of these fields, without ids.
RowLayout row_layout(const TABLE &table, const PrimaryCodec &primary);

// Returns the key of the table's primary key; null for a hidden one.
const KEY *primary_key_of(const TABLE &table);

// Sizes of a table as the engine knows them.
struct TableSizes {
    uint64_t rows = 0;
    uint64_t row_bytes = 0;
    uint64_t index_bytes = 0;
};

class TableShare : public Handler_share {
public:
    // Opens keyspaces and codecs. 0, or an error of the handler.
    static int open(const TABLE &table, const std::string &name,
                    std::unique_ptr<TableShare> &share);
    ~TableShare() override;

    const std::string &name() const { return name_; }
    const TableEntry &entry() const { return entry_; }
    const PrimaryCodec &primary() const { return *primary_; }
    const RowCodec &rows() const { return *rows_; }
    const IndexCodec &index(size_t number) const { return *indexes_[number]; }
    size_t index_count() const { return indexes_.size(); }
    bool has_blobs() const { return has_blobs_; }
    bool has_unique_indexes() const { return has_unique_indexes_; }
    // Number of the field with the time at which a row expires, or `no_field`.
    uint expiry_field() const { return expiry_field_; }

    // Number of the primary key among the keyspaces: that of the key, or after all keys.
    size_t primary_number() const { return primary_number_; }
    const alluvium_keyspace *keyspace(size_t number) const { return keyspaces_[number].get(); }
    const alluvium_keyspace *primary_keyspace() const { return keyspace(primary_number_); }
    // Returns the commit at which an index was complete: an older read point must not use it.
    uint64_t complete_since(size_t number) const { return complete_since_[number]; }

    // Sets `empty` to true if the table has no rows now.
    int is_empty(bool &empty) const;
    // Gives empty keyspaces to the table. The caller holds the exclusive metadata lock.
    int truncate();

    // -- Numbers
    uint64_t next_hidden_id() { return next_hidden_id_++; }
    // Reserves `count` numbers of AUTO_INCREMENT and sets the first one.
    int reserve_numbers(uint64_t offset, uint64_t increment, uint64_t count, uint64_t &first);
    // Raises the next number above one that a row has.
    int raise_numbers(uint64_t used);
    // Sets the next number, also to a smaller one.
    int set_next_number(uint64_t next);
    uint64_t next_number() const { return next_number_; }

    // -- Statistics
    // Returns sizes that are at most a second old.
    TableSizes sizes();
    void forget_sizes() { sizes_time_ = 0; }
    // Counts rows that a handler has added or removed.
    void count_rows(int64_t change) { rows_since_sizes_ += change; }
    // Returns the average numbers of rows for each value of the first parts of an index.
    std::vector<uint64_t> rows_per_value(size_t number);
    void set_statistics(std::vector<IndexStatistics> statistics, uint64_t rows);
    // Returns true if the table has changed so much that its statistics should be sampled again.
    bool statistics_are_old(uint64_t rows);

private:
    TableShare() = default;
    TableSizes current_sizes() const;
    int open_keyspaces();
    int load_numbers(const TABLE &table);
    int load_hidden_id();
    int largest_number(const TABLE &table, uint64_t &number) const;
    int mark_numbers(uint64_t next);
    int read_end(const alluvium_keyspace *keyspace, bool last, std::string &key) const;

    std::string name_;
    TableEntry entry_;
    size_t primary_number_ = 0;
    std::vector<Keyspace> keyspaces_;
    std::vector<uint64_t> complete_since_;
    std::unique_ptr<PrimaryCodec> primary_;
    // Null for the primary key.
    std::vector<std::unique_ptr<IndexCodec>> indexes_;
    std::unique_ptr<RowCodec> rows_;
    bool has_blobs_ = false;
    bool has_unique_indexes_ = false;
    uint expiry_field_ = no_field;

    std::atomic<uint64_t> next_hidden_id_{1};

    // Guards changes of `next_number_` and `mark_`.
    std::mutex numbers_mutex_;
    std::atomic<uint64_t> next_number_{1};
    // No number below is given out after a crash. Invariant: next_number_ <= mark_ once one is
    // used.
    uint64_t mark_ = 0;
    bool has_numbers_ = false;

    // Guards `sizes_`, `statistics_` and `statistics_rows_`.
    std::mutex statistics_mutex_;
    TableSizes sizes_;
    std::atomic<time_t> sizes_time_{0};
    std::atomic<int64_t> rows_since_sizes_{0};
    std::vector<IndexStatistics> statistics_;
    uint64_t statistics_rows_ = 0;
};

} // namespace alluvium_sql
