// SPDX-License-Identifier: GPL-2.0-only
//
// Bulk loads: rows and index entries go straight into tables of the engine, past the transaction
// and its memory limit. For the copy of ALTER TABLE and for CREATE TABLE SELECT, whose new table no
// other connection sees; and for loads into an empty table, if the user has asked for it.
//
// A load looks at no row locks and compares only its own rows. So a load into a table that others
// see waits for the end of all transactions that have written it, and keeps out new ones.
//
// All rows become visible at the end of the load. After an error there are none.

#include <algorithm>

#include "engine.h"
#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

namespace {

// Rows in memory before a load writes them to temporary files: at most this, and this share of the
// engine's memory.
constexpr uint64_t load_memory_bytes_max = 32 << 20;
constexpr uint64_t load_memory_share = 4;

// Returns true if the statement fills a table that it has just made.
bool fills_new_table(THD *thd, const TABLE &table) {
    switch (thd_sql_command(thd)) {
    case SQLCOM_CREATE_TABLE:
        return true;
    case SQLCOM_ALTER_TABLE:
    case SQLCOM_CREATE_INDEX:
    case SQLCOM_DROP_INDEX:
    case SQLCOM_OPTIMIZE:
        return is_prefix(table.s->table_name.str, tmp_file_prefix);
    default:
        return false;
    }
}

bool loads_rows(THD *thd) {
    int command = thd_sql_command(thd);
    return bulk_load_wanted(thd) && (command == SQLCOM_LOAD || command == SQLCOM_INSERT_SELECT);
}

} // namespace

// Keeps other writers of the table out until the transaction's end, by the server's metadata lock.
// Readers go on.
int ha_alluvium::lock_out_writers(THD *thd) {
    double seconds = static_cast<double>(std::max<int64_t>(lock_timeout_ms(thd), 0)) / 1000;
    // The call reports the error. After LOCK TABLES the lock is there already.
    return thd->mdl_context.upgrade_shared_lock(table->mdl_ticket, MDL_SHARED_NO_WRITE, seconds)
               ? HA_ERR_LOCK_WAIT_TIMEOUT
               : 0;
}

// Sets `empty` to true if the table has no rows, neither newly committed ones nor those of this
// transaction.
int ha_alluvium::find_empty(bool &empty) {
    int error = share_->is_empty(empty);
    if (error || !empty) return error;
    if ((error = open_range(static_cast<uint>(share_->primary_number()), {}))) return error;
    bool found = false;
    error = move(Move::First, found);
    empty = !found;
    forget_cursor();
    return error;
}

// Returns true if the rows of this statement can skip the transaction.
bool ha_alluvium::wants_bulk_load() {
    THD *thd = ha_thd();
    // REPLACE, IGNORE and ON DUPLICATE KEY have to read what they have just written.
    if (thd->lex->duplicates != DUP_ERROR || thd->lex->ignore || table->part_info) return false;
    bool is_new = fills_new_table(thd, *table);
    if (!is_new && !loads_rows(thd)) return false;
    bool empty = false;
    load_error_ = find_empty(empty);
    if (is_new || load_error_ || !empty) return !load_error_ && empty;
    // The second look finds rows of the transactions that have just ended.
    load_error_ = lock_out_writers(thd);
    // Prepared transactions have row locks, which a load would pass by.
    if (!load_error_ && engine.dictionary->check_prepared(share_->entry())) return false;
    if (!load_error_) load_error_ = find_empty(empty);
    return !load_error_ && empty;
}

// Failures to begin a load leave the usual way, row by row in the transaction. Those of the look at
// the table are errors of the first row, because the server asks for none here.
void ha_alluvium::start_bulk_insert(ha_rows, uint) {
    load_.reset();
    load_error_ = 0;
    if (!wants_bulk_load()) return;
    alluvium_ingest_options options = {};
    options.struct_size = sizeof options;
    options.any_order = 1;
    options.duplicates = ALLUVIUM_DUPLICATES_REFUSE;
    options.memory_bytes =
        std::min<uint64_t>(load_memory_bytes_max, settings.memory_bytes / load_memory_share);
    ErrorPlace error;
    if (alluvium_ingest_begin(engine.database, &options, into(load_), error.out()) !=
        ALLUVIUM_CODE_OK)
        log_failure("begin a bulk load", error);
}

int ha_alluvium::load_entry(uint number, const std::string &key, const std::string &value) {
    ErrorPlace error;
    alluvium_writer writer = alluvium_ingest_writer(load_.get(), share_->keyspace(number));
    alluvium_code code =
        expires() ? alluvium_put_until(writer, key.data(), key.size(), value.data(), value.size(),
                                       until_ms_, error.out())
                  : alluvium_put(writer, key.data(), key.size(), value.data(), value.size(),
                                 error.out());
    return code == ALLUVIUM_CODE_DUPLICATE_KEY ? found_load_duplicate(error)
                                               : handler_error(code, error, ha_thd());
}

// Loads the row of `new_key_` with its entries.
int ha_alluvium::load_row(const uchar *record) {
    row_buffer_.clear();
    share_->rows().encode(record, row_buffer_);
    int error = load_entry(static_cast<uint>(share_->primary_number()), new_key_, row_buffer_);
    for (uint i = 0; !error && i < table->s->keys; i++) {
        if (is_primary(i)) continue;
        share_->index(i).encode(record, new_key_, key_buffer_, value_buffer_);
        if (key_buffer_.size() > ALLUVIUM_KEY_BYTES_MAX) return error_key_too_long;
        error = load_entry(i, key_buffer_, value_buffer_);
    }
    return error;
}

// The message shows the columns of the key that the load has found twice, as far as the key gives
// them back.
int ha_alluvium::found_load_duplicate(const ErrorPlace &error) {
    size_t name_size = 0, key_size = 0;
    const uint8_t *name = alluvium_error_keyspace(error.get(), &name_size);
    const uint8_t *data = alluvium_error_key(error.get(), &key_size);
    std::string keyspace(reinterpret_cast<const char *>(name), name ? name_size : 0);
    duplicate_index_ = MAX_KEY;
    for (uint i = 0; i < table->s->keys; i++)
        if (keyspace == keyspace_name(share_->entry().id, share_->entry().indexes[i]))
            duplicate_index_ = i;
    if (duplicate_index_ == MAX_KEY || !data) return HA_ERR_FOUND_DUPP_KEY;
    Bytes key(data, key_size);
    const std::vector<KeyPart> &parts = parts_of(duplicate_index_);
    for (uint i = 0; i < table->key_info[duplicate_index_].user_defined_key_parts; i++) {
        bool good = PrimaryCodec::gives_back(parts[i])
                        ? take_part(parts[i], key, Bytes(), table->record[0])
                        : skip_part(parts[i], key);
        if (!good) break;
    }
    return HA_ERR_FOUND_DUPP_KEY;
}

int ha_alluvium::end_bulk_insert() {
    load_error_ = 0;
    if (!load_) return 0;
    ErrorPlace error;
    Ingest load = std::move(load_);
    alluvium_code code = alluvium_ingest_finish(load.get(), nullptr, error.out());
    share_->forget_sizes();
    int failed = code == ALLUVIUM_CODE_DUPLICATE_KEY ? found_load_duplicate(error)
                                                     : handler_error(code, error, ha_thd());
    // The server takes the error from here.
    if (failed) my_errno = failed;
    return failed;
}

} // namespace alluvium_sql
