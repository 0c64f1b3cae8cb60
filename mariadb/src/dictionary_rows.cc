// SPDX-License-Identifier: GPL-2.0-only

#include "dictionary_rows.h"

#include <algorithm>
#include <set>

namespace alluvium_sql {

namespace {

// First byte of each row, stored on disk: a later format has another one.
constexpr uint8_t entry_format = 1;

void append_string(std::string &out, const std::string &text) {
    append_varint(out, text.size());
    out.append(text);
}

bool take_string(Bytes &bytes, std::string &text) {
    uint64_t length = 0;
    Bytes taken;
    if (!bytes.take_varint(length) || !bytes.take(length, taken)) return false;
    text.assign(reinterpret_cast<const char *>(taken.at), taken.length());
    return true;
}

// Takes a count of items that have at least one byte each, so a damaged count cannot exhaust
// memory.
bool take_count(Bytes &bytes, uint64_t &count) {
    return bytes.take_varint(count) && count <= bytes.length();
}

bool take_u32(Bytes &bytes, uint32_t &value) {
    uint64_t wide = 0;
    if (!bytes.take_varint(wide) || wide > UINT32_MAX) return false;
    value = static_cast<uint32_t>(wide);
    return true;
}

void append_layout(std::string &out, const StoredLayout &layout) {
    append_varint(out, layout.version);
    append_varint(out, layout.columns.size());
    for (const StoredColumn &column : layout.columns) {
        append_varint(out, column.id);
        out.push_back(static_cast<char>(column.kind));
        out.push_back(column.nullable ? 1 : 0);
        append_varint(out, column.length);
    }
}

bool take_column(Bytes &bytes, StoredColumn &column) {
    uint8_t kind = 0, nullable = 0;
    if (!take_u32(bytes, column.id) || !bytes.take_byte(kind) || !bytes.take_byte(nullable) ||
        !take_u32(bytes, column.length))
        return false;
    if (kind < static_cast<uint8_t>(ColumnKind::Fixed) ||
        kind > static_cast<uint8_t>(ColumnKind::Padded) || nullable > 1)
        return false;
    column.kind = static_cast<ColumnKind>(kind);
    column.nullable = nullable == 1;
    return true;
}

bool take_layout(Bytes &bytes, StoredLayout &layout) {
    uint64_t count = 0;
    if (!bytes.take_varint(layout.version) || !take_count(bytes, count)) return false;
    layout.columns.resize(count);
    for (StoredColumn &column : layout.columns)
        if (!take_column(bytes, column)) return false;
    return true;
}

// Takes the decimal digits at the start of a text. Returns false if there are none, a leading zero
// or too many.
bool take_digits(const std::string &text, size_t &at, uint64_t &number) {
    const size_t first = at;
    number = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        const uint64_t digit = static_cast<uint64_t>(text[at++] - '0');
        if (number > (UINT64_MAX - digit) / 10) return false;
        number = number * 10 + digit;
    }
    return at > first && (text[first] != '0' || at == first + 1);
}

} // namespace

std::string TableEntry::encode() const {
    std::string out(1, static_cast<char>(entry_format));
    append_varint(out, id);
    append_varint(out, version);
    append_varint(out, next_index);
    append_varint(out, next_column);
    append_varint(out, indexes.size());
    for (uint64_t index : indexes) append_varint(out, index);
    append_varint(out, layouts.size());
    for (const StoredLayout &layout : layouts) append_layout(out, layout);
    append_varint(out, initial.size());
    for (const auto &value : initial) {
        out.push_back(value ? 1 : 0);
        if (value) append_string(out, *value);
    }
    return out;
}

namespace {

// Returns true if all numbers are different, not 0 and below `end`.
bool are_ids(const std::vector<uint64_t> &ids, uint64_t end) {
    return std::set<uint64_t>(ids.begin(), ids.end()).size() == ids.size() &&
           std::all_of(ids.begin(), ids.end(), [=](uint64_t id) { return id > 0 && id < end; });
}

// Returns true if the versions of the layouts rise and their columns have ids below `next_column`.
bool are_layouts(const std::vector<StoredLayout> &layouts, uint32_t next_column) {
    for (size_t i = 0; i < layouts.size(); i++) {
        if (i > 0 && layouts[i].version <= layouts[i - 1].version) return false;
        std::vector<uint64_t> ids;
        for (const StoredColumn &column : layouts[i].columns) ids.push_back(column.id);
        if (!are_ids(ids, next_column)) return false;
    }
    return !layouts.empty();
}

// Returns true if a column can have this value.
bool is_value_of(const StoredColumn &column, const std::optional<std::string> &value) {
    if (!value) return true;
    switch (column.kind) {
    case ColumnKind::Fixed: return value->size() == column.length;
    case ColumnKind::Blob: return true;
    default: return value->size() <= column.length;
    }
}

bool take_initial(Bytes &bytes, const StoredColumn &column, std::optional<std::string> &value) {
    uint8_t has_value = 0;
    if (!bytes.take_byte(has_value) || has_value > 1) return false;
    value.reset();
    if (has_value == 0) return true;
    value.emplace();
    return take_string(bytes, *value) && is_value_of(column, value);
}

// Takes everything after the format.
bool take_entry(Bytes &bytes, TableEntry &entry) {
    uint64_t count = 0;
    if (!bytes.take_varint(entry.id) || !bytes.take_varint(entry.version) ||
        !bytes.take_varint(entry.next_index) || !take_u32(bytes, entry.next_column) ||
        !take_count(bytes, count))
        return false;
    entry.indexes.resize(count);
    for (uint64_t &index : entry.indexes)
        if (!bytes.take_varint(index)) return false;
    if (entry.indexes.empty() || !are_ids(entry.indexes, entry.next_index)) return false;
    if (!take_count(bytes, count)) return false;
    entry.layouts.resize(count);
    for (StoredLayout &layout : entry.layouts)
        if (!take_layout(bytes, layout)) return false;
    if (!are_layouts(entry.layouts, entry.next_column)) return false;
    const std::vector<StoredColumn> &columns = entry.layouts.back().columns;
    if (!take_count(bytes, count) || count != columns.size()) return false;
    entry.initial.resize(count);
    for (size_t i = 0; i < count; i++)
        if (!take_initial(bytes, columns[i], entry.initial[i])) return false;
    return bytes.empty();
}

} // namespace

DecodedEntry TableEntry::decode(Bytes bytes) {
    uint8_t format = 0;
    if (!bytes.take_byte(format) || format == 0) return DecodedEntry::Damaged;
    if (format > entry_format) return DecodedEntry::Newer;
    return take_entry(bytes, *this) ? DecodedEntry::Ok : DecodedEntry::Damaged;
}

std::string encode_statistics(const std::vector<IndexStatistics> &statistics) {
    std::string out;
    append_varint(out, statistics.size());
    for (const IndexStatistics &index : statistics) {
        append_varint(out, index.rows_per_value.size());
        for (uint64_t rows : index.rows_per_value) append_varint(out, rows);
    }
    return out;
}

bool decode_statistics(Bytes bytes, std::vector<IndexStatistics> &statistics) {
    uint64_t indexes = 0, parts = 0;
    if (!take_count(bytes, indexes)) return false;
    statistics.resize(indexes);
    for (IndexStatistics &index : statistics) {
        if (!take_count(bytes, parts)) return false;
        index.rows_per_value.resize(parts);
        for (uint64_t &rows : index.rows_per_value)
            if (!bytes.take_varint(rows)) return false;
    }
    return bytes.empty();
}

std::string encode_number(uint64_t number) {
    std::string out;
    append_varint(out, number);
    return out;
}

bool decode_number(Bytes bytes, uint64_t &number) {
    return bytes.take_varint(number) && bytes.empty();
}

const std::string number_key = "n";

std::string entry_key(const std::string &name) { return "t" + name; }

std::string numbered_key(char kind, uint64_t table) {
    std::string key(1, kind);
    append_big(key, 8, table);
    return key;
}

std::string keyspace_name(uint64_t table, uint64_t index) {
    return "t" + std::to_string(table) + "." + std::to_string(index);
}

bool parse_keyspace_name(const std::string &name, uint64_t &table, uint64_t &index) {
    size_t at = 1;
    if (name.empty() || name[0] != 't' || !take_digits(name, at, table)) return false;
    if (at == name.size() || name[at++] != '.') return false;
    return take_digits(name, at, index) && at == name.size();
}

} // namespace alluvium_sql
