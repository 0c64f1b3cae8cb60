// SPDX-License-Identifier: GPL-2.0-only
//
// Dictionary: which tables exist, with which keyspaces, layouts and numbers.
//
// The keyspace `sql` holds it; `docs/format/sql-dictionary.md` has its rows.
//
// Each index has a keyspace `t<table id>.<index id>`. Invariant: every index that a row names has
// its keyspace. So a table's keyspaces are created before its row, and dropped after it; a crash
// between leaves keyspaces that no row names, and `drop_orphans` removes them at the next start.
//
// The server repeats DROP and RENAME after a crash, so both succeed when they are already done.

#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <alluvium.h>

#include "dictionary_rows.h"
#include "errors.h"
#include "handles.h"

namespace alluvium_sql {

// Returns the name of a table in the dictionary for a path of the server: `./db/t` gives `db/t`.
std::string table_name(const char *path);

class Dictionary {
public:
    explicit Dictionary(alluvium_database *database) : database_(database) {}

    // Opens the dictionary and removes keyspaces that no table names. 0, or an error of the
    // handler.
    int open();

    // HA_ERR_NO_SUCH_TABLE if there is none. An entry that cannot be read is logged.
    int read(const std::string &name, TableEntry &entry);

    // Returns true if there is a table.
    bool has_tables();

    // Returns a number that was never returned before, also over a restart once a row with it is
    // written.
    uint64_t next_number();

    // Creates a keyspace for each index of the entry, with these options, in its order.
    int create_keyspaces(const TableEntry &entry, const std::vector<uint64_t> &indexes,
                         const std::vector<alluvium_keyspace_options> &options);
    int open_keyspace(uint64_t table, uint64_t index, Keyspace &keyspace);
    // Drops keyspaces. A failure is logged: the next start tries again.
    void drop_keyspaces(uint64_t table, const std::vector<uint64_t> &indexes);
    // Returns the commit at which an index was complete: an older read point must not use it. 0 for
    // an index that is older than this opening of the engine.
    uint64_t complete_since(uint64_t table, uint64_t index);

    // The rows of a copy of ALTER TABLE were committed.
    void note_copied(const TableEntry &entry) { note_complete(entry, Complete::AllIndexes); }

    // Writes the row of a table, durably.
    int write(const std::string &name, const TableEntry &entry) {
        return write_all({{name, entry}});
    }
    // Writes the rows of several tables in one commit.
    int write_all(const std::vector<std::pair<std::string, TableEntry>> &entries);
    int rename(const std::string &from, const std::string &to);
    // Returns `error_prepared_writes` if a prepared transaction writes the table. It has locks of
    // rows, but after a restart or a lost connection no metadata lock of the server.
    int check_prepared(const TableEntry &entry);
    // Also drops a table whose entry is damaged, but not one that a newer version wrote.
    int drop(const std::string &name);

    // error_mark_damaged, with a mark of 0, if the mark cannot be read.
    int read_mark(uint64_t table, uint64_t &mark);
    int write_mark(uint64_t table, uint64_t mark);
    int read_statistics(uint64_t table, std::vector<IndexStatistics> &statistics);
    int write_statistics(uint64_t table, const std::vector<IndexStatistics> &statistics);

    // Calls `visit` with the name and entry of each table that can be read. 0, or an error of the
    // handler.
    template <typename Visit> int for_each(Visit visit);

private:
    int get(const std::string &key, Value &value);
    int put(const std::string &key, const std::string &value);
    int write_batch(const alluvium_batch *batch);
    int put_number(alluvium_writer writer);
    int load_next_number();
    int drop_orphans();
    // Logs that the entry of a table cannot be read, and returns the handler's error.
    int entry_error(const std::string &name, DecodedEntry decoded);
    int scan(const std::string &prefix, std::vector<std::pair<std::string, std::string>> &rows);
    // Drops a keyspace if it is there.
    alluvium_code drop_keyspace(const std::string &name, ErrorPlace &error);
    enum class Complete { NewIndexes, AllIndexes };
    void note_complete(const TableEntry &entry, Complete complete);

    alluvium_database *const database_;
    Keyspace keyspace_;
    // Guards `next_` and `complete_since_`.
    std::mutex mutex_;
    uint64_t next_ = 1;
    // For each index that was made since the engine was opened, by its keyspace.
    std::map<std::string, uint64_t> complete_since_;
};

template <typename Visit> int Dictionary::for_each(Visit visit) {
    std::vector<std::pair<std::string, std::string>> rows;
    if (int error = scan("t", rows)) return error;
    for (const auto &[key, value] : rows) {
        TableEntry entry;
        if (entry.decode(Bytes(value)) == DecodedEntry::Ok) visit(key.substr(1), entry);
    }
    return 0;
}

} // namespace alluvium_sql
