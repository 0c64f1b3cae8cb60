// SPDX-License-Identifier: GPL-2.0-only
//
// Scans of a secondary index that need the rows: the scan reads a window of entries ahead, and the
// rows of the window at once, so the device reads several blocks at a time.
//
// The cursor is ahead of the current row. Where the scan turns back, `return_to_window` moves it to
// the current row.

#include "definition.h"
#include "engine.h"
#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

namespace {

// A table above this share of the engine's memory is taken for one that the cache does not hold.
constexpr uint64_t cache_share = 2;
// A scan that stops early has read at most as many rows in vain as it has given.
constexpr size_t window_rows_first = 1;
constexpr size_t window_rows_max = 64;
// Entries that a window with a row looks at, where a condition refuses most of them: the statement
// may need no other row.
constexpr size_t window_entries_max = 64;

} // namespace

void ScanWindow::begin(bool is_forward, size_t rows_max) {
    rows.restart(window_rows_first, rows_max);
    forward = is_forward;
    is_last = false;
    error = 0;
    end_is_reached = false;
}

void ScanWindow::stop() {
    rows.clear();
    active = false;
}

// Rows in the cache are read as fast one by one. A locking read must see the newest row and lock
// only rows that it returns. A HANDLER stays open over later statements, which may write the rows.
bool ha_alluvium::reads_ahead() const {
    if (is_primary(cursor_index_) || row_lock_ != RowLock::None) return false;
    if (key_read_ && share_->index(cursor_index_).restores_all()) return false;
    if (stats.data_file_length < settings.memory_bytes / cache_share) return false;
    return thd_sql_command(ha_thd()) != SQLCOM_HA_READ;
}

// As `step`.
int ha_alluvium::step_ahead(uchar *record, Move first_move, int missing) {
    bool forward = first_move == Move::First || first_move == Move::Next;
    if (first_move == Move::First || first_move == Move::Last) {
        window_.begin(forward, rows_at_once(window_rows_max));
    } else if (window_.forward != forward) {
        if (int error = return_to_window()) return error;
        window_.begin(forward, rows_at_once(window_rows_max));
    }
    for (Move now = first_move; !window_.rows.next(row_key_, row_value_);
         now = forward ? Move::Next : Move::Prev) {
        if (unlikely(thd_kill_level(ha_thd()))) return HA_ERR_ABORTED_BY_USER;
        if (window_.is_last) {
            window_.end_is_reached = true;
            return window_.error ? window_.error : missing;
        }
        if (int error = fill_window(record, now)) return error;
    }
    if (int error = decode_row(record, Bytes(row_key_), bytes_of(row_value_))) return error;
    // The server expects virtual columns from the index then.
    return key_read_ ? compute_key_columns(*table, cursor_index_, true) : 0;
}

// Reads the next entries and their rows. What ends the scan counts after the rows before it.
int ha_alluvium::fill_window(uchar *record, Move first_move) {
    window_.rows.clear();
    Move next_move = window_.forward ? Move::Next : Move::Prev;
    size_t entries = 0;
    for (Move now = first_move; !window_.rows.is_full() && !window_.is_last; now = next_move) {
        if (entries++ >= window_entries_max && window_.rows.count() > 0) break;
        bool found = false;
        window_.error = thd_kill_level(ha_thd()) ? HA_ERR_ABORTED_BY_USER : move(now, found);
        if (!window_.error && found) window_.error = add_to_window(record);
        window_.is_last = window_.error || !found;
    }
    return window_.rows.read(*transaction_, share_->primary_keyspace());
}

// Adds the entry at the cursor, unless the pushed condition refuses it.
int ha_alluvium::add_to_window(uchar *record) {
    Bytes key = key_of(cursor_), value = value_of(cursor_);
    bool matches = true;
    if (pushed_idx_cond && pushed_idx_cond_keyno == cursor_index_)
        if (int error = check_pushed_condition(record, key, value, matches)) return error;
    if (!matches) return 0;
    size_t place = window_.rows.count();
    if (!share_->index(cursor_index_).row_key(key, value, window_.rows.add())) {
        window_.rows.take_back();
        return HA_ERR_CRASHED;
    }
    if (place == window_.entry_keys.size()) window_.entry_keys.emplace_back();
    window_.entry_keys[place].assign(reinterpret_cast<const char *>(key.at), key.length());
    return 0;
}

// Moves the cursor to the entry of the current row. After the end of the scan it stays there.
int ha_alluvium::return_to_window() {
    if (window_.end_is_reached || window_.rows.given() == 0) return 0;
    const std::string &key = window_.entry_keys[window_.rows.given() - 1];
    bool found = false;
    ErrorPlace error;
    alluvium_code code =
        alluvium_cursor_seek(cursor_.get(), key.data(), key.size(), &found, error.out());
    return handler_error(code, error, ha_thd());
}

} // namespace alluvium_sql
