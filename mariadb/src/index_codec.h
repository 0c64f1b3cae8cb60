// SPDX-License-Identifier: GPL-2.0-only
//
// Entries of the indexes of a table, and what links them: each entry of a secondary index leads to
// the key of its row.
//
// Key of an entry: the parts of the index, then the parts of the primary key that are not among
// them. An entry of a unique index without NULL has only the parts of the index, so that one read
// finds a duplicate; its value begins with the length and bytes of the row's key. Then come the
// extras of the parts, which restore what the images do not: `docs/format/sql-key.md`.

#pragma once

#include <string>
#include <vector>

#include "compat.h"
#include "key_codec.h"

namespace alluvium_sql {

// Bytes of the hidden primary key of a table without one: a counter, big-endian.
constexpr size_t hidden_key_bytes = 8;

// Returns the codec's part for a part of a key of the server.
KeyPart make_key_part(const TABLE &table, const KEY_PART_INFO &info);

// Key of the rows of a table.
class PrimaryCodec {
public:
    // `key` null: a hidden primary key.
    PrimaryCodec(const TABLE &table, const KEY *key);

    bool is_hidden() const { return parts_.empty(); }
    const std::vector<KeyPart> &parts() const { return parts_; }
    // Index of the column of each part in the table.
    const std::vector<uint> &columns() const { return columns_; }
    // Returns true if the key alone gives a part back, so that the row need not store its column.
    static bool gives_back(const KeyPart &part) { return restores(part) && !may_have_extra(part); }

    // Replaces `out` with the key of a record.
    void encode(const uint8_t *record, uint64_t hidden_id, std::string &out) const;
    // Restores the columns that the key gives back. False: damage.
    bool decode(Bytes key, uint8_t *record) const;
    size_t bytes_max() const;

private:
    std::vector<KeyPart> parts_;
    std::vector<uint> columns_;
};

// Entries of a secondary index.
class IndexCodec {
public:
    IndexCodec(const TABLE &table, const KEY &key, const PrimaryCodec &primary);

    bool is_unique() const { return unique_; }
    // Parts of the index itself, without those of the primary key.
    size_t own_parts() const { return own_parts_; }
    const std::vector<KeyPart> &parts() const { return parts_; }
    // Returns true if an entry gives back all its columns. A prefix, BLOB or TEXT does not come
    // back.
    bool restores_all() const { return restores_all_; }

    // Replaces key and value with the entry of a record whose row has this key. Returns true if
    // the entry must be unique: the index is, and no part is NULL.
    bool encode(const uint8_t *record, const std::string &row_key, std::string &key,
                std::string &value) const;

    // Replaces `row_key` with the key of the entry's row. False: damage.
    bool row_key(Bytes key, Bytes value, std::string &row_key) const;

    // Restores all columns of the entry that can be restored. False: damage.
    bool decode(Bytes key, Bytes value, uint8_t *record) const;

private:
    struct Split;
    bool split(Bytes key, Bytes value, Split &split) const;

    const PrimaryCodec &primary_;
    bool unique_;
    size_t own_parts_;
    // Parts of the index, then those of the primary key that it does not have.
    std::vector<KeyPart> parts_;
    bool nullable_ = false;
    bool restores_all_ = true;
    // The row's key ends the keys of entries that are not unique, as it is.
    bool ends_with_row_key_ = true;
    // For each part of the primary key: its place in `parts_`.
    std::vector<size_t> places_;
};

struct Tuple {
    size_t parts = 0;
    bool has_null = false;
};

// Replaces `out` with the images of the leading parts of a tuple of the server. A low limit may be
// lower than the tuple.
Tuple encode_tuple(const std::vector<KeyPart> &parts, const uint8_t *tuple, key_part_map map,
                   std::string &out, KeyUse use = KeyUse::Exact);

} // namespace alluvium_sql
