// SPDX-License-Identifier: GPL-2.0-only
//
// CHECK TABLE: every row is decoded, every entry of an index leads to its row, and every row has
// its entries. The check sees one snapshot of the table.

#include "engine.h"
#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

namespace {

// Failures that are named; a damaged table may have one for each row.
constexpr size_t named_failures_max = 10;

class TableCheck {
public:
    TableCheck(THD *thd, TABLE &table, const TableShare &share)
        : thd_(thd), table_(table), share_(share) {}

    // Returns a result of the server for administrative statements.
    int run();

private:
    using Visit = int (TableCheck::*)(uint number, Bytes key, Bytes value);

    int open_snapshot();
    int scan(uint number, Visit visit, uint64_t &count);
    int check_row(uint number, Bytes key, Bytes value);
    int check_entry(uint number, Bytes key, Bytes value);
    int check_index(uint number);
    bool read_row(const std::string &key);
    void fail(const char *format, const char *name, uint64_t number);

    THD *const thd_;
    TABLE &table_;
    const TableShare &share_;
    Owned<alluvium_snapshot> snapshot_;
    uint64_t rows_ = 0;
    size_t failures_ = 0;
    std::string row_key_, entry_key_, entry_value_;
    Value row_;
};

void TableCheck::fail(const char *format, const char *name, uint64_t number) {
    if (++failures_ > named_failures_max) return;
    char text[256];
    snprintf(text, sizeof text, format, name, static_cast<unsigned long long>(number));
    push_warning_printf(thd_, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "%s", text);
    sql_print_error("ALLUVIUM: CHECK TABLE %s: %s", share_.name().c_str(), text);
}

int TableCheck::open_snapshot() {
    ErrorPlace error;
    return handler_error(alluvium_snapshot_open(engine.database, into(snapshot_), error.out()),
                         error, thd_);
}

int TableCheck::scan(uint number, Visit visit, uint64_t &count) {
    Cursor cursor;
    ErrorPlace error;
    bool found = false;
    alluvium_reader reader = alluvium_snapshot_reader(snapshot_.get(), share_.keyspace(number));
    alluvium_code code = alluvium_cursor_open(reader, nullptr, into(cursor), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_cursor_seek_first(cursor.get(), &found, error.out());
    for (count = 0; code == ALLUVIUM_CODE_OK && found; count++) {
        if (thd_kill_level(thd_)) return HA_ERR_ABORTED_BY_USER;
        if (int failed = (this->*visit)(number, key_of(cursor), value_of(cursor))) return failed;
        code = alluvium_cursor_next(cursor.get(), &found, error.out());
    }
    return handler_error(code, error, thd_);
}

int TableCheck::check_row(uint, Bytes key, Bytes value) {
    bool good = share_.primary().decode(key, table_.record[0]) &&
                share_.rows().decode(value.at, value.length(), table_.record[0]) == Decoded::Ok;
    if (!good) fail("%s: row %llu cannot be read", "PRIMARY", rows_);
    rows_++;
    return 0;
}

bool TableCheck::read_row(const std::string &key) {
    ErrorPlace error;
    alluvium_reader reader =
        alluvium_snapshot_reader(snapshot_.get(), share_.primary_keyspace());
    alluvium_code code = alluvium_get(reader, key.data(), key.size(), into(row_), error.out());
    if (handler_error(code, error, thd_) || !row_) return false;
    Bytes value = bytes_of(row_);
    return share_.primary().decode(Bytes(key), table_.record[0]) &&
           share_.rows().decode(value.at, value.length(), table_.record[0]) == Decoded::Ok;
}

// The entry must be the one that its row makes.
int TableCheck::check_entry(uint number, Bytes key, Bytes value) {
    const KEY &info = table_.key_info[number];
    const IndexCodec &index = share_.index(number);
    bool good = index.row_key(key, value, row_key_) && read_row(row_key_);
    for (uint i = 0; good && i < info.user_defined_key_parts; i++) {
        Field *field = table_.field[info.key_part[i].fieldnr - 1];
        if (!field->stored_in_db()) good = table_.update_virtual_field(field, true) == 0;
    }
    if (good) {
        index.encode(table_.record[0], row_key_, entry_key_, entry_value_);
        good = entry_key_.size() == key.length() && entry_value_.size() == value.length() &&
               memcmp(entry_key_.data(), key.at, key.length()) == 0 &&
               memcmp(entry_value_.data(), value.at, value.length()) == 0;
    }
    if (!good) fail("%s: an entry does not match its row (%llu so far)", info.name.str, failures_);
    return 0;
}

int TableCheck::check_index(uint number) {
    uint64_t entries = 0;
    if (int error = scan(number, &TableCheck::check_entry, entries)) return error;
    if (entries != rows_)
        fail("%s: has %llu entries, which is not the number of rows",
             table_.key_info[number].name.str, entries);
    return 0;
}

int TableCheck::run() {
    MY_BITMAP *old_read = tmp_use_all_columns(&table_, &table_.read_set);
    MY_BITMAP *old_write = tmp_use_all_columns(&table_, &table_.write_set);
    int error = open_snapshot();
    uint primary = static_cast<uint>(share_.primary_number());
    uint64_t rows = 0;
    if (!error) error = scan(primary, &TableCheck::check_row, rows);
    for (uint i = 0; !error && i < table_.s->keys; i++)
        if (i != primary) error = check_index(i);
    tmp_restore_column_map(&table_.read_set, old_read);
    tmp_restore_column_map(&table_.write_set, old_write);
    if (error == HA_ERR_CRASHED) {
        const std::string text = own_error_text(error_damaged);
        push_warning(thd_, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, text.c_str());
        return HA_ADMIN_CORRUPT;
    }
    if (error) return HA_ADMIN_FAILED;
    return failures_ ? HA_ADMIN_CORRUPT : HA_ADMIN_OK;
}

} // namespace

int ha_alluvium::check(THD *thd, HA_CHECK_OPT *) { return TableCheck(thd, *table, *share_).run(); }

} // namespace alluvium_sql
