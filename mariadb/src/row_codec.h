// SPDX-License-Identifier: GPL-2.0-only
//
// Rows as bytes and back into the record, by layout version.
//
// A row value is the version of its layout, the null bits, the columns of fixed size, then length
// and bytes of each other column: `docs/format/sql-row.md`. NULL takes a bit and no bytes. A layout
// lists only the columns that the value holds: the caller leaves out virtual columns, and the
// columns of the primary key that the key gives back.
//
// Each change of the columns makes a layout with a new version. A column keeps its id for life, so
// a row of an old layout is read by `RowMapping`: columns that were dropped are skipped, columns
// that were added get their default, and a new name changes nothing.
//
// Decoding checks every length: damaged bytes give `Decoded::Damaged` and may leave a part of the
// record written.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bytes.h"

namespace alluvium_sql {

// Numbers are stored in the dictionary and never change.
enum class ColumnKind : uint8_t {
    Fixed = 1,    // `length` bytes as in the record
    Variable = 2, // VARCHAR, VARBINARY: `length_bytes` and bytes in the record
    Blob = 3,     // BLOB, TEXT, JSON, GEOMETRY: `length_bytes` and a pointer in the record
    Padded = 4,   // CHAR: `length` bytes in the record, stored without trailing spaces
};

// The part of a column that the bytes of a row depend on. The dictionary keeps it for each layout.
struct StoredColumn {
    uint32_t id = 0;
    ColumnKind kind = ColumnKind::Fixed;
    bool nullable = false;
    // Bytes of a fixed or padded column; the most bytes of a variable one; 0 for BLOB.
    uint32_t length = 0;
};

struct StoredLayout {
    uint64_t version = 0;
    std::vector<StoredColumn> columns;
};

// A column with its place in the record of the open table.
struct RowColumn : StoredColumn {
    uint32_t offset = 0;
    uint32_t null_offset = 0;
    uint8_t null_mask = 0;
    // Bytes of the length in the record: 1 or 2 for Variable, 1 to 4 for Blob.
    uint8_t length_bytes = 0;
    // The space of a padded column: 20, 0020, 2000 or 00000020.
    uint8_t pad[4] = {0x20};
    uint8_t pad_bytes = 1;
    // First bytes of the column in the record if it is NULL; empty: zeros, and pad for Padded. The
    // server also compares the bytes of a NULL.
    std::string null_image;
    // Value of rows that were written before the column was added; no value: NULL. Bytes of a Fixed
    // column as in the record, of all others without length and padding. The dictionary keeps it as
    // long as the column, also when the column's default changes.
    std::optional<std::string> initial;
};

struct RowLayout {
    uint64_t version = 0;
    std::vector<RowColumn> columns;

    StoredLayout stored() const;
};

enum class Decoded {
    Ok,
    Damaged,
    // The row has a layout that the codec was not given: another server changed the table.
    UnknownLayout,
};

// Columns to decode, by their index in the current layout; null: all.
using WantedColumns = std::vector<bool>;

// Plan that reads rows of one layout into the record of the current one.
class RowMapping {
public:
    // No value if a fixed column changed its kind or size, or a new column is not nullable and has
    // no initial value of its size.
    static std::optional<RowMapping> make(const StoredLayout &from, const RowLayout &to);

    // Decodes the bytes after the version.
    Decoded decode(const RowLayout &to, Bytes bytes, uint8_t *record,
                   const WantedColumns *wanted) const;

private:
    static constexpr size_t dropped = SIZE_MAX;
    struct Step {
        StoredColumn column;
        size_t null_index;
        size_t target;
    };
    std::vector<Step> steps_;
    std::vector<size_t> added_;
    size_t null_bytes_ = 0;
};

// Encoder and decoder of the rows of one open table. Not changed after it is made, so threads share
// it.
class RowCodec {
public:
    // `old`: the earlier layouts of the table. One that cannot be mapped makes its rows
    // `UnknownLayout`; `maps_all` is false then.
    RowCodec(RowLayout current, const std::vector<StoredLayout> &old);

    const RowLayout &layout() const { return current_; }
    bool maps_all() const { return maps_all_; }

    // Appends the value of a record to `out`.
    void encode(const uint8_t *record, std::string &out) const;

    // Writes the columns of a value into the record. Blob columns point into `bytes` or into this
    // codec, so both have to outlive the record's use. Columns that are not in the layout, or not
    // wanted, stay as they are.
    Decoded decode(const void *bytes, size_t length, uint8_t *record,
                   const WantedColumns *wanted = nullptr) const;

    // Upper bound of the bytes of a value without the contents of its blobs.
    size_t bytes_max_without_blobs() const;

private:
    void append_variable(const RowColumn &column, const uint8_t *record, std::string &out) const;

    RowLayout current_;
    std::optional<RowMapping> mapping_;
    std::map<uint64_t, RowMapping> old_;
    bool maps_all_ = true;
};

} // namespace alluvium_sql
