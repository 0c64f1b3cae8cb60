// SPDX-License-Identifier: GPL-2.0-only

#include "table_share.h"

#include <algorithm>

#include "engine.h"
#include "errors.h"

namespace alluvium_sql {

namespace {

// Numbers by which the mark of AUTO_INCREMENT goes ahead: a crash skips at most so many.
constexpr uint64_t mark_step = 1000;

bool is_variable(const Field &field) {
    return field.real_type() == MYSQL_TYPE_VARCHAR ||
           field.real_type() == MYSQL_TYPE_VARCHAR_COMPRESSED;
}

// Writes the space of a character set: CHAR is padded with it.
void set_pad(const Field &field, RowColumn &column) {
    CHARSET_INFO *charset = field.charset();
    int length = charset->wc_mb(' ', column.pad, column.pad + sizeof column.pad);
    column.pad_bytes = static_cast<uint8_t>(std::max(length, 1));
}

// A NULL has the bytes of the default, as in InnoDB: for some types, such as TIME, they are
// not zeros.
void set_null_image(const TABLE &table, RowColumn &column) {
    if (!column.nullable || column.kind == ColumnKind::Blob || !table.s->default_values) return;
    const uint8_t *from = table.s->default_values + column.offset;
    size_t length = column.length;
    if (column.kind == ColumnKind::Variable)
        length = column.length_bytes + load_little(from, column.length_bytes);
    column.null_image.assign(reinterpret_cast<const char *>(from), length);
}

RowColumn row_column(const TABLE &table, const Field &field) {
    RowColumn column;
    column.nullable = field.null_ptr != nullptr;
    column.offset = static_cast<uint32_t>(field.ptr - table.record[0]);
    if (column.nullable) {
        column.null_offset = static_cast<uint32_t>(field.null_ptr - table.record[0]);
        column.null_mask = field.null_bit;
    }
    if (is_variable(field)) {
        column.kind = ColumnKind::Variable;
        column.length_bytes = static_cast<const Field_varstring &>(field).length_bytes;
        column.length = field.field_length;
    } else if (field.flags & BLOB_FLAG) {
        column.kind = ColumnKind::Blob;
        column.length_bytes = static_cast<uint8_t>(
            static_cast<const Field_blob &>(field).pack_length_no_ptr());
        column.length = 0;
    } else if (field.type_handler() == &type_handler_string && field.charset() != &my_charset_bin) {
        column.kind = ColumnKind::Padded;
        column.length = field.pack_length();
        set_pad(field, column);
    } else {
        column.kind = ColumnKind::Fixed;
        column.length = field.pack_length();
    }
    set_null_image(table, column);
    return column;
}

bool same_column(const StoredColumn &a, const StoredColumn &b) {
    return a.kind == b.kind && a.nullable == b.nullable && a.length == b.length;
}

} // namespace

const KEY *primary_key_of(const TABLE &table) {
    return table.s->primary_key == MAX_KEY ? nullptr : &table.key_info[table.s->primary_key];
}

std::vector<uint> stored_fields(const TABLE &table, const PrimaryCodec &primary) {
    std::vector<bool> in_key(table.s->fields, false);
    for (size_t i = 0; i < primary.parts().size(); i++)
        if (PrimaryCodec::gives_back(primary.parts()[i])) in_key[primary.columns()[i]] = true;
    std::vector<uint> fields;
    for (uint i = 0; i < table.s->fields; i++)
        if (!in_key[i] && table.field[i]->stored_in_db()) fields.push_back(i);
    return fields;
}

RowLayout row_layout(const TABLE &table, const PrimaryCodec &primary) {
    RowLayout layout;
    for (uint field : stored_fields(table, primary))
        layout.columns.push_back(row_column(table, *table.field[field]));
    return layout;
}

int TableShare::open(const TABLE &table, const std::string &name,
                     std::unique_ptr<TableShare> &share) {
    std::unique_ptr<TableShare> made(new TableShare);
    made->name_ = name;
    if (int error = engine.dictionary->read(name, made->entry_)) return error;
    made->primary_ = std::make_unique<PrimaryCodec>(table, primary_key_of(table));
    made->primary_number_ =
        made->primary_->is_hidden() ? table.s->keys : size_t(table.s->primary_key);
    for (uint i = 0; i < table.s->keys; i++)
        made->indexes_.push_back(i == made->primary_number_
                                     ? nullptr
                                     : std::make_unique<IndexCodec>(table, table.key_info[i],
                                                                    *made->primary_));
    for (const auto &index : made->indexes_)
        made->has_unique_indexes_ |= index && index->is_unique();
    made->has_blobs_ = table.s->blob_fields != 0;
    std::string reason = find_expiry_field(table, made->expiry_field_);
    if (!reason.empty()) return fail_with("ALLUVIUM_EXPIRE_COLUMN: " + reason);

    const StoredLayout &stored = made->entry_.layouts.back();
    RowLayout layout = row_layout(table, *made->primary_);
    bool same = stored.columns.size() == layout.columns.size() &&
                made->entry_.indexes.size() ==
                    table.s->keys + (made->primary_->is_hidden() ? 1u : 0u);
    for (size_t i = 0; same && i < layout.columns.size(); i++)
        same = same_column(stored.columns[i], layout.columns[i]);
    if (!same) {
        sql_print_error("ALLUVIUM: the server's and the engine's definitions of '%s' differ",
                        name.c_str());
        return HA_ERR_TABLE_DEF_CHANGED;
    }
    layout.version = stored.version;
    for (size_t i = 0; i < layout.columns.size(); i++) {
        layout.columns[i].id = stored.columns[i].id;
        layout.columns[i].initial = made->entry_.initial[i];
    }
    std::vector<StoredLayout> old(made->entry_.layouts.begin(), made->entry_.layouts.end() - 1);
    made->rows_ = std::make_unique<RowCodec>(std::move(layout), old);
    if (int error = made->open_keyspaces()) return error;
    if (int error = made->load_numbers(table)) return error;
    if (int error = engine.dictionary->read_statistics(made->entry_.id, made->statistics_))
        return error;
    share = std::move(made);
    return 0;
}

TableShare::~TableShare() {
    // Exact at close: only a crash skips numbers.
    if (!has_numbers_ || mark_ == next_number_ || !engine.dictionary) return;
    if (engine.dictionary->write_mark(entry_.id, next_number_))
        sql_print_warning("ALLUVIUM: AUTO_INCREMENT of '%s' skips numbers", name_.c_str());
}

int TableShare::open_keyspaces() {
    std::vector<Keyspace> opened;
    std::vector<uint64_t> complete_since;
    for (uint64_t index : entry_.indexes) {
        opened.emplace_back();
        if (int error = engine.dictionary->open_keyspace(entry_.id, index, opened.back()))
            return error;
        complete_since.push_back(engine.dictionary->complete_since(entry_.id, index));
    }
    keyspaces_ = std::move(opened);
    complete_since_ = std::move(complete_since);
    return 0;
}

int TableShare::truncate() {
    if (int error = engine.dictionary->check_prepared(entry_)) return error;
    TableEntry next = entry_;
    std::vector<alluvium_keyspace_options> options;
    for (size_t i = 0; i < entry_.indexes.size(); i++) {
        options.emplace_back();
        options.back().struct_size = sizeof(alluvium_keyspace_options);
        ErrorPlace error;
        alluvium_code code = alluvium_keyspace_get_options(keyspaces_[i].get(), &options.back(),
                                                           error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
        next.indexes[i] = next.next_index++;
    }
    // All rows are new from now on.
    next.layouts.erase(next.layouts.begin(), next.layouts.end() - 1);
    if (int error = engine.dictionary->create_keyspaces(next, next.indexes, options)) return error;
    if (int error = engine.dictionary->write(name_, next)) {
        engine.dictionary->drop_keyspaces(next.id, next.indexes);
        return error;
    }
    std::swap(entry_, next);
    if (int error = open_keyspaces()) return error;
    engine.dictionary->drop_keyspaces(next.id, next.indexes);
    next_hidden_id_ = 1;
    forget_sizes();
    return set_next_number(1);
}

// -- Numbers

int TableShare::read_end(const alluvium_keyspace *keyspace, bool last, std::string &key) const {
    Cursor cursor;
    ErrorPlace error;
    bool found = false;
    key.clear();
    alluvium_code code = alluvium_cursor_open(alluvium_keyspace_reader(keyspace), nullptr,
                                              into(cursor), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = last ? alluvium_cursor_seek_last(cursor.get(), &found, error.out())
                    : alluvium_cursor_seek_first(cursor.get(), &found, error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    Bytes bytes = key_of(cursor);
    if (found) append_bytes(key, bytes.at, bytes.length());
    return 0;
}

int TableShare::is_empty(bool &empty) const {
    std::string key;
    int error = read_end(primary_keyspace(), false, key);
    empty = key.empty();
    return error;
}

int TableShare::load_hidden_id() {
    std::string key;
    if (int error = read_end(primary_keyspace(), true, key)) return error;
    if (key.empty()) return 0;
    if (key.size() != hidden_key_bytes) return HA_ERR_CRASHED;
    next_hidden_id_ = load_big(reinterpret_cast<const uint8_t *>(key.data()), key.size()) + 1;
    return 0;
}

int TableShare::load_numbers(const TABLE &table) {
    if (primary_->is_hidden())
        if (int error = load_hidden_id()) return error;
    if (!table.found_next_number_field) return 0;
    has_numbers_ = true;
    uint64_t largest = 0;
    int failed = engine.dictionary->read_mark(entry_.id, mark_);
    if (failed == error_mark_damaged)
        sql_print_warning("ALLUVIUM: the AUTO_INCREMENT mark of '%s' is damaged. New numbers follow "
                          "the largest one in the table, so those of rows that were deleted may "
                          "come again; ALTER TABLE ... AUTO_INCREMENT sets another one",
                          name_.c_str());
    else if (failed)
        return failed;
    if (int error = largest_number(table, largest)) return error;
    next_number_ = std::max({mark_, largest == UINT64_MAX ? largest : largest + 1, uint64_t(1)});
    return 0;
}

// Sets the largest number in the index of the AUTO_INCREMENT column; 0 without one.
int TableShare::largest_number(const TABLE &table, uint64_t &number) const {
    number = 0;
    if (table.s->next_number_keypart != 0) return 0;
    uint key_number = table.s->next_number_index;
    KeyPart part = make_key_part(table, table.key_info[key_number].key_part[0]);
    std::string key;
    if (int error = read_end(keyspace(key_number), !part.descending, key)) return error;
    if (key.empty() || (part.kind != KeyKind::Signed && part.kind != KeyKind::Unsigned)) return 0;
    // The part's image goes through a record of one column, because it may be inverted or signed.
    uint8_t record[sizeof(uint64_t) + 1] = {};
    part.offset = 1;
    part.null_offset = 0;
    part.null_mask = 1;
    Bytes cursor(key);
    if (!take_part(part, cursor, Bytes(), record)) return HA_ERR_CRASHED;
    if (record[0]) return 0;
    uint64_t value = load_little(record + 1, part.length);
    bool negative = part.kind == KeyKind::Signed && record[part.length] & 0x80;
    number = negative ? 0 : value;
    return 0;
}

// Makes sure that a crash does not bring back numbers below `next`. Called with the lock held.
int TableShare::mark_numbers(uint64_t next) {
    if (next <= mark_) return 0;
    uint64_t mark = next > UINT64_MAX - mark_step ? UINT64_MAX : next + mark_step;
    // In the log before the row that uses the number, so it survives whenever the row does.
    if (int error = engine.dictionary->write_mark(entry_.id, mark)) return error;
    mark_ = mark;
    return 0;
}

int TableShare::reserve_numbers(uint64_t offset, uint64_t increment, uint64_t count,
                                uint64_t &first) {
    std::lock_guard<std::mutex> guard(numbers_mutex_);
    first = next_number_;
    if (increment > 1) {
        // The series of the server, which wraps around for an offset above the increment: another
        // first number would be moved into that series, maybe past the reserved ones.
        uint64_t aligned = (first - 1 + increment - offset) / increment * increment + offset;
        if (aligned >= first) first = aligned;
    }
    uint64_t width = 0, next = 0;
    if (__builtin_mul_overflow(count, increment, &width) ||
        __builtin_add_overflow(first, width, &next))
        next = UINT64_MAX;
    if (int error = mark_numbers(next)) return error;
    next_number_ = next;
    return 0;
}

int TableShare::raise_numbers(uint64_t used) {
    if (used < next_number_) return 0;
    std::lock_guard<std::mutex> guard(numbers_mutex_);
    if (used < next_number_) return 0;
    uint64_t next = used == UINT64_MAX ? used : used + 1;
    if (int error = mark_numbers(next)) return error;
    next_number_ = next;
    return 0;
}

int TableShare::set_next_number(uint64_t next) {
    if (!has_numbers_) return 0;
    std::lock_guard<std::mutex> guard(numbers_mutex_);
    next = std::max<uint64_t>(next, 1);
    if (int error = engine.dictionary->write_mark(entry_.id, next)) return error;
    mark_ = next;
    next_number_ = next;
    return 0;
}

// -- Statistics

TableSizes TableShare::sizes() {
    time_t now = time(nullptr);
    std::lock_guard<std::mutex> guard(statistics_mutex_);
    if (sizes_time_ == now) return current_sizes();
    TableSizes sizes;
    for (size_t i = 0; i < keyspaces_.size(); i++) {
        alluvium_keyspace_stats stats = {};
        stats.struct_size = sizeof stats;
        ErrorPlace error;
        if (alluvium_keyspace_get_stats(engine.database, keyspaces_[i].get(), &stats,
                                        error.out()) != ALLUVIUM_CODE_OK) {
            log_failure("read the sizes of a table", error);
            return current_sizes();
        }
        uint64_t bytes = stats.upper_bytes + stats.last_bytes + stats.memtable_bytes;
        if (i != primary_number_) {
            sizes.index_bytes += bytes;
            continue;
        }
        sizes.rows = stats.rows_estimate;
        sizes.row_bytes = bytes;
    }
    sizes_ = sizes;
    sizes_time_ = now;
    rows_since_sizes_ = 0;
    return sizes;
}

// The sizes, with the rows that were written since. Called with the lock held.
TableSizes TableShare::current_sizes() const {
    TableSizes sizes = sizes_;
    int64_t since = rows_since_sizes_;
    uint64_t fewer = since < 0 ? static_cast<uint64_t>(-since) : 0;
    sizes.rows = since < 0 ? sizes.rows - std::min(sizes.rows, fewer)
                           : sizes.rows + static_cast<uint64_t>(since);
    return sizes;
}

std::vector<uint64_t> TableShare::rows_per_value(size_t number) {
    std::lock_guard<std::mutex> guard(statistics_mutex_);
    return number < statistics_.size() ? statistics_[number].rows_per_value
                                       : std::vector<uint64_t>();
}

void TableShare::set_statistics(std::vector<IndexStatistics> statistics, uint64_t rows) {
    std::lock_guard<std::mutex> guard(statistics_mutex_);
    statistics_ = std::move(statistics);
    statistics_rows_ = rows;
}

bool TableShare::statistics_are_old(uint64_t rows) {
    std::lock_guard<std::mutex> guard(statistics_mutex_);
    if (statistics_.size() != indexes_.size()) return true;
    uint64_t change = rows > statistics_rows_ ? rows - statistics_rows_ : statistics_rows_ - rows;
    return change > statistics_rows_ / 10 + 10;
}

} // namespace alluvium_sql
