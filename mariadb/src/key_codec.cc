// SPDX-License-Identifier: GPL-2.0-only
//
// The images are part of the format `docs/format/sql-key.md` and never change.

#include "key_codec.h"

#include <algorithm>

namespace alluvium_sql {

namespace {

constexpr uint8_t null_image = 0;
constexpr uint8_t value_image = 1;
constexpr uint64_t negative_zero = 1;

// A key tuple of the server has this many length bytes for VARCHAR and BLOB.
constexpr size_t tuple_length_bytes = 2;

bool is_blob(const KeyPart &part) {
    return part.kind == KeyKind::BlobBinary || part.kind == KeyKind::BlobText;
}

bool is_varying(const KeyPart &part) {
    return part.kind == KeyKind::VarBinary || part.kind == KeyKind::VarChar || is_blob(part);
}

bool is_text(const KeyPart &part) {
    return part.kind == KeyKind::Char || part.kind == KeyKind::VarChar ||
           part.kind == KeyKind::BlobText;
}

uint64_t sign_bit(size_t length) { return uint64_t{1} << (8 * length - 1); }

uint64_t all_bits(size_t length) { return ~uint64_t{0} >> (64 - 8 * length); }

// IEEE numbers sort as sign and magnitude: negative ones are inverted, others get the top bit.
uint64_t float_image(uint64_t bits, size_t length) {
    if (bits == sign_bit(length)) bits = 0;
    return bits & sign_bit(length) ? bits ^ all_bits(length) : bits ^ sign_bit(length);
}

uint64_t float_bits(uint64_t image, size_t length) {
    return image & sign_bit(length) ? image ^ sign_bit(length) : image ^ all_bits(length);
}

// Part of a text that belongs to the key.
size_t key_bytes(const KeyPart &part, const uint8_t *text, size_t length) {
    if (!part.collation) {
        const size_t most = part.prefix_characters ? part.prefix_characters : part.length;
        return std::min(length, most);
    }
    const Collation &collation = *part.collation;
    const bool is_char = part.kind == KeyKind::Char;
    if (is_char && collation.trims_char) length = collation.space.trimmed(text, length);
    size_t characters = part.prefix_characters;
    if (is_char && !characters) characters = part.length / collation.character_bytes_max;
    // No cut if even characters of one byte are not too many. Trimmed texts of a full length CHAR
    // mostly end here.
    if (characters && length > characters) {
        length = collation.prefix_bytes(text, length, characters);
    }
    // Only damaged characters can take more; without this they would exceed `key_part_bytes_max`.
    return std::min<size_t>(length, part.length);
}

// The value of a record: for VARCHAR and BLOB without its length.
struct Value {
    const uint8_t *data;
    size_t length;
};

Value record_value(const KeyPart &part, const uint8_t *record) {
    const uint8_t *at = record + part.offset;
    if (!is_varying(part)) return {at, is_text(part) ? part.column_length : part.length};
    const size_t length = load_little(at, part.length_bytes);
    at += part.length_bytes;
    if (!is_blob(part)) return {at, length};
    const uint8_t *blob;
    memcpy(&blob, at, sizeof blob);
    return {blob, length};
}

void append_value(const KeyPart &part, Value value, std::string &out) {
    switch (part.kind) {
    case KeyKind::Signed:
        append_big(out, part.length, load_little(value.data, part.length) ^ sign_bit(part.length));
        break;
    case KeyKind::Unsigned:
        append_big(out, part.length, load_little(value.data, part.length));
        break;
    case KeyKind::Float:
        append_big(out, part.length,
                   float_image(load_little(value.data, part.length), part.length));
        break;
    case KeyKind::Binary:
        append_bytes(out, value.data, part.length);
        break;
    default:
        append_text(part.collation, value.data, key_bytes(part, value.data, value.length), out);
    }
}

void append_image(const KeyPart &part, bool null, Value value, std::string &out) {
    const size_t start = out.size();
    if (part.nullable) out.push_back(static_cast<char>(null ? null_image : value_image));
    if (!null) append_value(part, value, out);
    if (part.descending) {
        for (size_t i = start; i < out.size(); i++) out[i] = static_cast<char>(~out[i]);
    }
}

Extra extra_of(const KeyPart &part, Value value) {
    if (!may_have_extra(part)) return {};
    if (part.kind == KeyKind::Float) {
        const bool is_negative_zero = load_little(value.data, part.length) == sign_bit(part.length);
        return is_negative_zero ? Extra::number(negative_zero) : Extra();
    }
    const size_t trimmed = part.collation->space.trimmed(value.data, value.length);
    if (part.kind == KeyKind::Char) return Extra::reference(value.data, trimmed);
    if (!part.collation->restores) return Extra::reference(value.data, value.length);
    return trimmed == value.length ? Extra() : Extra::number(value.length - trimmed);
}

uint8_t inversion(const KeyPart &part) { return part.descending ? 0xff : 0; }

void restore_null(const KeyPart &part, uint8_t *record) {
    record[part.null_offset] |= part.null_mask;
    uint8_t *at = record + part.offset;
    // Some statements compare whole records, so the bytes of a NULL must not vary.
    if (part.kind == KeyKind::Char) {
        part.collation->space.fill(at, 0, part.column_length);
    } else {
        memset(at, 0, is_varying(part) ? part.length_bytes : part.length);
    }
}

bool restore_number(const KeyPart &part, Bytes &cursor, Bytes extra, uint8_t *to) {
    Bytes image;
    if (!cursor.take(part.length, image)) return false;
    uint64_t value = load_big(image.at, part.length);
    if (part.descending) value ^= all_bits(part.length);
    if (part.kind == KeyKind::Signed) value ^= sign_bit(part.length);
    if (part.kind == KeyKind::Float) {
        value = float_bits(value, part.length);
        uint64_t flag = 0;
        if (!extra.empty() && !(extra.take_varint(flag) && flag == negative_zero && value == 0)) {
            return false;
        }
        if (flag == negative_zero) value = sign_bit(part.length);
    }
    store_little(to, part.length, value);
    return extra.empty();
}

bool restore_bytes(const KeyPart &part, Bytes &cursor, uint8_t *to) {
    Bytes image;
    if (!cursor.take(part.length, image)) return false;
    for (size_t i = 0; i < part.length; i++) to[i] = image.at[i] ^ inversion(part);
    return true;
}

// Text of a CHAR or VARCHAR: `to` has room for `column_length` bytes.
bool restore_text(const KeyPart &part, Bytes &cursor, Bytes extra, uint8_t *to, size_t &length) {
    if (part.collation && !part.collation->restores) {
        if (!skip_text(part.collation, cursor, inversion(part))) return false;
        if (extra.length() > part.column_length) return false;
        length = extra.length();
        if (length) memcpy(to, extra.at, length);
        return true;
    }
    if (!take_text(part.collation, cursor, inversion(part), to, part.column_length, length)) {
        return false;
    }
    if (extra.empty()) return true;
    uint64_t spaces;
    if (!may_have_extra(part) || !extra.take_varint(spaces) || !extra.empty()) return false;
    if (spaces > part.column_length - length) return false;
    part.collation->space.fill(to, length, length + spaces);
    length += spaces;
    return true;
}

} // namespace

Extra Extra::reference(const uint8_t *data, size_t length) {
    Extra extra;
    extra.data_ = data;
    extra.length_ = length;
    return extra;
}

Extra Extra::number(uint64_t value) {
    std::string bytes;
    append_varint(bytes, value);
    Extra extra;
    extra.length_ = bytes.size();
    memcpy(extra.own_, bytes.data(), bytes.size());
    return extra;
}

Extra append_part(const KeyPart &part, const uint8_t *record, std::string &out) {
    const bool null = part.nullable && record[part.null_offset] & part.null_mask;
    const Value value = null ? Value{nullptr, 0} : record_value(part, record);
    append_image(part, null, value, out);
    return null ? Extra() : extra_of(part, value);
}

bool append_key_part(const KeyPart &part, const uint8_t *&tuple, std::string &out, KeyUse use) {
    const bool null = part.nullable && *tuple != 0;
    if (part.nullable) tuple++;
    Value value{tuple, part.length};
    if (is_varying(part)) {
        value.length = std::min<size_t>(load_little(tuple, tuple_length_bytes), part.length);
        value.data += tuple_length_bytes;
        tuple += tuple_length_bytes;
    }
    tuple += part.length;
    const bool fills = use == KeyUse::LowLimit && part.kind == KeyKind::Char && !part.descending &&
                       part.collation->low_filler.length > 0;
    if (fills) value.length = part.collation->low_filler.trimmed(value.data, value.length);
    append_image(part, null, value, out);
    return null;
}

bool skip_part(const KeyPart &part, Bytes &cursor, bool &null) {
    null = false;
    if (part.nullable) {
        uint8_t byte;
        if (!cursor.take_byte(byte)) return false;
        byte ^= inversion(part);
        null = byte == null_image;
        if (null) return true;
        if (byte != value_image) return false;
    }
    if (is_varying(part) || is_text(part)) {
        return skip_text(part.collation, cursor, inversion(part));
    }
    Bytes skipped;
    return cursor.take(part.length, skipped);
}

bool skip_part(const KeyPart &part, Bytes &cursor) {
    bool null;
    return skip_part(part, cursor, null);
}

bool take_part(const KeyPart &part, Bytes &cursor, Bytes extra, uint8_t *record) {
    if (part.nullable) {
        uint8_t byte;
        if (!cursor.take_byte(byte)) return false;
        byte ^= inversion(part);
        if (byte == null_image) {
            restore_null(part, record);
            return extra.empty();
        }
        if (byte != value_image) return false;
        record[part.null_offset] &= static_cast<uint8_t>(~part.null_mask);
    }
    uint8_t *at = record + part.offset;
    size_t length;
    switch (part.kind) {
    case KeyKind::Signed:
    case KeyKind::Unsigned:
    case KeyKind::Float:
        return restore_number(part, cursor, extra, at);
    case KeyKind::Binary:
        return extra.empty() && restore_bytes(part, cursor, at);
    case KeyKind::Char:
        if (!restore_text(part, cursor, extra, at, length)) return false;
        part.collation->space.fill(at, length, part.column_length);
        return true;
    case KeyKind::VarBinary:
    case KeyKind::VarChar:
        if (!restore_text(part, cursor, extra, at + part.length_bytes, length)) return false;
        store_little(at, part.length_bytes, length);
        return true;
    default:
        return false;
    }
}

bool restores(const KeyPart &part) { return !is_blob(part) && !part.prefix_characters; }

bool may_have_extra(const KeyPart &part) {
    if (!restores(part)) return false;
    if (part.kind == KeyKind::Float) return true;
    if (!is_text(part)) return false;
    if (!part.collation->restores) return true;
    // The record has the spaces of a CHAR anyway, and without padding the image keeps them.
    return part.kind == KeyKind::VarChar && part.collation->form[0] == TextForm::Spaces;
}

size_t key_part_bytes_max(const KeyPart &part) {
    const bool is_fixed = !is_varying(part) && !is_text(part);
    return part.nullable +
           (is_fixed ? part.length : text_image_bytes_max(part.collation, part.length));
}

std::string key_successor(std::string prefix) {
    while (!prefix.empty() && static_cast<uint8_t>(prefix.back()) == 0xff) prefix.pop_back();
    if (!prefix.empty()) prefix.back()++;
    return prefix;
}

bool append_key(const std::vector<KeyPart> &parts, const uint8_t *record, std::string &key,
                std::string &extras) {
    bool has_null = false;
    // Ends of empty extras are written only when one follows that is not empty.
    size_t empty = 0;
    for (const KeyPart &part : parts) {
        has_null |= part.nullable && record[part.null_offset] & part.null_mask;
        const Extra extra = append_part(part, record, key);
        if (!may_have_extra(part)) continue;
        if (extra.empty()) {
            empty++;
            continue;
        }
        extras.append(empty, '\0');
        empty = 0;
        append_varint(extras, extra.length());
        append_bytes(extras, extra.data(), extra.length());
    }
    return has_null;
}

bool take_key(const std::vector<KeyPart> &parts, Bytes &key, Bytes &extras, uint8_t *record) {
    for (const KeyPart &part : parts) {
        Bytes extra;
        if (may_have_extra(part) && !extras.empty()) {
            uint64_t length;
            if (!extras.take_varint(length) || !extras.take(length, extra)) return false;
        }
        if (!restores(part) ? !skip_part(part, key) : !take_part(part, key, extra, record)) {
            return false;
        }
    }
    return true;
}

} // namespace alluvium_sql
