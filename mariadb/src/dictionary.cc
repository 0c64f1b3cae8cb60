// SPDX-License-Identifier: GPL-2.0-only

#include "dictionary.h"

#include <algorithm>
#include <set>

#include "errors.h"

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

// `t<digits>.<digits>`.
bool is_index_keyspace(const std::string &name) {
    size_t dot = name.find('.');
    if (name.size() < 4 || name[0] != 't' || dot == std::string::npos || dot < 2) return false;
    auto digits = [&](size_t from, size_t to) {
        return from < to && std::all_of(name.begin() + from, name.begin() + to,
                                        [](char c) { return c >= '0' && c <= '9'; });
    };
    return digits(1, dot) && digits(dot + 1, name.size());
}

std::string numbered(char kind, uint64_t table) {
    std::string key(1, kind);
    append_big(key, 8, table);
    return key;
}

const std::string number_key = "n";

} // namespace

std::string table_name(const char *path) {
    return path[0] == '.' && path[1] == '/' ? path + 2 : path;
}

std::string keyspace_name(uint64_t table, uint64_t index) {
    return "t" + std::to_string(table) + "." + std::to_string(index);
}

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

bool TableEntry::decode(Bytes bytes) {
    uint8_t format = 0;
    uint64_t count = 0;
    if (!bytes.take_byte(format) || format != entry_format) return false;
    if (!bytes.take_varint(id) || !bytes.take_varint(version) || !bytes.take_varint(next_index) ||
        !take_u32(bytes, next_column) || !take_count(bytes, count))
        return false;
    indexes.resize(count);
    for (uint64_t &index : indexes)
        if (!bytes.take_varint(index)) return false;
    if (!take_count(bytes, count) || count == 0) return false;
    layouts.resize(count);
    for (StoredLayout &layout : layouts)
        if (!take_layout(bytes, layout)) return false;
    if (!take_count(bytes, count) || count != layouts.back().columns.size()) return false;
    initial.resize(count);
    for (auto &value : initial) {
        uint8_t has_value = 0;
        if (!bytes.take_byte(has_value) || has_value > 1) return false;
        if (has_value == 0) continue;
        value.emplace();
        if (!take_string(bytes, *value)) return false;
    }
    return bytes.empty();
}

int Dictionary::get(const std::string &key, Value &value) {
    ErrorPlace error;
    return handler_error(alluvium_get(alluvium_keyspace_reader(keyspace_.get()), key.data(),
                                      key.size(), into(value), error.out()),
                         error, nullptr);
}

int Dictionary::put(const std::string &key, const std::string &value) {
    ErrorPlace error;
    return handler_error(alluvium_put(alluvium_keyspace_writer(keyspace_.get()), key.data(),
                                      key.size(), value.data(), value.size(), error.out()),
                         error, nullptr);
}

int Dictionary::write_batch(const alluvium_batch *batch) {
    alluvium_write_options options = {};
    options.struct_size = sizeof options;
    options.durability = ALLUVIUM_DURABILITY_SYNC;
    ErrorPlace error;
    return handler_error(alluvium_write(database_, batch, &options, error.out()), error, nullptr);
}

int Dictionary::scan(const std::string &prefix,
                     std::vector<std::pair<std::string, std::string>> &rows) {
    alluvium_cursor_options options = {};
    options.struct_size = sizeof options;
    options.prefix = prefix.data();
    options.prefix_size = prefix.size();
    Cursor cursor;
    ErrorPlace opening;
    alluvium_code code = alluvium_cursor_open(alluvium_keyspace_reader(keyspace_.get()), &options,
                                              into(cursor), opening.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, opening, nullptr);
    bool found = false;
    ErrorPlace seeking;
    code = alluvium_cursor_seek_first(cursor.get(), &found, seeking.out());
    while (code == ALLUVIUM_CODE_OK && found) {
        Bytes key = key_of(cursor), value = value_of(cursor);
        rows.emplace_back(std::string(reinterpret_cast<const char *>(key.at), key.length()),
                          std::string(reinterpret_cast<const char *>(value.at), value.length()));
        code = alluvium_cursor_next(cursor.get(), &found, seeking.out());
    }
    return handler_error(code, seeking, nullptr);
}

int Dictionary::open() {
    const std::string name = "sql";
    ErrorPlace error;
    alluvium_code code = alluvium_keyspace_open(database_, name.data(), name.size(), nullptr,
                                                into(keyspace_), error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    if (int failed = load_next_number()) return failed;
    return drop_orphans();
}

int Dictionary::load_next_number() {
    Value value;
    if (int error = get(number_key, value)) return error;
    if (!value) return 0;
    Bytes bytes = bytes_of(value);
    return bytes.take_varint(next_) && bytes.empty() ? 0 : HA_ERR_CRASHED;
}

int Dictionary::drop_orphans() {
    std::set<std::string> named;
    int failed = for_each([&](const std::string &, const TableEntry &entry) {
        // Two definitions at once may have written their numbers in the other order.
        next_ = std::max({next_, entry.id + 1, entry.version + 1});
        for (uint64_t index : entry.indexes) named.insert(keyspace_name(entry.id, index));
    });
    if (failed) return failed;
    List names;
    ErrorPlace error;
    alluvium_code code = alluvium_keyspace_names(database_, into(names), error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    for (size_t i = 0; i < alluvium_list_count(names.get()); i++) {
        size_t size = 0;
        const uint8_t *data = alluvium_list_item(names.get(), i, &size);
        std::string name(reinterpret_cast<const char *>(data), size);
        if (!is_index_keyspace(name) || named.count(name)) continue;
        size_t dot = name.find('.');
        drop_keyspaces(std::stoull(name.substr(1, dot - 1)), {std::stoull(name.substr(dot + 1))});
    }
    return 0;
}

int Dictionary::read(const std::string &name, TableEntry &entry) {
    Value value;
    if (int error = get("t" + name, value)) return error;
    if (!value) return HA_ERR_NO_SUCH_TABLE;
    if (entry.decode(bytes_of(value))) return 0;
    sql_print_error("ALLUVIUM: the dictionary's row of table '%s' is damaged", name.c_str());
    return HA_ERR_CRASHED;
}

uint64_t Dictionary::next_number() {
    std::lock_guard<std::mutex> guard(mutex_);
    return next_++;
}

int Dictionary::put_number(alluvium_writer writer) {
    std::string value;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        append_varint(value, next_);
    }
    ErrorPlace error;
    return handler_error(alluvium_put(writer, number_key.data(), number_key.size(), value.data(),
                                      value.size(), error.out()),
                         error, nullptr);
}

int Dictionary::create_keyspaces(const TableEntry &entry, const std::vector<uint64_t> &indexes,
                                 const std::vector<alluvium_keyspace_options> &options) {
    for (size_t i = 0; i < indexes.size(); i++) {
        std::string name = keyspace_name(entry.id, indexes[i]);
        Keyspace keyspace;
        ErrorPlace error;
        int failed = handler_error(alluvium_keyspace_open(database_, name.data(), name.size(),
                                                          &options[i], into(keyspace), error.out()),
                                   error, nullptr);
        if (!failed) continue;
        drop_keyspaces(entry.id, std::vector<uint64_t>(indexes.begin(), indexes.begin() + i));
        return failed;
    }
    return 0;
}

int Dictionary::open_keyspace(uint64_t table, uint64_t index, Keyspace &keyspace) {
    std::string name = keyspace_name(table, index);
    ErrorPlace error;
    int failed = handler_error(alluvium_keyspace_existing(database_, name.data(), name.size(),
                                                          into(keyspace), error.out()),
                               error, nullptr);
    if (failed) return failed;
    if (keyspace) return 0;
    sql_print_error("ALLUVIUM: keyspace '%s' is missing, although the dictionary names it",
                    name.c_str());
    return HA_ERR_CRASHED;
}

void Dictionary::drop_keyspaces(uint64_t table, const std::vector<uint64_t> &indexes) {
    for (uint64_t index : indexes) {
        std::string name = keyspace_name(table, index);
        Keyspace keyspace;
        ErrorPlace error;
        alluvium_code code = alluvium_keyspace_existing(database_, name.data(), name.size(),
                                                        into(keyspace), error.out());
        if (code == ALLUVIUM_CODE_OK && keyspace)
            code = alluvium_keyspace_drop(database_, keyspace.get(), error.out());
        if (code != ALLUVIUM_CODE_OK) log_failure("drop an unused keyspace", error);
    }
}

int Dictionary::write_all(const std::vector<std::pair<std::string, TableEntry>> &entries) {
    Batch batch(alluvium_batch_new());
    alluvium_writer writer = alluvium_batch_writer(batch.get(), keyspace_.get());
    if (int error = put_number(writer)) return error;
    for (const auto &[name, entry] : entries) {
        std::string key = "t" + name, value = entry.encode();
        ErrorPlace error;
        alluvium_code code = alluvium_put(writer, key.data(), key.size(), value.data(),
                                          value.size(), error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    }
    return write_batch(batch.get());
}

int Dictionary::rename(const std::string &from, const std::string &to) {
    TableEntry entry;
    int failed = read(from, entry);
    if (failed == HA_ERR_NO_SUCH_TABLE) {
        // Repeated after a crash: done if the new name exists.
        TableEntry renamed;
        return read(to, renamed);
    }
    if (failed) return failed;
    Batch batch(alluvium_batch_new());
    alluvium_writer writer = alluvium_batch_writer(batch.get(), keyspace_.get());
    std::string old_key = "t" + from, new_key = "t" + to, value = entry.encode();
    ErrorPlace error;
    alluvium_code code = alluvium_delete(writer, old_key.data(), old_key.size(), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_put(writer, new_key.data(), new_key.size(), value.data(), value.size(),
                            error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    return write_batch(batch.get());
}

int Dictionary::drop(const std::string &name) {
    TableEntry entry;
    if (int error = read(name, entry)) return error;
    Batch batch(alluvium_batch_new());
    alluvium_writer writer = alluvium_batch_writer(batch.get(), keyspace_.get());
    for (const std::string &key : {"t" + name, numbered('a', entry.id), numbered('s', entry.id)}) {
        ErrorPlace error;
        alluvium_code code = alluvium_delete(writer, key.data(), key.size(), error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    }
    if (int error = write_batch(batch.get())) return error;
    drop_keyspaces(entry.id, entry.indexes);
    return 0;
}

int Dictionary::read_mark(uint64_t table, uint64_t &mark) {
    Value value;
    mark = 0;
    if (int error = get(numbered('a', table), value)) return error;
    if (!value) return 0;
    Bytes bytes = bytes_of(value);
    return bytes.take_varint(mark) && bytes.empty() ? 0 : HA_ERR_CRASHED;
}

int Dictionary::write_mark(uint64_t table, uint64_t mark) {
    std::string value;
    append_varint(value, mark);
    return put(numbered('a', table), value);
}

int Dictionary::read_statistics(uint64_t table, std::vector<IndexStatistics> &statistics) {
    Value value;
    statistics.clear();
    if (int error = get(numbered('s', table), value)) return error;
    if (!value) return 0;
    Bytes bytes = bytes_of(value);
    uint64_t indexes = 0;
    if (!take_count(bytes, indexes)) return HA_ERR_CRASHED;
    statistics.resize(indexes);
    for (IndexStatistics &index : statistics) {
        uint64_t parts = 0;
        if (!take_count(bytes, parts)) return HA_ERR_CRASHED;
        index.rows_per_value.resize(parts);
        for (uint64_t &rows : index.rows_per_value)
            if (!bytes.take_varint(rows)) return HA_ERR_CRASHED;
    }
    return bytes.empty() ? 0 : HA_ERR_CRASHED;
}

int Dictionary::write_statistics(uint64_t table, const std::vector<IndexStatistics> &statistics) {
    std::string value;
    append_varint(value, statistics.size());
    for (const IndexStatistics &index : statistics) {
        append_varint(value, index.rows_per_value.size());
        for (uint64_t rows : index.rows_per_value) append_varint(value, rows);
    }
    return put(numbered('s', table), value);
}

} // namespace alluvium_sql
