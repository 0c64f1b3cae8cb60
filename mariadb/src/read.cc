// SPDX-License-Identifier: GPL-2.0-only
//
// Reads: a cursor for each scan or range, a point read for each lookup of a whole key.
//
// Rows of an index scan are read several at a time: read_ahead.cc.
//
// A cursor has limits where the statement gives them, because they let the engine use filters. The
// server may go on past the limits of a lookup, so `move` opens the next cursor there.

#include "definition.h"
#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

void ha_alluvium::forget_cursor() {
    window_.stop();
    cursor_.reset();
    limits_ = {};
}

int ha_alluvium::open_range(uint number, Limits limits) {
    cursor_index_ = number;
    limits_ = std::move(limits);
    alluvium_cursor_options options = {};
    options.struct_size = sizeof options;
    if (!limits_.low.empty()) {
        options.start = limits_.low.data();
        options.start_size = limits_.low.size();
    }
    if (!limits_.high.empty()) {
        options.end = limits_.high.data();
        options.end_size = limits_.high.size();
    }
    return transaction_->open_cursor(share_->keyspace(number), options, cursor_);
}

int ha_alluvium::open_prefix(uint number, const std::string &prefix) {
    alluvium_cursor_options options = {};
    options.struct_size = sizeof options;
    options.prefix = prefix.data();
    options.prefix_size = prefix.size();
    cursor_index_ = number;
    limits_ = {prefix, key_successor(prefix), false};
    return transaction_->open_cursor(share_->keyspace(number), options, cursor_);
}

int ha_alluvium::move(Move move, bool &found) {
    ErrorPlace error;
    alluvium_code code = ALLUVIUM_CODE_OK;
    found = false;
    if (cursor_) {
        switch (move) {
        case Move::First:
            code = alluvium_cursor_seek_first(cursor_.get(), &found, error.out());
            break;
        case Move::Last:
            code = alluvium_cursor_seek_last(cursor_.get(), &found, error.out());
            break;
        case Move::Next:
            code = alluvium_cursor_next(cursor_.get(), &found, error.out());
            break;
        case Move::Prev:
            code = alluvium_cursor_prev(cursor_.get(), &found, error.out());
            break;
        }
    }
    return handler_error(code, error, ha_thd());
}

// Moves until a row is there that the statement has to see.
int ha_alluvium::step(uchar *record, Move first_move, int missing) {
    if (first_move == Move::First || first_move == Move::Last) window_.active = reads_ahead();
    if (window_.active) return step_ahead(record, first_move, missing);
    bool forward = first_move == Move::First || first_move == Move::Next;
    Move next_move = forward ? Move::Next : Move::Prev;
    for (Move now = first_move;; now = next_move) {
        if (unlikely(thd_kill_level(ha_thd()))) return HA_ERR_ABORTED_BY_USER;
        bool found = false;
        if (int error = move(now, found)) return error;
        if (!found) return missing;
        int error = read_cursor_row(record);
        if (error != HA_ERR_KEY_NOT_FOUND) return error;
    }
}

int ha_alluvium::read_cursor_row(uchar *record) {
    Bytes key = key_of(cursor_);
    if (!is_primary(cursor_index_)) return read_entry(record, key, value_of(cursor_));
    if (row_lock_ != RowLock::None) {
        row_key_.assign(reinterpret_cast<const char *>(key.at), key.length());
        return read_row(record);
    }
    if (!share_->has_blobs()) return decode_row(record, key, value_of(cursor_));
    ErrorPlace error;
    alluvium_code code = alluvium_cursor_pin_value(cursor_.get(), into(row_value_), error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, ha_thd());
    return decode_row(record, key, bytes_of(row_value_));
}

// Reads the row of an index entry, or the entry alone if that suffices. HA_ERR_KEY_NOT_FOUND if the
// statement must not see it.
int ha_alluvium::read_entry(uchar *record, Bytes key, Bytes value) {
    const IndexCodec &index = share_->index(cursor_index_);
    bool matches = true;
    if (pushed_idx_cond && pushed_idx_cond_keyno == cursor_index_)
        if (int error = check_pushed_condition(record, key, value, matches)) return error;
    if (!matches) return HA_ERR_KEY_NOT_FOUND;
    // The server also takes ranges and positions from the record of a read of the index alone, so
    // that needs all columns of the entry. A position without a primary key is the row's key.
    bool covered = row_lock_ == RowLock::None && key_read_ && index.restores_all();
    if (!covered || share_->primary().is_hidden())
        if (!index.row_key(key, value, row_key_)) return HA_ERR_CRASHED;
    if (covered) return index.decode(key, value, record) ? 0 : HA_ERR_CRASHED;
    if (int error = read_row(record)) return error;
    // The server expects virtual columns from the index then.
    if (row_lock_ == RowLock::None) return key_read_ ? compute_key_columns(*table, cursor_index_, true) : 0;
    bool changed = false;
    if (int error = entry_changed(record, key, changed)) return error;
    if (!changed) return 0;
    unlock_row();
    return HA_ERR_KEY_NOT_FOUND;
}

// Computes all virtual columns of a row. A sort of the rows of an index merge reads them by position
// and takes them without the server's own computation. As in that one, an expression that fails is a
// warning: the statement may not need the column.
void ha_alluvium::compute_virtual_columns() {
    if (!table->vfield) return;
    Turn_errors_to_warnings_handler errors_are_warnings;
    ha_thd()->push_internal_handler(&errors_are_warnings);
    for (Field **field = table->vfield; *field; field++)
        if (!(*field)->stored_in_db()) table->update_virtual_field(*field, true);
    ha_thd()->pop_internal_handler();
}

// A locking read sees the newest row, and the cursor an older entry: the row may have moved away.
int ha_alluvium::entry_changed(const uchar *record, Bytes key, bool &changed) {
    if (int error = compute_key_columns(*table, cursor_index_, true)) return error;
    share_->index(cursor_index_).encode(record, row_key_, old_entry_key_, old_entry_value_);
    changed = old_entry_key_.size() != key.length() ||
              memcmp(old_entry_key_.data(), key.at, key.length()) != 0;
    return 0;
}

int ha_alluvium::check_pushed_condition(uchar *record, Bytes key, Bytes value, bool &matches) {
    if (!share_->index(cursor_index_).decode(key, value, record)) return HA_ERR_CRASHED;
    switch (handler_index_cond_check(this)) {
    case CHECK_POS:
        matches = true;
        return 0;
    case CHECK_NEG:
        matches = false;
        return 0;
    case CHECK_ABORTED_BY_USER:
        return HA_ERR_ABORTED_BY_USER;
    case CHECK_OUT_OF_RANGE:
        return HA_ERR_END_OF_FILE;
    default:
        return HA_ERR_INTERNAL_ERROR;
    }
}

// Reads the row with the key `row_key_`, with the lock of the statement.
int ha_alluvium::read_row(uchar *record) {
    const alluvium_keyspace *rows = share_->primary_keyspace();
    bool skipped = false;
    int error = row_lock_ == RowLock::None ? transaction_->get(rows, row_key_, row_value_)
                : skip_locked_ ? transaction_->get_unless_locked(rows, row_key_, row_lock_,
                                                                 row_value_, skipped)
                               : transaction_->get_locked(rows, row_key_, row_lock_, row_value_);
    if (error) return error;
    if (skipped || !row_value_) return HA_ERR_KEY_NOT_FOUND;
    return decode_row(record, Bytes(row_key_), bytes_of(row_value_));
}

int ha_alluvium::decode_row(uchar *record, Bytes key, Bytes value) {
    if (!share_->primary().decode(key, record)) return HA_ERR_CRASHED;
    switch (share_->rows().decode(value.at, value.length(), record)) {
    case Decoded::Ok: break;
    case Decoded::UnknownLayout: return error_row_format;
    case Decoded::Damaged: return HA_ERR_CRASHED;
    }
    if (reinterpret_cast<const uint8_t *>(row_key_.data()) != key.at)
        row_key_.assign(reinterpret_cast<const char *>(key.at), key.length());
    return 0;
}

// The entries of an index that was built after the transaction's read point are too new for it. So
// are the rows of a table that was made or emptied since.
int ha_alluvium::check_complete(uint number) {
    uint64_t since = share_->complete_since(number);
    return since && transaction_ ? transaction_->check_read_point(since) : 0;
}

int ha_alluvium::index_init(uint number, bool) {
    if (int error = check_complete(number)) return error;
    active_index = number;
    return 0;
}

int ha_alluvium::index_end() {
    forget_cursor();
    active_index = MAX_KEY;
    return 0;
}

int ha_alluvium::index_first(uchar *record) {
    if (int error = open_range(active_index, {})) return error;
    return step(record, Move::First, HA_ERR_END_OF_FILE);
}

int ha_alluvium::index_last(uchar *record) {
    if (int error = open_range(active_index, {})) return error;
    return step(record, Move::Last, HA_ERR_END_OF_FILE);
}

int ha_alluvium::index_next(uchar *record) {
    int error = step(record, Move::Next, HA_ERR_END_OF_FILE);
    if (error != HA_ERR_END_OF_FILE || limits_.high.empty() || limits_.high_is_final) return error;
    if ((error = open_range(active_index, {limits_.high, {}, false}))) return error;
    return step(record, Move::First, HA_ERR_END_OF_FILE);
}

int ha_alluvium::index_prev(uchar *record) {
    int error = step(record, Move::Prev, HA_ERR_END_OF_FILE);
    if (error != HA_ERR_END_OF_FILE || limits_.low.empty()) return error;
    if ((error = open_range(active_index, {{}, limits_.low, false}))) return error;
    return step(record, Move::Last, HA_ERR_END_OF_FILE);
}

int ha_alluvium::index_next_same(uchar *record, const uchar *, uint) {
    return step(record, Move::Next, HA_ERR_END_OF_FILE);
}

// Reads the only row or entry with a whole key.
int ha_alluvium::lookup(uchar *record, const std::string &key) {
    forget_cursor();
    cursor_index_ = active_index;
    limits_ = {key, key_successor(key), false};
    if (is_primary(active_index)) {
        row_key_ = key;
        return read_row(record);
    }
    Value entry;
    if (int error = transaction_->get(share_->keyspace(active_index), key, entry)) return error;
    return entry ? read_entry(record, Bytes(key), bytes_of(entry)) : HA_ERR_KEY_NOT_FOUND;
}

// Reads the first row at or after a key, up to the end of the statement's range.
int ha_alluvium::read_range(uchar *record, const std::string &key, bool after) {
    Limits limits;
    limits.low = after ? key_successor(key) : key;
    if (after && limits.low.empty()) {
        forget_cursor();
        return HA_ERR_KEY_NOT_FOUND;
    }
    if (end_range) {
        encode_tuple(parts_of(active_index), end_range->key,
                     tuple_map(active_index, end_range->keypart_map), range_buffer_);
        limits.high = end_range->flag == HA_READ_BEFORE_KEY ? range_buffer_
                                                            : key_successor(range_buffer_);
        limits.high_is_final = true;
        if (!limits.high.empty() && limits.high <= limits.low) {
            forget_cursor();
            return HA_ERR_KEY_NOT_FOUND;
        }
    }
    if (int error = open_range(active_index, std::move(limits))) return error;
    return step(record, Move::First, HA_ERR_KEY_NOT_FOUND);
}

// Reads the last row before a key, or with it.
int ha_alluvium::read_before(uchar *record, const std::string &key, bool inclusive) {
    Limits limits;
    limits.high = inclusive ? key_successor(key) : key;
    if (int error = open_range(active_index, std::move(limits))) return error;
    return step(record, Move::Last, HA_ERR_KEY_NOT_FOUND);
}

int ha_alluvium::index_read_map(uchar *record, const uchar *key, key_part_map map,
                                enum ha_rkey_function flag) {
    KeyUse use = flag == HA_READ_KEY_OR_NEXT ? KeyUse::LowLimit : KeyUse::Exact;
    Tuple tuple =
        encode_tuple(parts_of(active_index), key, tuple_map(active_index, map), key_buffer_, use);
    const KEY &info = table->key_info[active_index];
    bool whole = info.flags & HA_NOSAME && tuple.parts >= info.user_defined_key_parts &&
                 !tuple.has_null;
    switch (flag) {
    case HA_READ_KEY_EXACT:
        if (whole && tuple.parts == info.user_defined_key_parts) return lookup(record, key_buffer_);
        [[fallthrough]];
    case HA_READ_PREFIX:
        if (int error = open_prefix(active_index, key_buffer_)) return error;
        return step(record, Move::First, HA_ERR_KEY_NOT_FOUND);
    case HA_READ_PREFIX_LAST:
        if (int error = open_prefix(active_index, key_buffer_)) return error;
        return step(record, Move::Last, HA_ERR_KEY_NOT_FOUND);
    case HA_READ_KEY_OR_NEXT:
        return read_range(record, key_buffer_, false);
    case HA_READ_AFTER_KEY:
        return read_range(record, key_buffer_, true);
    case HA_READ_BEFORE_KEY:
        return read_before(record, key_buffer_, false);
    case HA_READ_KEY_OR_PREV:
    case HA_READ_PREFIX_LAST_OR_PREV:
        return read_before(record, key_buffer_, true);
    default:
        return HA_ERR_UNSUPPORTED;
    }
}

int ha_alluvium::rnd_init(bool scan) {
    forget_cursor();
    scan_begins_ = scan;
    if (!scan || is_sequence()) return 0;
    uint primary = static_cast<uint>(share_->primary_number());
    if (int error = check_complete(primary)) return error;
    return open_range(primary, {});
}

int ha_alluvium::rnd_end() {
    forget_cursor();
    return 0;
}

int ha_alluvium::rnd_next(uchar *record) {
    Move move = scan_begins_ ? Move::First : Move::Next;
    scan_begins_ = false;
    if (is_sequence()) return move == Move::First ? read_sequence(record) : HA_ERR_END_OF_FILE;
    return step(record, move, HA_ERR_END_OF_FILE);
}

// Positions are compared as bytes and have one length: the key, zeros, and the key's length.
void ha_alluvium::store_position(uchar *to, const std::string &key) const {
    memset(to, 0, ref_length);
    memcpy(to, key.data(), key.size());
    store_little(to + ref_length - 2, 2, key.size());
}

void ha_alluvium::position(const uchar *record) {
    if (share_->primary().is_hidden()) {
        store_position(ref, row_key_);
        return;
    }
    share_->primary().encode(record, 0, new_key_);
    store_position(ref, new_key_);
}

int ha_alluvium::rnd_pos(uchar *record, uchar *position) {
    if (is_sequence()) return read_sequence(record);
    size_t length = load_little(position + ref_length - 2, 2);
    if (length > ref_length - 2) return HA_ERR_CRASHED;
    row_key_.assign(reinterpret_cast<const char *>(position), length);
    if (!duplicate_.present || duplicate_.key != row_key_) {
        if (int error = read_row(record)) return error;
        if (record == table->record[0]) compute_virtual_columns();
        return 0;
    }
    // The failed write has met the newest version of this row, which a read may not see.
    duplicate_.present = false;
    row_value_ = std::move(duplicate_.value);
    if (!row_value_) {
        int error = transaction_->get_locked(share_->primary_keyspace(), row_key_,
                                             RowLock::Exclusive, row_value_);
        if (error) return error;
        if (!row_value_) return HA_ERR_KEY_NOT_FOUND;
    }
    return decode_row(record, Bytes(row_key_), bytes_of(row_value_));
}

Item *ha_alluvium::idx_cond_push(uint number, Item *condition) {
    // The test of the range's end compares all columns of the index.
    if (is_primary(number) || !share_->index(number).restores_all()) return condition;
    pushed_idx_cond = condition;
    pushed_idx_cond_keyno = number;
    in_range_check_pushed_down = true;
    return nullptr;
}

} // namespace alluvium_sql
