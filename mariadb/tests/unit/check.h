// SPDX-License-Identifier: GPL-2.0-only
//
// The little that the unit tests share: a check that names its place, and seeded randomness.

#pragma once

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "bytes.h"

using Random = std::mt19937_64;

inline uint64_t &current_seed() {
    static uint64_t seed = 1;
    return seed;
}

[[noreturn]] inline void fail(const char *file, int line, const char *condition) {
    std::printf("%s:%d: %s is false; seed %llu\n", file, line, condition,
                static_cast<unsigned long long>(current_seed()));
    std::exit(1);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) fail(__FILE__, __LINE__, #condition);                                    \
    } while (false)

inline size_t below(Random &random, size_t end) { return random() % end; }

inline std::string hex(const std::string &bytes) {
    std::string text;
    char digits[4];
    for (unsigned char byte : bytes) {
        std::snprintf(digits, sizeof digits, text.empty() ? "%02x" : " %02x", byte);
        text += digits;
    }
    return text;
}

inline uint8_t *bytes_of(std::string &text) { return reinterpret_cast<uint8_t *>(&text[0]); }

inline const uint8_t *bytes_of(const std::string &text) {
    return reinterpret_cast<const uint8_t *>(text.data());
}

inline int sign(int number) { return (number > 0) - (number < 0); }

// Copy of bytes in memory of exactly their size: the address sanitizer sees any read past it.
class ExactCopy {
public:
    explicit ExactCopy(const std::string &bytes) : size_(bytes.size()), bytes_(new uint8_t[size_]) {
        if (size_) memcpy(bytes_, bytes.data(), size_);
    }
    ~ExactCopy() { delete[] bytes_; }
    ExactCopy(const ExactCopy &) = delete;
    ExactCopy &operator=(const ExactCopy &) = delete;

    alluvium_sql::Bytes bytes() const { return {bytes_, size_}; }
    const uint8_t *data() const { return bytes_; }
    size_t size() const { return size_; }

private:
    size_t size_;
    uint8_t *bytes_;
};

void test_bytes();
void test_keys(Random &random);
void test_key_golden_bytes();
void test_rows(Random &random);
void test_row_golden_bytes();
void test_dictionary(Random &random);
void test_dictionary_golden_bytes();
