// SPDX-License-Identifier: GPL-2.0-only

#include "bytes.h"

namespace alluvium_sql {

bool Bytes::take_varint(uint64_t &value) {
    const uint8_t *next = at;
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 64 && next != end; shift += 7) {
        const uint8_t byte = *next++;
        // The tenth byte has room for the top bit only.
        if (shift == 63 && byte > 1) return false;
        result |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        // A last byte of zero means that a shorter form exists.
        if (byte == 0 && shift > 0) return false;
        at = next;
        value = result;
        return true;
    }
    return false;
}

void append_varint(std::string &out, uint64_t value) {
    while (value >= 0x80) {
        out.push_back(static_cast<char>(value | 0x80));
        value >>= 7;
    }
    out.push_back(static_cast<char>(value));
}

uint64_t load_little(const uint8_t *at, size_t length) {
    uint64_t value = 0;
    for (size_t i = length; i-- > 0;) value = value << 8 | at[i];
    return value;
}

void store_little(uint8_t *at, size_t length, uint64_t value) {
    for (size_t i = 0; i < length; i++, value >>= 8) at[i] = static_cast<uint8_t>(value);
}

uint64_t load_big(const uint8_t *at, size_t length) {
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) value = value << 8 | at[i];
    return value;
}

void append_big(std::string &out, size_t length, uint64_t value) {
    char bytes[8];
    for (size_t i = length; i-- > 0; value >>= 8) bytes[i] = static_cast<char>(value);
    out.append(bytes, length);
}

size_t Space::trimmed(const uint8_t *text, size_t text_length) const {
    // Eight bytes hold a whole number of spaces of each length.
    uint8_t eight[8];
    fill(eight, 0, sizeof eight);
    size_t left = text_length;
    while (left >= sizeof eight && memcmp(text + left - sizeof eight, eight, sizeof eight) == 0) {
        left -= sizeof eight;
    }
    while (left >= length && memcmp(text + left - length, bytes, length) == 0) left -= length;
    return left;
}

void Space::fill(uint8_t *to, size_t from, size_t end) const {
    if (length == 1) {
        if (from < end) memset(to + from, bytes[0], end - from);
        return;
    }
    for (size_t i = from; i < end; i++) to[i] = bytes[i % length];
}

} // namespace alluvium_sql
