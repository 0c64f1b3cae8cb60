// SPDX-License-Identifier: GPL-2.0-only
//
// Rows of the dictionary: golden bytes equal to `docs/format/sql-dictionary.md`, damage, and
// properties of random entries.

#include "check.h"
#include "dictionary_rows.h"

using namespace alluvium_sql;

namespace {

StoredColumn column_of(uint32_t id, ColumnKind kind, bool nullable, uint32_t length) {
    StoredColumn column;
    column.id = id;
    column.kind = kind;
    column.nullable = nullable;
    column.length = length;
    return column;
}

// A table with two indexes to which a column was added.
TableEntry golden_entry() {
    TableEntry entry;
    entry.id = 300;
    entry.version = 301;
    entry.next_index = 4;
    entry.next_column = 4;
    entry.indexes = {1, 3};
    const StoredColumn number = column_of(1, ColumnKind::Fixed, false, 4);
    const StoredColumn name = column_of(2, ColumnKind::Variable, true, 200);
    const StoredColumn added = column_of(3, ColumnKind::Padded, true, 8);
    entry.layouts = {{1, {number, name}}, {2, {number, added, name}}};
    entry.initial = {std::nullopt, "ab", std::nullopt};
    return entry;
}

constexpr size_t golden_initial_at = 39;

bool same(const TableEntry &a, const TableEntry &b) {
    return a.id == b.id && a.version == b.version && a.next_index == b.next_index &&
           a.next_column == b.next_column && a.indexes == b.indexes && a.initial == b.initial &&
           a.encode() == b.encode();
}

DecodedEntry decoded(const std::string &bytes) {
    TableEntry entry;
    const ExactCopy copy(bytes);
    return entry.decode(copy.bytes());
}

// Encodes the golden entry after a change.
template <typename Change> DecodedEntry decoded_after(Change change) {
    TableEntry entry = golden_entry();
    change(entry);
    return decoded(entry.encode());
}

void check_impossible_entries() {
    using Entry = TableEntry;
    const auto damaged = DecodedEntry::Damaged;
    CHECK(decoded_after([](Entry &) {}) == DecodedEntry::Ok);
    CHECK(decoded_after([](Entry &entry) { entry.indexes.clear(); }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.indexes[0] = 3; }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.indexes[0] = 0; }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.next_index = 3; }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.next_column = 3; }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.layouts[1].version = 1; }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.layouts[0].columns[1].id = 1; }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.initial[0] = "abc"; }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.initial[0] = "abcd"; }) == DecodedEntry::Ok);
    CHECK(decoded_after([](Entry &entry) { entry.initial[1] = "123456789"; }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.initial.pop_back(); }) == damaged);
    CHECK(decoded_after([](Entry &entry) { entry.layouts.clear(); }) == damaged);
}

void check_damaged_bytes(Random &random) {
    const std::string good = golden_entry().encode();
    for (size_t length = 0; length < good.size(); length++)
        CHECK(decoded(good.substr(0, length)) == DecodedEntry::Damaged);
    CHECK(decoded(good + '\0') == DecodedEntry::Damaged);
    std::string bytes = good;
    bytes[0] = 2;
    CHECK(decoded(bytes) == DecodedEntry::Newer);
    CHECK(decoded(bytes.substr(0, 1)) == DecodedEntry::Newer);
    bytes[0] = 0;
    CHECK(decoded(bytes) == DecodedEntry::Damaged);
    // The byte before an initial value is 0 or 1.
    bytes = good;
    CHECK(bytes[golden_initial_at] == 1);
    bytes[golden_initial_at] = 2;
    CHECK(decoded(bytes) == DecodedEntry::Damaged);
    for (int round = 0; round < 2000; round++) {
        bytes = good;
        bytes[below(random, bytes.size())] = static_cast<char>(random());
        TableEntry entry;
        const ExactCopy copy(bytes);
        if (entry.decode(copy.bytes()) == DecodedEntry::Ok) CHECK(entry.encode() == bytes);
    }
}

void check_numbers_and_statistics() {
    uint64_t number = 0;
    CHECK(hex(encode_number(300)) == "ac 02");
    CHECK(decode_number(Bytes(encode_number(UINT64_MAX)), number) && number == UINT64_MAX);
    CHECK(!decode_number(Bytes(), number));
    CHECK(!decode_number(Bytes(std::string("\x05\x00", 2)), number));
    std::vector<IndexStatistics> statistics = {{{1}}, {{40, 1}}};
    const std::string bytes = encode_statistics(statistics);
    CHECK(hex(bytes) == "02 01 01 02 28 01");
    std::vector<IndexStatistics> back;
    CHECK(decode_statistics(Bytes(bytes), back) && encode_statistics(back) == bytes);
    CHECK(!decode_statistics(Bytes(bytes + '\1'), back));
    for (size_t length = 0; length < bytes.size(); length++)
        CHECK(!decode_statistics(Bytes(bytes.data(), length), back));
}

void check_names() {
    uint64_t table = 0, index = 0;
    CHECK(hex(entry_key("d/t")) == "74 64 2f 74");
    CHECK(hex(numbered_key('a', 300)) == "61 00 00 00 00 00 00 01 2c");
    CHECK(hex(number_key) == "6e");
    CHECK(keyspace_name(300, 12) == "t300.12");
    CHECK(parse_keyspace_name("t300.12", table, index) && table == 300 && index == 12);
    CHECK(parse_keyspace_name("t18446744073709551615.1", table, index) && table == UINT64_MAX);
    for (const char *name : {"", "t", "sql", "t1", "t1.", "t.1", "x1.1", "t1.1x", "t1x.1", "t01.1",
                             "t1.1.1", "t18446744073709551616.1"})
        CHECK(!parse_keyspace_name(name, table, index));
}

void check_random_entry(Random &random) {
    TableEntry entry;
    entry.id = random() >> below(random, 64);
    entry.version = random() >> below(random, 64);
    for (size_t left = 1 + below(random, 5); left > 0; left--)
        entry.indexes.push_back(entry.next_index += below(random, 200));
    entry.next_index++;
    for (size_t version = 1; version < 2 + below(random, 3); version++) {
        StoredLayout layout{version, {}};
        for (size_t left = below(random, 6); left > 0; left--)
            layout.columns.push_back(column_of(entry.next_column++,
                                               static_cast<ColumnKind>(1 + below(random, 4)),
                                               below(random, 2),
                                               static_cast<uint32_t>(below(random, 300))));
        entry.layouts.push_back(layout);
    }
    std::vector<uint64_t> &indexes = entry.indexes;
    for (size_t i = 1; i < indexes.size(); i++)
        if (indexes[i] == indexes[i - 1]) indexes.erase(indexes.begin() + static_cast<long>(i--));
    for (const StoredColumn &column : entry.layouts.back().columns) {
        entry.initial.emplace_back();
        if (below(random, 2)) entry.initial.back() = std::string(column.length, 'x');
    }
    TableEntry back;
    const ExactCopy copy(entry.encode());
    CHECK(back.decode(copy.bytes()) == DecodedEntry::Ok && same(entry, back));
}

} // namespace

void test_dictionary_golden_bytes() {
    const std::string bytes = golden_entry().encode();
    CHECK(hex(bytes) == "01 ac 02 ad 02 04 04 02 01 03 02 "
                        "01 02 01 01 00 04 02 02 01 c8 01 "
                        "02 03 01 01 00 04 03 04 01 08 02 02 01 c8 01 "
                        "03 00 01 02 61 62 00");
    TableEntry back;
    CHECK(back.decode(Bytes(bytes)) == DecodedEntry::Ok && same(back, golden_entry()));
    check_numbers_and_statistics();
    check_names();
}

void test_dictionary(Random &random) {
    check_impossible_entries();
    check_damaged_bytes(random);
    for (int round = 0; round < 2000; round++) check_random_entry(random);
}
