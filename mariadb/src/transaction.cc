// SPDX-License-Identifier: GPL-2.0-only

#include "transaction.h"

#include <chrono>
#include <thread>

#include "engine.h"
#include "errors.h"
#include "lock_waits.h"

namespace alluvium_sql {

bool in_long_transaction(THD *thd) {
    return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

std::string xid_bytes(const XID &xid) {
    std::string out;
    append_big(out, 4, static_cast<uint32_t>(xid.formatID));
    out.push_back(static_cast<char>(xid.gtrid_length));
    out.push_back(static_cast<char>(xid.bqual_length));
    out.append(xid.data, static_cast<size_t>(xid.gtrid_length + xid.bqual_length));
    return out;
}

bool xid_of_bytes(const uint8_t *data, size_t size, XID &xid) {
    constexpr size_t header = 6;
    if (size < header) return false;
    size_t parts = static_cast<size_t>(data[4]) + data[5];
    if (size != header + parts || parts > XIDDATASIZE) return false;
    xid.formatID = static_cast<int32_t>(load_big(data, 4));
    xid.gtrid_length = data[4];
    xid.bqual_length = data[5];
    memcpy(xid.data, data + header, parts);
    return true;
}

Transaction *Transaction::existing(THD *thd) {
    return static_cast<Transaction *>(thd_get_ha_data(thd, engine.hton));
}

Transaction &Transaction::of(THD *thd) {
    Transaction *transaction = existing(thd);
    if (!transaction) {
        transaction = new Transaction(thd);
        transaction->tag_ = add_connection(thd, transaction);
        thd_set_ha_data(thd, engine.hton, transaction);
    }
    return *transaction;
}

void Transaction::close(THD *thd) {
    Transaction *transaction = existing(thd);
    if (!transaction) return;
    remove_connection(transaction->tag_);
    // The server holds LOCK_thd_data around kill_query, and thd_set_ha_data takes it: after this
    // call no kill uses the object.
    thd_set_ha_data(thd, engine.hton, nullptr);
    delete transaction;
}

int Transaction::begin(ReadPoint read_point) {
    alluvium_transaction_options options = {};
    options.struct_size = sizeof options;
    read_committed_ = thd_tx_isolation(thd_) <= ISO_READ_COMMITTED;
    options.isolation = read_committed_ ? ALLUVIUM_ISOLATION_READ_COMMITTED
                                        : ALLUVIUM_ISOLATION_SNAPSHOT;
    options.durability = commit_durability();
    lock_timeout_ms_ = lock_timeout_ms(thd_);
    options.lock_timeout_ms = lock_timeout_ms_;
    renew_cancel();
    options.cancel = cancel_.get();
    options.late_read_point = read_point == ReadPoint::FirstRead && !read_committed_;
    options.tag = tag_;
    ErrorPlace error;
    alluvium_code code = alluvium_begin(engine.database, &options, into(txn_), error.out());
    if (txn_) begun_us_.store(microsecond_interval_timer(), std::memory_order_relaxed);
    return handler_error(code, error, thd_);
}

// Replaces a canceled token. Returns true if it did.
bool Transaction::renew_cancel() {
    std::lock_guard<std::mutex> guard(cancel_mutex_);
    if (cancel_ && !alluvium_lock_cancel_is_canceled(cancel_.get())) return false;
    cancel_.reset(alluvium_lock_cancel_new());
    return true;
}

void Transaction::cancel_waits() {
    std::lock_guard<std::mutex> guard(cancel_mutex_);
    if (cancel_) alluvium_lock_cancel_cancel(cancel_.get());
}

int Transaction::enter_statement() {
    if (thd_tx_isolation(thd_) == ISO_SERIALIZABLE) return error_serializable;
    trans_register_ha(thd_, false, engine.hton, 0);
    if (in_long_transaction(thd_)) trans_register_ha(thd_, true, engine.hton, 0);
    if (in_statement_ || prepared_) return 0;
    in_statement_ = true;
    int error = txn_ ? set_lock_limits() : begin(ReadPoint::FirstRead);
    if (!error && read_committed_) error = set_read_point();
    return error;
}

// Gives an open transaction what the statement has changed: the lock timeout, a token after a kill.
int Transaction::set_lock_limits() {
    ErrorPlace error;
    alluvium_code code = ALLUVIUM_CODE_OK;
    int64_t timeout = lock_timeout_ms(thd_);
    if (timeout != lock_timeout_ms_)
        code = alluvium_transaction_set_lock_timeout(txn_.get(), timeout, error.out());
    lock_timeout_ms_ = timeout;
    if (code == ALLUVIUM_CODE_OK && renew_cancel())
        code = alluvium_transaction_set_cancel(txn_.get(), cancel_.get(), error.out());
    return handler_error(code, error, thd_);
}

// At READ COMMITTED all plain reads of one statement see one commit.
int Transaction::set_read_point() {
    Owned<alluvium_snapshot> snapshot;
    ErrorPlace error;
    alluvium_code code =
        alluvium_snapshot_open(engine.database, into(snapshot), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_transaction_set_read_point(txn_.get(), snapshot.get(), error.out());
    return handler_error(code, error, thd_);
}

int Transaction::begin_consistent_snapshot() {
    trans_register_ha(thd_, true, engine.hton, 0);
    return txn_ ? 0 : begin(ReadPoint::Now);
}

int Transaction::check_read_point(uint64_t since) {
    // At READ COMMITTED a statement takes its read point after it has opened its tables.
    if (!txn_ || read_committed_) return 0;
    uint64_t seqno = 0;
    ErrorPlace error;
    alluvium_code code = alluvium_transaction_read_point(txn_.get(), &seqno, error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, thd_);
    return seqno && seqno < since ? HA_ERR_TABLE_DEF_CHANGED : 0;
}

int Transaction::get(const alluvium_keyspace *keyspace, const std::string &key, Value &value) {
    ErrorPlace error;
    alluvium_reader reader = alluvium_transaction_reader(txn_.get(), keyspace);
    return handler_error(alluvium_get(reader, key.data(), key.size(), into(value), error.out()),
                         error, thd_);
}

int Transaction::multi_get(const alluvium_keyspace *keyspace,
                           const std::vector<alluvium_slice> &keys,
                           std::vector<alluvium_value *> &values) {
    ErrorPlace error;
    alluvium_reader reader = alluvium_transaction_reader(txn_.get(), keyspace);
    values.assign(keys.size(), nullptr);
    return handler_error(
        alluvium_multi_get(reader, keys.data(), keys.size(), values.data(), error.out()), error,
        thd_);
}

int Transaction::open_cursor(const alluvium_keyspace *keyspace,
                             const alluvium_cursor_options &options, Cursor &cursor) {
    ErrorPlace error;
    alluvium_reader reader = alluvium_transaction_reader(txn_.get(), keyspace);
    return handler_error(alluvium_cursor_open(reader, &options, into(cursor), error.out()), error,
                         thd_);
}

// Locks a row and reads it as the statement has to see it.
alluvium_code Transaction::lock_and_read(const alluvium_keyspace *keyspace, const std::string &key,
                                         RowLock lock, Value &value, ErrorPlace &error) {
    bool exclusive = lock == RowLock::Exclusive;
    if (read_committed_)
        return alluvium_transaction_get_newest_locked(
            txn_.get(), keyspace, key.data(), key.size(),
            exclusive ? ALLUVIUM_LOCK_MODE_EXCLUSIVE : ALLUVIUM_LOCK_MODE_SHARED, into(value),
            error.out());
    if (exclusive)
        return alluvium_transaction_get_for_update(txn_.get(), keyspace, key.data(), key.size(),
                                                   into(value), error.out());
    alluvium_code code = alluvium_transaction_lock(txn_.get(), keyspace, key.data(), key.size(),
                                                   ALLUVIUM_LOCK_MODE_SHARED, error.out());
    if (code != ALLUVIUM_CODE_OK) return code;
    return alluvium_get(alluvium_transaction_reader(txn_.get(), keyspace), key.data(), key.size(),
                        into(value), error.out());
}

int Transaction::get_locked(const alluvium_keyspace *keyspace, const std::string &key,
                            RowLock lock, Value &value) {
    if (int error = before_write()) return error;
    ErrorPlace error;
    return handler_error(lock_and_read(keyspace, key, lock, value, error), error, thd_);
}

int Transaction::get_unless_locked(const alluvium_keyspace *keyspace, const std::string &key,
                                   RowLock lock, Value &value, bool &skipped) {
    skipped = false;
    if (int error = before_write()) return error;
    ErrorPlace limit_error, error, restore_error;
    alluvium_code code = alluvium_transaction_set_lock_timeout(txn_.get(), ALLUVIUM_NO_WAIT,
                                                               limit_error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, limit_error, thd_);
    code = lock_and_read(keyspace, key, lock, value, error);
    alluvium_code restored = alluvium_transaction_set_lock_timeout(txn_.get(), lock_timeout_ms_,
                                                                   restore_error.out());
    if (restored != ALLUVIUM_CODE_OK) return handler_error(restored, restore_error, thd_);
    skipped = code == ALLUVIUM_CODE_LOCK_TIMEOUT || code == ALLUVIUM_CODE_CONFLICT;
    return skipped ? 0 : handler_error(code, error, thd_);
}

int Transaction::get_newest(const alluvium_keyspace *keyspace, const std::string &key,
                            RowLock lock, Value &value) {
    if (int error = before_write()) return error;
    ErrorPlace error;
    alluvium_lock_mode mode = lock == RowLock::Exclusive ? ALLUVIUM_LOCK_MODE_EXCLUSIVE
                                                         : ALLUVIUM_LOCK_MODE_SHARED;
    return handler_error(alluvium_transaction_get_newest_locked(txn_.get(), keyspace, key.data(),
                                                                key.size(), mode, into(value),
                                                                error.out()),
                         error, thd_);
}

int Transaction::get_for_insert(const alluvium_keyspace *keyspace, const std::string &key,
                                bool overwrites, Value &value) {
    if (read_committed_) return get_newest(keyspace, key, RowLock::Exclusive, value);
    if (int error = before_write()) return error;
    ErrorPlace error;
    alluvium_code code = alluvium_transaction_get_for_update(txn_.get(), keyspace, key.data(),
                                                             key.size(), into(value), error.out());
    if (code != ALLUVIUM_CODE_CONFLICT || overwrites) return handler_error(code, error, thd_);
    // A row newer than the read point is a duplicate all the same. This read leaves no lock: with
    // one, a later update of the row would not be checked.
    ErrorPlace read_error;
    alluvium_reader reader = alluvium_keyspace_reader(keyspace);
    alluvium_code read = alluvium_get(reader, key.data(), key.size(), into(value),
                                      read_error.out());
    if (read != ALLUVIUM_CODE_OK) return handler_error(read, read_error, thd_);
    return value ? 0 : handler_error(code, error, thd_);
}

int Transaction::insert_new(const alluvium_keyspace *keyspace, const std::string &key,
                            const std::string &value, Value &existing) {
    if (int error = before_write()) return error;
    ErrorPlace error;
    return handler_error(alluvium_transaction_insert_new(txn_.get(), keyspace, key.data(),
                                                         key.size(), value.data(), value.size(),
                                                         into(existing), error.out()),
                         error, thd_);
}

void Transaction::unlock_row(const alluvium_keyspace *keyspace, const std::string &key) {
    if (!txn_) return;
    bool released = false;
    ErrorPlace error;
    if (alluvium_transaction_unlock(txn_.get(), keyspace, key.data(), key.size(), &released,
                                    error.out()) != ALLUVIUM_CODE_OK)
        log_failure("give back a row lock", error);
}

int Transaction::before_write() {
    if (has_statement_savepoint_ || !in_long_transaction(thd_)) return 0;
    if (int error = set_savepoint(statement_savepoint_)) return error;
    has_statement_savepoint_ = true;
    return 0;
}

alluvium_writer Transaction::writer(const alluvium_keyspace *keyspace, Tracking tracking) const {
    return tracking == Tracking::Locked
               ? alluvium_transaction_writer(txn_.get(), keyspace)
               : alluvium_transaction_writer_untracked(txn_.get(), keyspace);
}

int Transaction::put(const alluvium_keyspace *keyspace, const std::string &key,
                     const std::string &value, Tracking tracking) {
    if (int error = before_write()) return error;
    ErrorPlace error;
    return handler_error(alluvium_put(writer(keyspace, tracking), key.data(), key.size(),
                                      value.data(), value.size(), error.out()),
                         error, thd_);
}

int Transaction::insert(const alluvium_keyspace *keyspace, const std::string &key,
                        const std::string &value, Tracking tracking) {
    if (int error = before_write()) return error;
    ErrorPlace error;
    return handler_error(alluvium_insert(writer(keyspace, tracking), key.data(), key.size(),
                                         value.data(), value.size(), error.out()),
                         error, thd_);
}

int Transaction::put_until(const alluvium_keyspace *keyspace, const std::string &key,
                           const std::string &value, uint64_t until_ms, Tracking tracking) {
    if (int error = before_write()) return error;
    ErrorPlace error;
    return handler_error(alluvium_put_until(writer(keyspace, tracking), key.data(), key.size(),
                                            value.data(), value.size(), until_ms, error.out()),
                         error, thd_);
}

int Transaction::remove(const alluvium_keyspace *keyspace, const std::string &key,
                        Tracking tracking) {
    if (int error = before_write()) return error;
    ErrorPlace error;
    return handler_error(
        alluvium_delete(writer(keyspace, tracking), key.data(), key.size(), error.out()), error,
        thd_);
}

void Transaction::forget() {
    txn_.reset();
    prepared_.reset();
    begun_us_.store(0, std::memory_order_relaxed);
    ordered_ = false;
    in_statement_ = false;
    has_statement_savepoint_ = false;
    savepoints_.clear();
    copied_.clear();
}

int Transaction::commit() {
    ErrorPlace error;
    alluvium_code code = ALLUVIUM_CODE_OK;
    if (prepared_) code = alluvium_prepared_commit(prepared_.get(), error.out());
    else if (txn_) code = alluvium_transaction_commit(txn_.get(), error.out());
    if (code == ALLUVIUM_CODE_OK)
        for (const TableEntry &entry : copied_) engine.dictionary->note_copied(entry);
    if (ordered_ && code != ALLUVIUM_CODE_OK) {
        // The commit is in the binary log and numbered. This call only waits, so nothing is lost.
        log_failure("wait for an ordered commit", error);
        code = ALLUVIUM_CODE_OK;
    }
    forget();
    return handler_error(code, error, thd_);
}

int Transaction::rollback() {
    ErrorPlace error;
    alluvium_code code = ALLUVIUM_CODE_OK;
    if (prepared_) code = alluvium_prepared_rollback(prepared_.get(), error.out());
    else if (txn_) code = alluvium_transaction_rollback(txn_.get(), error.out());
    forget();
    return handler_error(code, error, nullptr);
}

int Transaction::prepare(const std::string &xid) {
    if (!txn_) return 0;
    ErrorPlace error;
    alluvium_code code =
        alluvium_transaction_prepare_with(txn_.get(), xid.data(), xid.size(), commit_durability(),
                                          into(prepared_), error.out());
    // Prepared or rolled back by the failure: the transaction has ended either way.
    txn_.reset();
    has_statement_savepoint_ = false;
    savepoints_.clear();
    return handler_error(code, error, thd_);
}

void Transaction::commit_ordered() {
    if (!prepared_) return;
    for (bool told = false;; told = true) {
        ErrorPlace error;
        alluvium_code code = alluvium_prepared_commit_ordered(prepared_.get(), error.out());
        if (code == ALLUVIUM_CODE_OK) break;
        if (code != ALLUVIUM_CODE_NO_SPACE || !told)
            log_failure("commit in the order of the binary log", error);
        // The binary log already promises this commit to replicas, so it waits for room on a full
        // device. After any other error only a restart, which decides the prepared transaction by
        // the binary log, keeps the promise.
        if (code != ALLUVIUM_CODE_NO_SPACE) abort();
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    ordered_ = true;
}

void Transaction::end_statement() {
    in_statement_ = false;
    release_statement_savepoint();
}

void Transaction::release_statement_savepoint() {
    if (!txn_ || !has_statement_savepoint_) return;
    has_statement_savepoint_ = false;
    // An error was logged, and the savepoint of a statement that has ended is used by no one.
    (void)release(statement_savepoint_);
}

int Transaction::rollback_statement() {
    int error = txn_ && has_statement_savepoint_ ? rollback_to(statement_savepoint_) : 0;
    end_statement();
    return error;
}

int Transaction::set_savepoint(uint64_t &savepoint) {
    ErrorPlace error;
    alluvium_code code = alluvium_transaction_savepoint(txn_.get(), &savepoint, error.out());
    if (code == ALLUVIUM_CODE_OK) savepoints_.push_back({savepoint, false});
    return handler_error(code, error, thd_);
}

int Transaction::rollback_to(uint64_t savepoint) {
    ErrorPlace error;
    alluvium_code code =
        alluvium_transaction_rollback_to(txn_.get(), savepoint, error.out());
    if (code == ALLUVIUM_CODE_OK)
        while (!savepoints_.empty() && savepoints_.back().number > savepoint) savepoints_.pop_back();
    return handler_error(code, error, thd_);
}

int Transaction::release(uint64_t savepoint) {
    for (Savepoint &held : savepoints_)
        if (held.number == savepoint) held.released = true;
    // The engine releases all later savepoints with one, and the server keeps those that follow a
    // savepoint whose name is used again.
    while (!savepoints_.empty() && savepoints_.back().released) {
        uint64_t newest = savepoints_.back().number;
        savepoints_.pop_back();
        ErrorPlace error;
        alluvium_code code = alluvium_transaction_release(txn_.get(), newest, error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, thd_);
    }
    return 0;
}

} // namespace alluvium_sql
