// SPDX-License-Identifier: GPL-2.0-only
//
// The bytes are the format `docs/format/sql-row.md`.

#include "row_codec.h"

#include <algorithm>

namespace alluvium_sql {

namespace {

bool has_length(ColumnKind kind) { return kind != ColumnKind::Fixed; }

bool is_null(const RowColumn &column, const uint8_t *record) {
    return column.nullable && record[column.null_offset] & column.null_mask;
}

size_t null_bytes(const std::vector<StoredColumn> &columns) {
    const auto nullable = [](const StoredColumn &column) { return column.nullable; };
    return (static_cast<size_t>(std::count_if(columns.begin(), columns.end(), nullable)) + 7) / 8;
}

Space space_of(const RowColumn &column) {
    Space space;
    memcpy(space.bytes, column.pad, sizeof space.bytes);
    space.length = column.pad_bytes;
    return space;
}

void store_null(const RowColumn &column, uint8_t *record) {
    record[column.null_offset] |= column.null_mask;
    uint8_t *at = record + column.offset;
    // Some statements compare whole records, so the bytes of a NULL must not vary.
    if (!column.null_image.empty()) {
        memcpy(at, column.null_image.data(), column.null_image.size());
        return;
    }
    switch (column.kind) {
    case ColumnKind::Fixed: memset(at, 0, column.length); break;
    case ColumnKind::Variable: memset(at, 0, column.length_bytes); break;
    case ColumnKind::Blob: memset(at, 0, column.length_bytes + sizeof(uint8_t *)); break;
    case ColumnKind::Padded: space_of(column).fill(at, 0, column.length); break;
    }
}

// Writes a value that is not NULL. False if it does not fit the column.
bool store_value(const RowColumn &column, Bytes value, uint8_t *record) {
    uint8_t *at = record + column.offset;
    const size_t length = value.length();
    switch (column.kind) {
    case ColumnKind::Fixed:
        if (length != column.length) return false;
        memcpy(at, value.at, length);
        break;
    case ColumnKind::Variable:
        if (length > column.length) return false;
        store_little(at, column.length_bytes, length);
        if (length) memcpy(at + column.length_bytes, value.at, length);
        break;
    case ColumnKind::Blob:
        if (length >> (8 * column.length_bytes)) return false;
        store_little(at, column.length_bytes, length);
        memcpy(at + column.length_bytes, &value.at, sizeof value.at);
        break;
    case ColumnKind::Padded:
        if (length > column.length) return false;
        if (length) memcpy(at, value.at, length);
        space_of(column).fill(at, length, column.length);
        break;
    }
    if (column.nullable) record[column.null_offset] &= static_cast<uint8_t>(~column.null_mask);
    return true;
}

// Returns true if a column of an old layout can be stored in its current form. Its values have to
// fit too.
bool fits(const StoredColumn &from, const RowColumn &to) {
    if (from.kind == ColumnKind::Fixed || to.kind == ColumnKind::Fixed) {
        return from.kind == to.kind && from.length == to.length;
    }
    return true;
}

} // namespace

StoredLayout RowLayout::stored() const {
    return {version, std::vector<StoredColumn>(columns.begin(), columns.end())};
}

std::optional<RowMapping> RowMapping::make(const StoredLayout &from, const RowLayout &to) {
    RowMapping mapping;
    mapping.null_bytes_ = null_bytes(from.columns);
    std::vector<bool> found(to.columns.size());
    size_t null_index = 0;
    std::vector<Step> variable;
    for (const StoredColumn &column : from.columns) {
        const auto same = [&](const RowColumn &other) { return other.id == column.id; };
        const auto target = std::find_if(to.columns.begin(), to.columns.end(), same);
        size_t index = dropped;
        if (target != to.columns.end()) {
            if (!fits(column, *target)) return std::nullopt;
            index = static_cast<size_t>(target - to.columns.begin());
            found[index] = true;
        }
        auto &steps = has_length(column.kind) ? variable : mapping.steps_;
        steps.push_back({column, null_index, index});
        null_index += column.nullable;
    }
    mapping.steps_.insert(mapping.steps_.end(), variable.begin(), variable.end());
    for (size_t i = 0; i < to.columns.size(); i++) {
        if (found[i]) continue;
        const RowColumn &column = to.columns[i];
        const bool has_value = column.initial.has_value();
        if (!has_value && !column.nullable) return std::nullopt;
        if (has_value && column.kind == ColumnKind::Fixed &&
            column.initial->size() != column.length) {
            return std::nullopt;
        }
        mapping.added_.push_back(i);
    }
    return mapping;
}

Decoded RowMapping::decode(const RowLayout &to, Bytes bytes, uint8_t *record,
                           const WantedColumns *wanted) const {
    const auto is_wanted = [&](size_t index) { return !wanted || (*wanted)[index]; };
    Bytes nulls;
    if (!bytes.take(null_bytes_, nulls)) return Decoded::Damaged;
    for (const Step &step : steps_) {
        const bool keep = step.target != dropped && is_wanted(step.target);
        if (step.column.nullable && nulls.at[step.null_index / 8] >> (step.null_index % 8) & 1) {
            if (!keep) continue;
            const RowColumn &column = to.columns[step.target];
            if (!column.nullable) return Decoded::Damaged;
            store_null(column, record);
            continue;
        }
        uint64_t length = step.column.length;
        if (has_length(step.column.kind) && !bytes.take_varint(length)) return Decoded::Damaged;
        Bytes value;
        if (!bytes.take(length, value)) return Decoded::Damaged;
        if (keep && !store_value(to.columns[step.target], value, record)) return Decoded::Damaged;
    }
    if (!bytes.empty()) return Decoded::Damaged;
    for (size_t index : added_) {
        const RowColumn &column = to.columns[index];
        if (!is_wanted(index)) continue;
        if (!column.initial) {
            store_null(column, record);
        } else if (!store_value(column, Bytes(*column.initial), record)) {
            return Decoded::Damaged;
        }
    }
    return Decoded::Ok;
}

RowCodec::RowCodec(RowLayout current, const std::vector<StoredLayout> &old)
    : current_(std::move(current)), mapping_(RowMapping::make(current_.stored(), current_)) {
    maps_all_ = mapping_.has_value();
    for (const StoredLayout &layout : old) {
        if (layout.version == current_.version) continue;
        std::optional<RowMapping> mapping = RowMapping::make(layout, current_);
        if (mapping) {
            old_.emplace(layout.version, std::move(*mapping));
        } else {
            maps_all_ = false;
        }
    }
}

void RowCodec::encode(const uint8_t *record, std::string &out) const {
    append_varint(out, current_.version);
    uint8_t bits = 0;
    unsigned used = 0;
    for (const RowColumn &column : current_.columns) {
        if (!column.nullable) continue;
        bits |= static_cast<uint8_t>(is_null(column, record) << used++);
        if (used < 8) continue;
        out.push_back(static_cast<char>(bits));
        bits = 0;
        used = 0;
    }
    if (used) out.push_back(static_cast<char>(bits));
    for (const RowColumn &column : current_.columns) {
        if (has_length(column.kind) || is_null(column, record)) continue;
        append_bytes(out, record + column.offset, column.length);
    }
    for (const RowColumn &column : current_.columns) {
        if (!has_length(column.kind) || is_null(column, record)) continue;
        append_variable(column, record, out);
    }
}

void RowCodec::append_variable(const RowColumn &column, const uint8_t *record,
                               std::string &out) const {
    const uint8_t *at = record + column.offset;
    size_t length;
    if (column.kind == ColumnKind::Padded) {
        length = space_of(column).trimmed(at, column.length);
    } else {
        length = load_little(at, column.length_bytes);
        at += column.length_bytes;
    }
    if (column.kind == ColumnKind::Blob) memcpy(&at, at, sizeof at);
    append_varint(out, length);
    if (length) append_bytes(out, at, length);
}

Decoded RowCodec::decode(const void *bytes, size_t length, uint8_t *record,
                         const WantedColumns *wanted) const {
    Bytes rest(bytes, length);
    uint64_t version;
    if (!rest.take_varint(version)) return Decoded::Damaged;
    if (version == current_.version && mapping_) {
        return mapping_->decode(current_, rest, record, wanted);
    }
    const auto found = old_.find(version);
    if (found == old_.end()) return Decoded::UnknownLayout;
    return found->second.decode(current_, rest, record, wanted);
}

size_t RowCodec::bytes_max_without_blobs() const {
    constexpr size_t varint_bytes_max = 10;
    size_t bytes = varint_bytes_max + null_bytes(current_.stored().columns);
    for (const RowColumn &column : current_.columns) bytes += column.length + varint_bytes_max;
    return bytes;
}

} // namespace alluvium_sql
