// SPDX-License-Identifier: GPL-2.0-only
//
// Numbers as bytes, and a cursor that checks every length.
//
// Writers append to a std::string. Readers use `Bytes`, which never reads past its end: each `take`
// returns false instead, and the caller reports damage.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace alluvium_sql {

// Unread rest of some bytes that the caller owns.
struct Bytes {
    const uint8_t *at = nullptr;
    const uint8_t *end = nullptr;

    Bytes() = default;
    Bytes(const void *data, size_t length)
        : at(static_cast<const uint8_t *>(data)), end(at + length) {}
    explicit Bytes(const std::string &text) : Bytes(text.data(), text.size()) {}

    size_t length() const { return static_cast<size_t>(end - at); }
    bool empty() const { return at == end; }

    // Takes the next `length` bytes. False if fewer are left; then nothing is taken.
    bool take(size_t wanted, Bytes &taken) {
        if (wanted > length()) return false;
        taken = Bytes(at, wanted);
        at += wanted;
        return true;
    }

    bool take_byte(uint8_t &byte) {
        if (empty()) return false;
        byte = *at++;
        return true;
    }

    // LEB128. False if the bytes end within it, it does not fit 64 bits, or it is not the shortest
    // form.
    bool take_varint(uint64_t &value);
};

// Appends LEB128: 7 bits a byte, the lowest first; all bytes but the last have the top bit.
void append_varint(std::string &out, uint64_t value);

inline void append_bytes(std::string &out, const uint8_t *data, size_t length) {
    out.append(reinterpret_cast<const char *>(data), length);
}

// Integers of 1 to 8 bytes.
uint64_t load_little(const uint8_t *at, size_t length);
void store_little(uint8_t *at, size_t length, uint64_t value);
uint64_t load_big(const uint8_t *at, size_t length);
void append_big(std::string &out, size_t length, uint64_t value);

// The space of a character set as text: 20, 0020, 2000 or 00000020.
struct Space {
    uint8_t bytes[4] = {0x20};
    uint8_t length = 1;

    // Length of a text without its trailing spaces.
    size_t trimmed(const uint8_t *text, size_t text_length) const;

    // Fills `to` with spaces from `from` on, as if the spaces began at 0.
    void fill(uint8_t *to, size_t from, size_t end) const;
};

} // namespace alluvium_sql
