// SPDX-License-Identifier: GPL-2.0-only
//
// Tests of the codecs that need no server.
//
//   codecs [SEED]

#include "check.h"

using namespace alluvium_sql;

void test_bytes() {
    for (uint64_t value : {0ull, 127ull, 128ull, 16383ull, ~0ull}) {
        std::string bytes;
        append_varint(bytes, value);
        uint64_t back = 1;
        for (size_t cut = 0; cut < bytes.size(); cut++) {
            CHECK(!ExactCopy(bytes.substr(0, cut)).bytes().take_varint(back));
        }
        const ExactCopy copy(bytes);
        Bytes cursor = copy.bytes();
        CHECK(cursor.take_varint(back) && back == value && cursor.empty());
    }
    uint64_t value;
    // Not the shortest form, more than 64 bits, no end.
    for (const char *damaged : {"\x80\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
                                "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
        Bytes cursor(damaged, std::char_traits<char>::length(damaged) + 1);
        CHECK(!cursor.take_varint(value));
    }
}

int main(int count, char **arguments) {
    current_seed() = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1;
    Random random(current_seed());
    test_bytes();
    test_key_golden_bytes();
    test_keys(random);
    test_row_golden_bytes();
    test_rows(random);
    test_dictionary_golden_bytes();
    test_dictionary(random);
    std::printf("codecs: all tests passed with seed %llu\n",
                static_cast<unsigned long long>(current_seed()));
}
