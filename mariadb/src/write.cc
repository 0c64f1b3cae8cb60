// SPDX-License-Identifier: GPL-2.0-only
//
// Insert, update and delete of rows with their index entries.
//
// The lock of a row's key also protects the row's entries in indexes that are not unique, so these
// are written without locks. A key of a unique index has a lock of its own. It is locked and read
// before any write of the row, so a duplicate leaves nothing to undo. It is also locked before its
// entry is removed, so that an insert of the same value waits for the end of the removal.

#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

namespace {

bool too_long(const std::string &key) { return key.size() > ALLUVIUM_KEY_BYTES_MAX; }

} // namespace

int ha_alluvium::found_duplicate(uint number, const std::string &row_key, Value value) {
    duplicate_index_ = number;
    store_position(dup_ref, row_key);
    duplicate_ = {true, row_key, std::move(value)};
    return HA_ERR_FOUND_DUPP_KEY;
}

// Locks the keys that the record must not share with another row, and looks for such a row.
// `old_key` and `old_record`: the row that is updated; null for an insert.
int ha_alluvium::check_duplicates(const uchar *record, const std::string *old_key,
                                  const uchar *old_record) {
    Value value;
    bool new_key = !share_->primary().is_hidden() && (!old_key || *old_key != new_key_);
    if (new_key) {
        int error = transaction_->get_for_insert(share_->primary_keyspace(), new_key_,
                                                 overwrites_, value);
        if (error) return error;
        if (value)
            return found_duplicate(static_cast<uint>(share_->primary_number()), new_key_,
                                   std::move(value));
    }
    for (uint i = 0; i < table->s->keys; i++) {
        if (is_primary(i) || !share_->index(i).is_unique()) continue;
        const IndexCodec &index = share_->index(i);
        if (!index.encode(record, new_key_, key_buffer_, value_buffer_)) continue;
        if (too_long(key_buffer_)) return error_key_too_long;
        if (old_key) {
            index.encode(old_record, *old_key, old_entry_key_, old_entry_value_);
            if (old_entry_key_ == key_buffer_) continue;
        }
        if (int error = transaction_->get_for_insert(share_->keyspace(i), key_buffer_,
                                                     overwrites_, value))
            return error;
        if (!value) continue;
        std::string row_key;
        if (!index.row_key(Bytes(key_buffer_), bytes_of(value), row_key)) return HA_ERR_CRASHED;
        return found_duplicate(i, row_key, nullptr);
    }
    return 0;
}

// Inserts a row or an entry, to expire with the row.
int ha_alluvium::insert_pair(const alluvium_keyspace *keyspace, const std::string &key,
                             const std::string &value, Tracking tracking) {
    return expires() ? transaction_->put_until(keyspace, key, value, until_ms_, tracking)
                     : transaction_->insert(keyspace, key, value, tracking);
}

// Writes a row or an entry over an older one, to expire with the row.
int ha_alluvium::put_pair(const alluvium_keyspace *keyspace, const std::string &key,
                          const std::string &value, Tracking tracking) {
    return expires() ? transaction_->put_until(keyspace, key, value, until_ms_, tracking)
                     : transaction_->put(keyspace, key, value, tracking);
}

// Writes the row of `new_key_` and its entries, unless there is a duplicate.
int ha_alluvium::insert_row(const uchar *record) {
    int error = insert_primary(record);
    for (uint i = 0; !error && i < table->s->keys; i++) {
        if (is_primary(i)) continue;
        share_->index(i).encode(record, new_key_, key_buffer_, value_buffer_);
        if (too_long(key_buffer_)) return error_key_too_long;
        error = insert_pair(share_->keyspace(i), key_buffer_, value_buffer_, Tracking::Untracked);
    }
    return error;
}

int ha_alluvium::insert_primary(const uchar *record) {
    const alluvium_keyspace *rows = share_->primary_keyspace();
    bool hidden = share_->primary().is_hidden();
    bool one_check = !hidden && !share_->has_unique_indexes() && !overwrites_ && !expires();
    if (!one_check)
        if (int error = check_duplicates(record, nullptr, nullptr)) return error;
    row_buffer_.clear();
    share_->rows().encode(record, row_buffer_);
    // No other transaction knows a hidden key, so it needs no lock.
    if (!one_check)
        return insert_pair(rows, new_key_, row_buffer_,
                           hidden ? Tracking::Untracked : Tracking::Locked);
    Value existing;
    int error = transaction_->insert_new(rows, new_key_, row_buffer_, existing);
    if (error || !existing) return error;
    // With this lock a later update would not notice that the row is newer than the read point.
    transaction_->unlock_row(rows, new_key_);
    return found_duplicate(static_cast<uint>(share_->primary_number()), new_key_,
                           std::move(existing));
}

int ha_alluvium::write_row(const uchar *record) {
    if (is_sequence()) return write_sequence(record);
    if (unlikely(load_error_)) return load_error_;
    if (table->next_number_field && record == table->record[0]) {
        numbers_error_ = 0;
        int error = update_auto_increment();
        if (error) return numbers_error_ ? numbers_error_ : error;
    }
    uint64_t hidden_id = share_->primary().is_hidden() ? share_->next_hidden_id() : 0;
    share_->primary().encode(record, hidden_id, new_key_);
    if (too_long(new_key_)) return error_key_too_long;
    until_ms_ = expiry(record);
    int error = load_ ? load_row(record) : insert_row(record);
    if (numbers_left_ > 0 && table->next_number_field) numbers_left_--;
    if (error == HA_ERR_FOUND_DUPP_KEY && !replaces_after_duplicate()) return error;
    if (error && error != HA_ERR_FOUND_DUPP_KEY) return error;
    if (!error) share_->count_rows(1);
    int failed = record == table->record[0] ? raise_numbers() : 0;
    return error ? error : failed;
}

// Returns true if the statement may give the number of a row that it could not insert to another
// row.
bool ha_alluvium::replaces_after_duplicate() const {
    switch (thd_sql_command(ha_thd())) {
    case SQLCOM_LOAD:
        return overwrites_;
    case SQLCOM_REPLACE:
    case SQLCOM_REPLACE_SELECT:
    case SQLCOM_INSERT_SELECT:
        return true;
    default:
        return false;
    }
}

int ha_alluvium::update_row(const uchar *old_record, const uchar *new_record) {
    if (is_sequence()) return write_sequence(new_record);
    const PrimaryCodec &primary = share_->primary();
    if (primary.is_hidden()) {
        old_key_ = row_key_;
        new_key_ = row_key_;
    } else {
        primary.encode(old_record, 0, old_key_);
        primary.encode(new_record, 0, new_key_);
    }
    if (too_long(new_key_)) return error_key_too_long;
    row_buffer_.clear();
    share_->rows().encode(new_record, row_buffer_);
    if (old_key_ == new_key_) {
        value_buffer_.clear();
        share_->rows().encode(old_record, value_buffer_);
        if (value_buffer_ == row_buffer_) return HA_ERR_RECORD_IS_THE_SAME;
    }
    if (int error = check_duplicates(new_record, &old_key_, old_record)) return error;

    const alluvium_keyspace *rows = share_->primary_keyspace();
    until_ms_ = expiry(new_record);
    if (old_key_ != new_key_)
        if (int error = transaction_->remove(rows, old_key_, Tracking::Locked)) return error;
    if (int error = put_pair(rows, new_key_, row_buffer_, Tracking::Locked)) return error;
    if (int error = update_entries(old_record, new_record)) return error;
    // ON DUPLICATE KEY UPDATE is an insert and raises the counter; UPDATE does not.
    return overwrites_ && new_record == table->record[0] ? raise_numbers() : 0;
}

// Locks the unique entry `old_entry_key_`. `owner` is the row that it leads to: another one than
// `old_key_` if that row has expired since the statement read it.
int ha_alluvium::lock_entry(uint number, std::string &owner) {
    Value value;
    owner = old_key_;
    int error = transaction_->get_newest(share_->keyspace(number), old_entry_key_,
                                         RowLock::Exclusive, value);
    if (error || !value) return error;
    bool leads = share_->index(number).row_key(Bytes(old_entry_key_), bytes_of(value), owner);
    return leads ? 0 : HA_ERR_CRASHED;
}

// Removes the entry `old_entry_key_`; `locks`: it is unique.
int ha_alluvium::remove_entry(uint number, bool locks) {
    std::string owner = old_key_;
    if (locks)
        if (int error = lock_entry(number, owner)) return error;
    if (owner != old_key_) return 0;
    return transaction_->remove(share_->keyspace(number), old_entry_key_, Tracking::Untracked);
}

// Replaces the entries of a row, from `old_key_` to `new_key_`. Entries that stay are not written,
// unless they expire at another time from now on.
int ha_alluvium::update_entries(const uchar *old_record, const uchar *new_record) {
    bool new_time = expiry(old_record) != until_ms_;
    for (uint i = 0; i < table->s->keys; i++) {
        if (is_primary(i)) continue;
        const IndexCodec &index = share_->index(i);
        const alluvium_keyspace *keyspace = share_->keyspace(i);
        bool locks = index.encode(old_record, old_key_, old_entry_key_, old_entry_value_);
        index.encode(new_record, new_key_, key_buffer_, value_buffer_);
        if (too_long(key_buffer_)) return error_key_too_long;
        int error = 0;
        if (old_entry_key_ != key_buffer_) {
            error = remove_entry(i, locks);
            if (!error)
                error = insert_pair(keyspace, key_buffer_, value_buffer_, Tracking::Untracked);
        } else if (old_entry_value_ != value_buffer_ || new_time) {
            // The entry may lead to another row from now on.
            std::string owner = old_key_;
            if (locks) error = lock_entry(i, owner);
            if (!error && owner != old_key_) error = found_duplicate(i, owner, nullptr);
            if (!error)
                error = put_pair(keyspace, key_buffer_, value_buffer_, Tracking::Untracked);
        }
        if (error) return error;
    }
    return 0;
}

int ha_alluvium::delete_row(const uchar *record) {
    if (share_->primary().is_hidden()) old_key_ = row_key_;
    else share_->primary().encode(record, 0, old_key_);
    int error = transaction_->remove(share_->primary_keyspace(), old_key_, Tracking::Locked);
    for (uint i = 0; !error && i < table->s->keys; i++) {
        if (is_primary(i)) continue;
        bool locks = share_->index(i).encode(record, old_key_, old_entry_key_, old_entry_value_);
        error = remove_entry(i, locks);
    }
    if (!error) share_->count_rows(-1);
    return error;
}

} // namespace alluvium_sql
