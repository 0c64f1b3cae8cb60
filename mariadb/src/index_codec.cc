// SPDX-License-Identifier: GPL-2.0-only

#include "index_codec.h"

#include "server_collation.h"

namespace alluvium_sql {

namespace {

bool is_binary(const Field &field) { return field.charset() == &my_charset_bin; }

KeyKind string_kind(const Field &field) {
    switch (field.real_type()) {
    case MYSQL_TYPE_VARCHAR:
    case MYSQL_TYPE_VARCHAR_COMPRESSED:
        return is_binary(field) ? KeyKind::VarBinary : KeyKind::VarChar;
    case MYSQL_TYPE_STRING:
        // Types of plugins such as UUID also have this number.
        return is_binary(field) || field.type_handler() != &type_handler_string ? KeyKind::Binary
                                                                               : KeyKind::Char;
    default:
        return is_binary(field) ? KeyKind::BlobBinary : KeyKind::BlobText;
    }
}

KeyKind kind_of(const Field &field) {
    switch (field.real_type()) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
        return field.flags & UNSIGNED_FLAG ? KeyKind::Unsigned : KeyKind::Signed;
    case MYSQL_TYPE_YEAR:
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
    case MYSQL_TYPE_NEWDATE:
        return KeyKind::Unsigned;
    case MYSQL_TYPE_FLOAT:
    case MYSQL_TYPE_DOUBLE:
        return KeyKind::Float;
    // Forms of MariaDB before 10.0 without fractions are integers, those with fractions sort as
    // bytes.
    case MYSQL_TYPE_TIMESTAMP:
        return field.decimals() ? KeyKind::Binary : KeyKind::Unsigned;
    case MYSQL_TYPE_DATE:
    case MYSQL_TYPE_TIME:
    case MYSQL_TYPE_DATETIME:
        return field.decimals() ? KeyKind::Binary : KeyKind::Signed;
    case MYSQL_TYPE_NEWDECIMAL:
    case MYSQL_TYPE_BIT:
    case MYSQL_TYPE_TIME2:
    case MYSQL_TYPE_DATETIME2:
    case MYSQL_TYPE_TIMESTAMP2:
        return KeyKind::Binary;
    default:
        return string_kind(field);
    }
}

uint8_t length_bytes_of(const Field &field) {
    switch (field.real_type()) {
    case MYSQL_TYPE_VARCHAR:
    case MYSQL_TYPE_VARCHAR_COMPRESSED:
        return static_cast<const Field_varstring &>(field).length_bytes;
    case MYSQL_TYPE_TINY_BLOB:
    case MYSQL_TYPE_BLOB:
    case MYSQL_TYPE_BLOB_COMPRESSED:
    case MYSQL_TYPE_MEDIUM_BLOB:
    case MYSQL_TYPE_LONG_BLOB:
    case MYSQL_TYPE_GEOMETRY:
        return static_cast<uint8_t>(
            static_cast<const Field_blob &>(field).pack_length_no_ptr());
    default:
        return 0;
    }
}

bool is_text(KeyKind kind) {
    return kind == KeyKind::Char || kind == KeyKind::VarChar || kind == KeyKind::BlobText;
}

bool is_blob(KeyKind kind) { return kind == KeyKind::BlobText || kind == KeyKind::BlobBinary; }

} // namespace

KeyPart make_key_part(const TABLE &table, const KEY_PART_INFO &info) {
    // The field of a prefix part is a shortened copy; the table's field has the column's size.
    const Field &column = *table.field[info.fieldnr - 1];
    KeyPart part;
    part.kind = kind_of(column);
    part.nullable = column.null_ptr != nullptr;
    part.descending = info.key_part_flag & HA_REVERSE_SORT;
    if (part.nullable) {
        part.null_offset = static_cast<uint32_t>(column.null_ptr - table.record[0]);
        part.null_mask = column.null_bit;
    }
    part.offset = static_cast<uint32_t>(column.ptr - table.record[0]);
    part.length = info.length;
    part.length_bytes = length_bytes_of(column);
    part.column_length = column.real_type() == MYSQL_TYPE_VARCHAR ||
                                 column.real_type() == MYSQL_TYPE_VARCHAR_COMPRESSED
                             ? column.field_length
                             : column.pack_length();
    bool prefix = is_blob(part.kind) || info.key_part_flag & HA_PART_KEY_SEG;
    if (prefix)
        part.prefix_characters =
            is_text(part.kind) ? info.length / column.charset()->mbmaxlen : info.length;
    if (is_text(part.kind))
        part.collation = server_collation(column.charset(), part.kind == KeyKind::Char
                                                                ? TextColumn::Char
                                                                : TextColumn::Varying);
    return part;
}

PrimaryCodec::PrimaryCodec(const TABLE &table, const KEY *key) {
    if (!key) return;
    for (uint i = 0; i < key->user_defined_key_parts; i++) {
        parts_.push_back(make_key_part(table, key->key_part[i]));
        columns_.push_back(key->key_part[i].fieldnr - 1);
    }
}

void PrimaryCodec::encode(const uint8_t *record, uint64_t hidden_id, std::string &out) const {
    out.clear();
    if (is_hidden()) append_big(out, hidden_key_bytes, hidden_id);
    for (const KeyPart &part : parts_) append_part(part, record, out);
}

bool PrimaryCodec::decode(Bytes key, uint8_t *record) const {
    if (is_hidden()) return key.length() == hidden_key_bytes;
    for (const KeyPart &part : parts_) {
        bool good = gives_back(part) ? take_part(part, key, Bytes(), record) : skip_part(part, key);
        if (!good) return false;
    }
    return key.empty();
}

size_t PrimaryCodec::bytes_max() const {
    size_t sum = is_hidden() ? hidden_key_bytes : 0;
    for (const KeyPart &part : parts_) sum += key_part_bytes_max(part);
    return sum;
}

// Pieces of an entry.
struct IndexCodec::Split {
    // Image of each part in the key.
    std::vector<Bytes> images;
    // Key of the row, from the value; empty if it is in the entry's key.
    Bytes row_key;
    // Rest of the entry's key, for a hidden primary key.
    Bytes rest;
    Bytes extras;
};

IndexCodec::IndexCodec(const TABLE &table, const KEY &key, const PrimaryCodec &primary)
    : primary_(primary), unique_(key.flags & HA_NOSAME), own_parts_(key.user_defined_key_parts) {
    std::vector<uint> columns;
    for (size_t i = 0; i < own_parts_; i++) {
        parts_.push_back(make_key_part(table, key.key_part[i]));
        columns.push_back(key.key_part[i].fieldnr - 1);
        nullable_ |= parts_.back().nullable;
    }
    for (size_t i = 0; i < primary.parts().size(); i++) {
        const KeyPart &part = primary.parts()[i];
        size_t place = 0;
        // A prefix of the column does not give the primary key's image.
        while (place < own_parts_ &&
               !(columns[place] == primary.columns()[i] && !part.prefix_characters &&
                 !parts_[place].prefix_characters))
            place++;
        if (place == own_parts_) {
            place = parts_.size();
            parts_.push_back(part);
        }
        places_.push_back(place);
        ends_with_row_key_ &= place == own_parts_ + i;
    }
    for (const KeyPart &part : parts_) restores_all_ &= restores(part);
}

bool IndexCodec::encode(const uint8_t *record, const std::string &row_key, std::string &key,
                        std::string &value) const {
    key.clear();
    value.clear();
    bool null = false;
    for (size_t i = 0; unique_ && i < own_parts_ && !null; i++)
        null = parts_[i].nullable && record[parts_[i].null_offset] & parts_[i].null_mask;
    bool must_be_unique = unique_ && !null;
    std::string extras;
    append_key(parts_, record, key, extras);
    if (must_be_unique) {
        Bytes rest(key);
        for (size_t i = 0; i < own_parts_; i++) skip_part(parts_[i], rest);
        key.resize(key.size() - rest.length());
        append_varint(value, row_key.size());
        value.append(row_key);
    } else if (primary_.is_hidden()) {
        key.append(row_key);
    }
    value.append(extras);
    return must_be_unique;
}

bool IndexCodec::split(Bytes key, Bytes value, Split &split) const {
    bool any_null = false;
    split.images.reserve(parts_.size());
    for (size_t i = 0; i < own_parts_; i++) {
        const uint8_t *from = key.at;
        bool null = false;
        if (!skip_part(parts_[i], key, null)) return false;
        any_null |= null;
        split.images.emplace_back(from, static_cast<size_t>(key.at - from));
    }
    split.extras = value;
    if (unique_ && !any_null) {
        uint64_t length = 0;
        return key.empty() && split.extras.take_varint(length) &&
               split.extras.take(length, split.row_key);
    }
    split.rest = key;
    for (size_t i = own_parts_; i < parts_.size(); i++) {
        const uint8_t *from = key.at;
        if (!skip_part(parts_[i], key)) return false;
        split.images.emplace_back(from, static_cast<size_t>(key.at - from));
    }
    return primary_.is_hidden() ? key.length() == hidden_key_bytes : key.empty();
}

bool IndexCodec::row_key(Bytes key, Bytes value, std::string &row_key) const {
    row_key.clear();
    if (!unique_ && ends_with_row_key_) {
        for (size_t i = 0; i < own_parts_; i++)
            if (!skip_part(parts_[i], key)) return false;
        append_bytes(row_key, key.at, key.length());
        return !primary_.is_hidden() || key.length() == hidden_key_bytes;
    }
    if (unique_ && !nullable_) {
        uint64_t length = 0;
        Bytes taken;
        if (!value.take_varint(length) || !value.take(length, taken)) return false;
        append_bytes(row_key, taken.at, taken.length());
        return true;
    }
    Split pieces;
    if (!split(key, value, pieces)) return false;
    Bytes whole = pieces.row_key.at ? pieces.row_key : pieces.rest;
    if (pieces.row_key.at || primary_.is_hidden()) {
        append_bytes(row_key, whole.at, whole.length());
        return true;
    }
    for (size_t i = 0; i < places_.size(); i++) {
        Bytes image = pieces.images[places_[i]];
        size_t from = row_key.size();
        append_bytes(row_key, image.at, image.length());
        if (parts_[places_[i]].descending == primary_.parts()[i].descending) continue;
        for (size_t at = from; at < row_key.size(); at++) row_key[at] = ~row_key[at];
    }
    return true;
}

bool IndexCodec::decode(Bytes key, Bytes value, uint8_t *record) const {
    if (!unique_) return take_key(parts_, key, value, record);
    Split pieces;
    if (!split(key, value, pieces)) return false;
    if (!pieces.row_key.at) return take_key(parts_, key, pieces.extras, record);
    // The images of the primary key's own parts are in the row's key.
    std::string whole(reinterpret_cast<const char *>(key.at), key.length());
    Bytes row_key = pieces.row_key;
    for (size_t i = 0; i < places_.size(); i++) {
        const uint8_t *from = row_key.at;
        if (!skip_part(primary_.parts()[i], row_key)) return false;
        if (places_[i] >= own_parts_)
            append_bytes(whole, from, static_cast<size_t>(row_key.at - from));
    }
    Bytes rest(whole);
    return take_key(parts_, rest, pieces.extras, record);
}

Tuple encode_tuple(const std::vector<KeyPart> &parts, const uint8_t *tuple, key_part_map map,
                   std::string &out, KeyUse use) {
    const auto has = [&](size_t part) {
        return part < parts.size() && map & (key_part_map(1) << part);
    };
    Tuple result;
    out.clear();
    for (; has(result.parts); result.parts++) {
        // The parts before the last one are equal in the whole range.
        const KeyUse part_use = has(result.parts + 1) ? KeyUse::Exact : use;
        result.has_null |= append_key_part(parts[result.parts], tuple, out, part_use);
    }
    return result;
}

} // namespace alluvium_sql
