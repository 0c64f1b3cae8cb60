// SPDX-License-Identifier: GPL-2.0-only

#include "dictionary.h"

#include <algorithm>
#include <set>

#include "errors.h"

namespace alluvium_sql {

std::string table_name(const char *path) {
    return path[0] == '.' && path[1] == '/' ? path + 2 : path;
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
    if (value && !decode_number(bytes_of(value), next_)) {
        // The entries and keyspaces name all numbers that are in use.
        sql_print_warning("ALLUVIUM: the dictionary's next number is damaged and is computed anew");
        next_ = 1;
    }
    return 0;
}

// Drops the keyspaces that no entry names, and raises the next number above all that are in use. An
// entry that cannot be read may name any keyspace, so then none is dropped: the other tables stay
// usable.
int Dictionary::drop_orphans() {
    std::set<std::string> named;
    std::vector<std::pair<std::string, std::string>> rows;
    bool all_readable = true;
    if (int error = scan("t", rows)) return error;
    for (const auto &[key, value] : rows) {
        TableEntry entry;
        DecodedEntry decoded = entry.decode(Bytes(value));
        if (decoded != DecodedEntry::Ok) {
            (void)entry_error(key.substr(1), decoded);
            all_readable = false;
            continue;
        }
        // Two definitions at once may have written their numbers in the other order.
        next_ = std::max({next_, entry.id + 1, entry.version + 1});
        for (uint64_t index : entry.indexes) named.insert(keyspace_name(entry.id, index));
    }
    List names;
    ErrorPlace error;
    alluvium_code code = alluvium_keyspace_names(database_, into(names), error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    for (size_t i = 0; i < alluvium_list_count(names.get()); i++) {
        size_t size = 0;
        const uint8_t *data = alluvium_list_item(names.get(), i, &size);
        std::string name(reinterpret_cast<const char *>(data), size);
        uint64_t table = 0, index = 0;
        if (!parse_keyspace_name(name, table, index)) continue;
        next_ = std::max(next_, table + 1);
        if (all_readable && !named.count(name)) drop_keyspaces(table, {index});
    }
    return 0;
}

int Dictionary::entry_error(const std::string &name, DecodedEntry decoded) {
    int error = decoded == DecodedEntry::Newer ? error_entry_newer : error_entry_damaged;
    sql_print_error("ALLUVIUM: table '%s': %s", name.c_str(), own_error_text(error).c_str());
    return error;
}

int Dictionary::read(const std::string &name, TableEntry &entry) {
    Value value;
    if (int error = get(entry_key(name), value)) return error;
    if (!value) return HA_ERR_NO_SUCH_TABLE;
    DecodedEntry decoded = entry.decode(bytes_of(value));
    return decoded == DecodedEntry::Ok ? 0 : entry_error(name, decoded);
}

bool Dictionary::has_tables() {
    std::vector<std::pair<std::string, std::string>> rows;
    return !scan("t", rows) && !rows.empty();
}

uint64_t Dictionary::next_number() {
    std::lock_guard<std::mutex> guard(mutex_);
    return next_++;
}

int Dictionary::put_number(alluvium_writer writer) {
    std::string value;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        value = encode_number(next_);
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
        ErrorPlace drop_error, error;
        // A failed statement may have left one with rows.
        int failed = handler_error(drop_keyspace(name, drop_error), drop_error, nullptr);
        if (!failed)
            failed = handler_error(alluvium_keyspace_open(database_, name.data(), name.size(),
                                                          &options[i], into(keyspace), error.out()),
                                   error, nullptr);
        if (failed) {
            drop_keyspaces(entry.id, std::vector<uint64_t>(indexes.begin(), indexes.begin() + i));
            return failed;
        }
        std::lock_guard<std::mutex> guard(mutex_);
        complete_since_[name] = UINT64_MAX;
    }
    return 0;
}

uint64_t Dictionary::complete_since(uint64_t table, uint64_t index) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = complete_since_.find(keyspace_name(table, index));
    return found == complete_since_.end() ? 0 : found->second;
}

// Called after the write of the entry or the commit of its rows, before any other connection can
// open the table.
void Dictionary::note_complete(const TableEntry &entry, Complete complete) {
    uint64_t now = UINT64_MAX;
    ErrorPlace error;
    // After an error no older read point may use the table.
    if (alluvium_visible_seqno(database_, &now, error.out()) != ALLUVIUM_CODE_OK)
        log_failure("read the number of the newest commit", error);
    std::lock_guard<std::mutex> guard(mutex_);
    for (uint64_t index : entry.indexes) {
        auto found = complete_since_.find(keyspace_name(entry.id, index));
        if (found == complete_since_.end()) continue;
        if (complete == Complete::AllIndexes || found->second == UINT64_MAX) found->second = now;
    }
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
        ErrorPlace error;
        if (drop_keyspace(keyspace_name(table, index), error) != ALLUVIUM_CODE_OK)
            log_failure("drop an unused keyspace", error);
    }
}

alluvium_code Dictionary::drop_keyspace(const std::string &name, ErrorPlace &error) {
    Keyspace keyspace;
    alluvium_code code = alluvium_keyspace_existing(database_, name.data(), name.size(),
                                                    into(keyspace), error.out());
    if (code == ALLUVIUM_CODE_OK && keyspace)
        code = alluvium_keyspace_drop(database_, keyspace.get(), error.out());
    std::lock_guard<std::mutex> guard(mutex_);
    complete_since_.erase(name);
    return code;
}

int Dictionary::write_all(const std::vector<std::pair<std::string, TableEntry>> &entries) {
    Batch batch(alluvium_batch_new());
    alluvium_writer writer = alluvium_batch_writer(batch.get(), keyspace_.get());
    if (int error = put_number(writer)) return error;
    for (const auto &[name, entry] : entries) {
        std::string key = entry_key(name), value = entry.encode();
        ErrorPlace error;
        alluvium_code code = alluvium_put(writer, key.data(), key.size(), value.data(),
                                          value.size(), error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    }
    if (int error = write_batch(batch.get())) return error;
    for (const auto &named : entries) note_complete(named.second, Complete::NewIndexes);
    return 0;
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
    std::string old_key = entry_key(from), new_key = entry_key(to), value = entry.encode();
    ErrorPlace error;
    alluvium_code code = alluvium_delete(writer, old_key.data(), old_key.size(), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_put(writer, new_key.data(), new_key.size(), value.data(), value.size(),
                            error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    return write_batch(batch.get());
}

int Dictionary::check_prepared(const TableEntry &entry) {
    for (uint64_t index : entry.indexes) {
        std::string name = keyspace_name(entry.id, index);
        Keyspace keyspace;
        bool written = false;
        ErrorPlace error;
        alluvium_code code = alluvium_keyspace_existing(database_, name.data(), name.size(),
                                                        into(keyspace), error.out());
        if (code == ALLUVIUM_CODE_OK && keyspace)
            code = alluvium_keyspace_has_prepared_writer(database_, keyspace.get(), &written,
                                                         error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
        if (written) return error_prepared_writes;
    }
    return 0;
}

int Dictionary::drop(const std::string &name) {
    TableEntry entry;
    int failed = read(name, entry);
    if (failed && failed != error_entry_damaged) return failed;
    if (!failed)
        if (int error = check_prepared(entry)) return error;
    std::vector<std::string> keys = {entry_key(name)};
    // The keyspaces of a damaged entry have no name here: the next start drops them.
    if (!failed) {
        keys.push_back(numbered_key('a', entry.id));
        keys.push_back(numbered_key('s', entry.id));
    }
    Batch batch(alluvium_batch_new());
    alluvium_writer writer = alluvium_batch_writer(batch.get(), keyspace_.get());
    for (const std::string &key : keys) {
        ErrorPlace error;
        alluvium_code code = alluvium_delete(writer, key.data(), key.size(), error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    }
    if (int error = write_batch(batch.get())) return error;
    if (!failed) drop_keyspaces(entry.id, entry.indexes);
    return 0;
}

int Dictionary::read_mark(uint64_t table, uint64_t &mark) {
    Value value;
    mark = 0;
    if (int error = get(numbered_key('a', table), value)) return error;
    if (!value || decode_number(bytes_of(value), mark)) return 0;
    mark = 0;
    return error_mark_damaged;
}

int Dictionary::write_mark(uint64_t table, uint64_t mark) {
    return put(numbered_key('a', table), encode_number(mark));
}

int Dictionary::read_statistics(uint64_t table, std::vector<IndexStatistics> &statistics) {
    Value value;
    statistics.clear();
    if (int error = get(numbered_key('s', table), value)) return error;
    // The next look at statistics that are missing samples the table.
    if (value && !decode_statistics(bytes_of(value), statistics)) statistics.clear();
    return 0;
}

int Dictionary::write_statistics(uint64_t table, const std::vector<IndexStatistics> &statistics) {
    return put(numbered_key('s', table), encode_statistics(statistics));
}

} // namespace alluvium_sql
