// SPDX-License-Identifier: GPL-2.0-only
//
// Transaction of one connection: the only file that begins, ends and configures transactions of the
// C interface.
//
// A statement enters with `enter_statement`, which begins a transaction if there is none. Before
// the first write or lock of a statement within a longer transaction, a savepoint is set: the
// rollback of the statement alone goes back to it. Functions return 0 or an error of the handler.

#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "compat.h"
#include "dictionary_rows.h"
#include "errors.h"
#include "handles.h"

namespace alluvium_sql {

// Lock that a statement takes on each row that it reads.
enum class RowLock { None, Shared, Exclusive };

// Locked: the writer locks the row and checks for conflicts. Untracked: the caller has locked the
// row whose index entry this is.
enum class Tracking { Locked, Untracked };

class Transaction {
public:
    // Returns the transaction of a connection, made at the first call.
    static Transaction &of(THD *thd);
    // Returns null if the connection has not used the engine yet.
    static Transaction *existing(THD *thd);
    // Ends the connection's use of the engine. A prepared transaction stays prepared.
    static void close(THD *thd);

    // Registers the statement with the server and begins a transaction if there is none.
    int enter_statement();
    // Begins a transaction whose reads see the state at this moment.
    int begin_consistent_snapshot();
    bool is_open() const { return txn_ != nullptr; }
    // Returns the microsecond at which the open transaction began; 0 without one. For any thread.
    uint64_t begun_us() const { return begun_us_; }

    // HA_ERR_TABLE_DEF_CHANGED if the transaction reads as of a commit before this one.
    int check_read_point(uint64_t since);

    // -- Reads. The value is null if there is no row.
    int get(const alluvium_keyspace *keyspace, const std::string &key, Value &value);
    int multi_get(const alluvium_keyspace *keyspace, const std::vector<alluvium_slice> &keys,
                  std::vector<alluvium_value *> &values);
    int open_cursor(const alluvium_keyspace *keyspace, const alluvium_cursor_options &options,
                    Cursor &cursor);
    // Locks the row and reads it as the statement has to see it.
    int get_locked(const alluvium_keyspace *keyspace, const std::string &key, RowLock lock,
                   Value &value);
    // Does the same without waiting: `skipped` if another transaction has locked the row, or has
    // changed it since the read point.
    int get_unless_locked(const alluvium_keyspace *keyspace, const std::string &key, RowLock lock,
                          Value &value, bool &skipped);
    // Locks the key and reads its newest row, whatever the transaction's read point is.
    int get_newest(const alluvium_keyspace *keyspace, const std::string &key, RowLock lock,
                   Value &value);
    // Locks a key that the caller wants to insert, and reads its newest row. A conflict with the
    // read point is an error if there is no row, or if `overwrites`: the caller changes it.
    int get_for_insert(const alluvium_keyspace *keyspace, const std::string &key, bool overwrites,
                       Value &value);
    // Gives back the lock of a row that the statement has read and refused.
    void unlock_row(const alluvium_keyspace *keyspace, const std::string &key);

    // -- Writes. `insert` is for a key that the caller knows to be absent.
    int put(const alluvium_keyspace *keyspace, const std::string &key, const std::string &value,
            Tracking tracking);
    int insert(const alluvium_keyspace *keyspace, const std::string &key, const std::string &value,
               Tracking tracking);
    // Writes a row that expires at a time, in milliseconds since 1970.
    int put_until(const alluvium_keyspace *keyspace, const std::string &key,
                  const std::string &value, uint64_t until_ms, Tracking tracking);
    // Locks the key and inserts the row, unless there is one: then `existing` gets its value.
    int insert_new(const alluvium_keyspace *keyspace, const std::string &key,
                   const std::string &value, Value &existing);
    int remove(const alluvium_keyspace *keyspace, const std::string &key, Tracking tracking);

    // -- Ends.
    int commit();
    int rollback();
    int prepare(const std::string &xid);
    void commit_ordered();
    // The statement copies rows into this new table or partition. From its commit on, older read
    // points must not use it: they would miss rows.
    void note_copy(const TableEntry &entry) { copied_.push_back(entry); }
    void end_statement();
    int rollback_statement();

    int set_savepoint(uint64_t &savepoint);
    int rollback_to(uint64_t savepoint);
    int release(uint64_t savepoint);

    // Ends the lock wait of this connection's statement. The only call from another thread.
    void cancel_waits();

private:
    explicit Transaction(THD *thd) : thd_(thd) {}
    ~Transaction() = default;

    enum class ReadPoint { FirstRead, Now };
    int begin(ReadPoint read_point);
    alluvium_code lock_and_read(const alluvium_keyspace *keyspace, const std::string &key,
                                RowLock lock, Value &value, ErrorPlace &error);
    int before_write();
    void forget();
    bool renew_cancel();
    int set_lock_limits();
    int set_read_point();
    void release_statement_savepoint();
    alluvium_writer writer(const alluvium_keyspace *keyspace, Tracking tracking) const;

    THD *const thd_;
    // Names the connection in reports of lock waits.
    uint64_t tag_ = 0;
    Owned<alluvium_transaction> txn_;
    Owned<alluvium_prepared> prepared_;
    // `commit_ordered` has committed: `commit` only waits until the commit is visible.
    bool ordered_ = false;
    bool read_committed_ = false;
    std::atomic<uint64_t> begun_us_{0};
    bool in_statement_ = false;
    int64_t lock_timeout_ms_ = 0;
    bool has_statement_savepoint_ = false;
    uint64_t statement_savepoint_ = 0;
    // Savepoints of the engine, in the order of their numbers.
    struct Savepoint {
        uint64_t number;
        bool released;
    };
    std::vector<Savepoint> savepoints_;
    std::vector<TableEntry> copied_;
    // Guards `cancel_`, which cancel_waits reads on another connection's thread.
    std::mutex cancel_mutex_;
    Owned<alluvium_lock_cancel> cancel_;
};

// Returns true if the connection is within a transaction of several statements.
bool in_long_transaction(THD *thd);

// Bytes of an id of the server for a prepared transaction, and back. False: not an id of the
// server.
std::string xid_bytes(const XID &xid);
bool xid_of_bytes(const uint8_t *data, size_t size, XID &xid);

} // namespace alluvium_sql
