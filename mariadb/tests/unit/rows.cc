// SPDX-License-Identifier: GPL-2.0-only
//
// Rows: golden bytes equal to `docs/format/sql-row.md`, then properties of random layouts.

#include <algorithm>
#include <deque>

#include "check.h"
#include "row_codec.h"

using namespace alluvium_sql;

namespace {

// A value as SQL sees it.
struct Cell {
    bool null = false;
    std::string bytes;

    bool operator==(const Cell &other) const {
        return null == other.null && (null || bytes == other.bytes);
    }
};

// Layout with places in a record; the null bits come first.
struct Table {
    RowLayout layout;
    size_t record_bytes = 0;
};

constexpr size_t null_area = 8;

size_t record_bytes(const RowColumn &column) {
    switch (column.kind) {
    case ColumnKind::Variable: return column.length_bytes + column.length;
    case ColumnKind::Blob: return column.length_bytes + sizeof(char *);
    default: return column.length;
    }
}

void place(Table &table) {
    table.record_bytes = null_area;
    unsigned bit = 0;
    for (RowColumn &column : table.layout.columns) {
        column.offset = static_cast<uint32_t>(table.record_bytes);
        column.null_offset = bit / 8;
        column.null_mask = static_cast<uint8_t>(1 << bit % 8);
        bit += column.nullable;
        table.record_bytes += record_bytes(column);
    }
}

std::string record_of(const Table &table, const std::vector<Cell> &cells) {
    std::string record(table.record_bytes, '\x5a');
    for (size_t i = 0; i < cells.size(); i++) {
        const RowColumn &column = table.layout.columns[i];
        const Cell &cell = cells[i];
        uint8_t &nulls = bytes_of(record)[column.null_offset];
        if (column.nullable) nulls &= static_cast<uint8_t>(~column.null_mask);
        if (cell.null) nulls |= column.null_mask;
        if (cell.null) continue;
        uint8_t *at = bytes_of(record) + column.offset;
        store_little(at, column.length_bytes, cell.bytes.size());
        at += column.length_bytes;
        const char *data = cell.bytes.data();
        if (column.kind == ColumnKind::Blob) {
            memcpy(at, &data, sizeof data);
            continue;
        }
        memcpy(at, data, cell.bytes.size());
        if (column.kind != ColumnKind::Padded) continue;
        for (size_t k = cell.bytes.size(); k < column.length; k++) {
            at[k] = column.pad[k % column.pad_bytes];
        }
    }
    return record;
}

std::string trimmed(const RowColumn &column, std::string text) {
    const std::string space(reinterpret_cast<const char *>(column.pad), column.pad_bytes);
    while (text.size() >= space.size() &&
           text.compare(text.size() - space.size(), space.size(), space) == 0) {
        text.resize(text.size() - space.size());
    }
    return text;
}

Cell cell_of(const RowColumn &column, std::string &record) {
    const uint8_t nulls = bytes_of(record)[column.null_offset];
    if (column.nullable && nulls & column.null_mask) return {true, ""};
    const uint8_t *at = bytes_of(record) + column.offset;
    size_t length = column.length_bytes ? load_little(at, column.length_bytes) : column.length;
    at += column.length_bytes;
    if (column.kind == ColumnKind::Blob) memcpy(&at, at, sizeof at);
    std::string text(reinterpret_cast<const char *>(at), length);
    return {false, column.kind == ColumnKind::Padded ? trimmed(column, text) : text};
}

RowColumn column_of(uint32_t id, ColumnKind kind, uint32_t length, bool nullable) {
    RowColumn column;
    column.id = id;
    column.kind = kind;
    column.length = kind == ColumnKind::Blob ? 0 : length;
    column.nullable = nullable;
    if (kind == ColumnKind::Variable) column.length_bytes = length > 255 ? 2 : 1;
    if (kind == ColumnKind::Blob) column.length_bytes = 3;
    return column;
}

RowColumn random_column(Random &random, uint32_t id) {
    const auto kind = static_cast<ColumnKind>(1 + below(random, 4));
    const bool is_fixed = kind == ColumnKind::Fixed;
    const size_t length = is_fixed ? 1 + below(random, 9) : 4 + 4 * below(random, 90);
    RowColumn column = column_of(id, kind, static_cast<uint32_t>(length), below(random, 2));
    if (kind == ColumnKind::Padded && below(random, 3) == 0) {
        column.pad[0] = 0;
        column.pad[1] = 0x20;
        column.pad_bytes = 2;
    }
    return column;
}

Cell random_cell(Random &random, const RowColumn &column) {
    if (column.nullable && below(random, 3) == 0) return {true, ""};
    const size_t most = column.kind == ColumnKind::Blob ? 300 : column.length;
    std::string bytes(column.kind == ColumnKind::Fixed ? most : below(random, most + 1), '\0');
    // Texts of characters of two bytes have whole characters.
    if (column.kind == ColumnKind::Padded) bytes.resize(bytes.size() & ~size_t{1});
    for (char &byte : bytes) byte = static_cast<char>(below(random, 4) ? ' ' : random());
    return {false, column.kind == ColumnKind::Padded ? trimmed(column, bytes) : bytes};
}

Table random_table(Random &random, uint64_t version) {
    Table table;
    table.layout.version = version;
    for (uint32_t id = 1, end = 1 + static_cast<uint32_t>(below(random, 14)); id < end; id++) {
        table.layout.columns.push_back(random_column(random, id));
    }
    place(table);
    return table;
}

std::vector<Cell> random_cells(Random &random, const Table &table) {
    std::vector<Cell> cells;
    for (const RowColumn &column : table.layout.columns) {
        cells.push_back(random_cell(random, column));
    }
    return cells;
}

Decoded decode(const RowCodec &codec, const ExactCopy &copy, std::string &record,
               const WantedColumns *wanted = nullptr) {
    return codec.decode(copy.data(), copy.size(), bytes_of(record), wanted);
}

// Drops, adds and moves columns, and lengthens some of variable size.
Table changed_table(Random &random, const Table &old, uint32_t &next_id) {
    Table table = old;
    table.layout.version++;
    auto &columns = table.layout.columns;
    if (!columns.empty() && below(random, 2)) {
        columns.erase(columns.begin() + static_cast<long>(below(random, columns.size())));
    }
    for (RowColumn &column : columns) {
        if (column.kind != ColumnKind::Variable || below(random, 3)) continue;
        column.length += 300;
        column.length_bytes = 2;
    }
    for (size_t left = below(random, 3); left > 0; left--) {
        RowColumn column = random_column(random, next_id++);
        const Cell initial = random_cell(random, column);
        if (!initial.null) column.initial = initial.bytes;
        const size_t place = below(random, columns.size() + 1);
        columns.insert(columns.begin() + static_cast<long>(place), column);
    }
    place(table);
    return table;
}

Cell expected_cell(const RowColumn &column, const Table &old, const std::vector<Cell> &cells) {
    for (size_t i = 0; i < cells.size(); i++) {
        if (old.layout.columns[i].id == column.id) return cells[i];
    }
    return column.initial ? Cell{false, *column.initial} : Cell{true, ""};
}

// Values of all layouts of a table are read by the newest one.
void check_changes(Random &random) {
    std::deque<Table> tables{random_table(random, below(random, 200))};
    uint32_t next_id = 100;
    while (tables.size() < 5) tables.push_back(changed_table(random, tables.back(), next_id));
    const Table &newest = tables.back();
    std::vector<StoredLayout> old;
    for (const Table &table : tables) old.push_back(table.layout.stored());
    const RowCodec codec(newest.layout, old);
    CHECK(codec.maps_all());
    for (const Table &table : tables) {
        const std::vector<Cell> cells = random_cells(random, table);
        std::string value;
        const std::string written = record_of(table, cells);
        RowCodec(table.layout, {}).encode(bytes_of(written), value);
        const ExactCopy copy(value);
        std::string record(newest.record_bytes, '\xa5');
        CHECK(decode(codec, copy, record) == Decoded::Ok);
        for (const RowColumn &column : newest.layout.columns) {
            CHECK(cell_of(column, record) == expected_cell(column, table, cells));
        }
    }
}

void check_round_trip(Random &random) {
    const Table table = random_table(random, below(random, 300));
    const RowCodec codec(table.layout, {});
    const std::vector<Cell> cells = random_cells(random, table);
    const std::string record = record_of(table, cells);
    std::string value;
    codec.encode(bytes_of(record), value);
    const ExactCopy copy(value);
    std::string back(table.record_bytes, '\xa5');
    CHECK(decode(codec, copy, back) == Decoded::Ok);
    size_t blobs = 0;
    for (size_t i = 0; i < cells.size(); i++) {
        CHECK(cell_of(table.layout.columns[i], back) == cells[i]);
        if (table.layout.columns[i].kind == ColumnKind::Blob) blobs += cells[i].bytes.size();
    }
    CHECK(value.size() <= codec.bytes_max_without_blobs() + blobs);
    // Columns that are not wanted keep their bytes.
    const WantedColumns none(cells.size(), false);
    std::string untouched(table.record_bytes, '\xa5');
    CHECK(decode(codec, copy, untouched, &none) == Decoded::Ok);
    CHECK(untouched == std::string(table.record_bytes, '\xa5'));
}

// Every cut is an error; other damage is read without undefined behavior.
void check_damage(Random &random) {
    const Table table = random_table(random, 3);
    const RowCodec codec(table.layout, {});
    const std::vector<Cell> cells = random_cells(random, table);
    const std::string record = record_of(table, cells);
    std::string value, back(table.record_bytes, '\0');
    codec.encode(bytes_of(record), value);
    for (size_t cut = 0; cut < value.size(); cut++) {
        CHECK(decode(codec, ExactCopy(value.substr(0, cut)), back) == Decoded::Damaged);
    }
    CHECK(decode(codec, ExactCopy(value + "x"), back) == Decoded::Damaged);
    for (int i = 0; i < 20; i++) {
        std::string changed = value;
        changed[below(random, changed.size())] = static_cast<char>(random());
        decode(codec, ExactCopy(changed), back);
    }
    value[0] = 4;
    CHECK(decode(codec, ExactCopy(value), back) == Decoded::UnknownLayout);
}

void check_refused_mappings() {
    const auto maps = [](const RowColumn &from, const RowColumn &to) {
        return RowMapping::make(RowLayout{1, {from}}.stored(), RowLayout{2, {to}}).has_value();
    };
    const RowColumn fixed = column_of(1, ColumnKind::Fixed, 4, true);
    CHECK(maps(fixed, fixed));
    CHECK(!maps(fixed, column_of(1, ColumnKind::Fixed, 8, true)));
    CHECK(!maps(fixed, column_of(1, ColumnKind::Variable, 8, true)));
    CHECK(maps(fixed, column_of(2, ColumnKind::Fixed, 4, true)));
    CHECK(!maps(fixed, column_of(2, ColumnKind::Fixed, 4, false)));
    RowColumn short_initial = column_of(2, ColumnKind::Fixed, 4, false);
    short_initial.initial = "abc";
    CHECK(!maps(fixed, short_initial));
}

// A value that was written with one form of a column and does not fit its current form is damage.
void check_values_that_do_not_fit() {
    const auto reads = [](const RowColumn &from, const RowColumn &to, const Cell &cell) {
        Table old, current;
        old.layout = RowLayout{1, {from}};
        current.layout = RowLayout{2, {to}};
        place(old);
        place(current);
        const std::vector<Cell> cells{cell};
        const std::string record = record_of(old, cells);
        std::string value, back(current.record_bytes, '\0');
        RowCodec(old.layout, {}).encode(bytes_of(record), value);
        const ExactCopy copy(value);
        return decode(RowCodec(current.layout, {old.layout.stored()}), copy, back);
    };
    const Cell ten{false, std::string(10, 'x')}, many{false, std::string(300, 'x')};
    for (ColumnKind kind : {ColumnKind::Variable, ColumnKind::Padded}) {
        const RowColumn from = column_of(1, kind, 20, false);
        CHECK(reads(from, column_of(1, kind, 10, false), ten) == Decoded::Ok);
        CHECK(reads(from, column_of(1, kind, 9, false), ten) == Decoded::Damaged);
    }
    const RowColumn blob = column_of(1, ColumnKind::Blob, 0, false);
    RowColumn tiny = blob;
    tiny.length_bytes = 1;
    CHECK(reads(blob, tiny, ten) == Decoded::Ok && reads(blob, tiny, many) == Decoded::Damaged);
    const RowColumn nullable = column_of(1, ColumnKind::Variable, 20, true);
    const RowColumn required = column_of(1, ColumnKind::Variable, 20, false);
    CHECK(reads(nullable, required, ten) == Decoded::Ok);
    CHECK(reads(nullable, required, {true, ""}) == Decoded::Damaged);
}

} // namespace

void test_rows(Random &random) {
    check_refused_mappings();
    check_values_that_do_not_fit();
    for (int i = 0; i < 2000; i++) {
        check_round_trip(random);
        check_changes(random);
        if (i % 10 == 0) check_damage(random);
    }
}

void test_row_golden_bytes() {
    Table table;
    table.layout.version = 2;
    table.layout.columns = {
        column_of(1, ColumnKind::Variable, 20, true), column_of(2, ColumnKind::Fixed, 4, true),
        column_of(3, ColumnKind::Padded, 4, false),   column_of(4, ColumnKind::Blob, 0, true),
        column_of(5, ColumnKind::Fixed, 2, false),
    };
    place(table);
    const RowCodec codec(table.layout, {});
    const auto golden = [&](const std::vector<Cell> &cells) {
        const std::string record = record_of(table, cells);
        std::string value;
        codec.encode(bytes_of(record), value);
        return hex(value);
    };
    const Cell null{true, ""};
    const Cell integer{false, "\x05\x06\x07\x08"}, small_integer{false, "\x01\x02"};
    CHECK(golden({{false, "ab"}, integer, {false, "x"}, {false, "yz"}, small_integer}) ==
          "02 00 05 06 07 08 01 02 02 61 62 01 78 02 79 7a");
    CHECK(golden({null, null, {false, ""}, null, small_integer}) == "02 07 01 02 00");
}
