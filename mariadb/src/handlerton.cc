// SPDX-License-Identifier: GPL-2.0-only
//
// Functions that the server calls for the whole engine: ends of transactions, savepoints, recovery.
//
// The server ends statements and transactions by the same calls. `all` false within a transaction
// of several statements means the statement alone.

#include "checkpoint.h"
#include "engine.h"
#include "errors.h"
#include "transaction.h"

namespace alluvium_sql {

namespace {

// Results of the XA interface: X/Open CAE Specification, Distributed Transaction Processing.
constexpr int xa_ok = 0;
constexpr int xa_resource_error = -3;
constexpr int xa_unknown_id = -4;
constexpr int xa_resource_unavailable = -7;

bool ends_transaction(THD *thd, bool all) { return all || !in_long_transaction(thd); }

int commit(handlerton *, THD *thd, bool all) {
    Transaction &transaction = Transaction::of(thd);
    if (ends_transaction(thd, all)) return transaction.commit();
    transaction.end_statement();
    return 0;
}

int rollback(handlerton *, THD *thd, bool all) {
    Transaction &transaction = Transaction::of(thd);
    return ends_transaction(thd, all) ? transaction.rollback() : transaction.rollback_statement();
}

int prepare(handlerton *, THD *thd, bool all) {
    if (!ends_transaction(thd, all)) return 0;
    MYSQL_XID xid;
    thd_get_xid(thd, &xid);
    return Transaction::of(thd).prepare(xid_bytes(*reinterpret_cast<XID *>(&xid)));
}

// With a binary log the server calls this under the lock that orders it. Without one it is not
// called.
void commit_ordered(handlerton *, THD *thd, bool all) {
    if (ends_transaction(thd, all)) Transaction::of(thd).commit_ordered();
}

// The server repeats the call while the list comes back full, so the place in the list is kept.
// Called only while the server starts, by one thread.
int recover(handlerton *, XID *list, uint length) {
    static List prepared;
    static size_t next = 0;
    if (!prepared) {
        ErrorPlace error;
        if (alluvium_prepared_list(engine.database, into(prepared), error.out()) !=
            ALLUVIUM_CODE_OK) {
            log_failure("list prepared transactions", error);
            return 0;
        }
    }
    uint count = 0;
    while (next < alluvium_list_count(prepared.get()) && count < length) {
        size_t size = 0;
        const uint8_t *data = alluvium_list_item(prepared.get(), next++, &size);
        if (xid_of_bytes(data, size, list[count])) count++;
    }
    if (count == 0 || count < length) {
        prepared.reset();
        next = 0;
    }
    return static_cast<int>(count);
}

enum class Decision { Commit, Rollback };

int decide_by_xid(const XID &xid, Decision decision) {
    std::string id = xid_bytes(xid);
    Owned<alluvium_prepared> prepared;
    ErrorPlace taking;
    alluvium_code code = alluvium_prepared_take(engine.database, id.data(), id.size(),
                                                into(prepared), taking.out());
    if (code == ALLUVIUM_CODE_INVALID_ARGUMENT) return xa_unknown_id;
    if (code != ALLUVIUM_CODE_OK) {
        log_failure("take a prepared transaction", taking);
        return xa_resource_error;
    }
    ErrorPlace deciding;
    code = decision == Decision::Commit
               ? alluvium_prepared_commit(prepared.get(), deciding.out())
               : alluvium_prepared_rollback(prepared.get(), deciding.out());
    if (code == ALLUVIUM_CODE_OK) return xa_ok;
    log_failure("decide on a prepared transaction", deciding);
    return xa_resource_unavailable;
}

int commit_by_xid(handlerton *, XID *xid) { return decide_by_xid(*xid, Decision::Commit); }
int rollback_by_xid(handlerton *, XID *xid) { return decide_by_xid(*xid, Decision::Rollback); }

// The server removes a binary log after this: every commit in it has to be on the device.
void commit_checkpoint_request(void *cookie) {
    ErrorPlace error;
    if (alluvium_sync(engine.database, error.out()) == ALLUVIUM_CODE_OK)
        commit_checkpoint_notify_ha(cookie);
    else
        log_failure("sync for a checkpoint of the binary log", error);
}

bool flush_logs(handlerton *) {
    ErrorPlace error;
    if (alluvium_sync(engine.database, error.out()) == ALLUVIUM_CODE_OK)
        return checkpoint_for_backup(current_thd);
    log_failure("sync the log", error);
    return true;
}

int savepoint_set(handlerton *, THD *thd, void *place) {
    Transaction &transaction = Transaction::of(thd);
    if (int error = transaction.enter_statement()) return error;
    return transaction.set_savepoint(*static_cast<uint64_t *>(place));
}

int savepoint_rollback(handlerton *, THD *thd, void *place) {
    Transaction &transaction = Transaction::of(thd);
    transaction.end_statement();
    return transaction.rollback_to(*static_cast<uint64_t *>(place));
}

// Rows changed after the savepoint are unlocked with it, so nothing needs the metadata locks.
bool savepoint_rollback_can_release_mdl(handlerton *, THD *) { return true; }

int savepoint_release(handlerton *, THD *thd, void *place) {
    Transaction &transaction = Transaction::of(thd);
    transaction.end_statement();
    return transaction.release(*static_cast<uint64_t *>(place));
}

int start_consistent_snapshot(handlerton *, THD *thd) {
    return Transaction::of(thd).begin_consistent_snapshot();
}

int close_connection(handlerton *, THD *thd) {
    Transaction::close(thd);
    return 0;
}

void kill_query(handlerton *, THD *thd, enum thd_kill_levels) {
    if (Transaction *transaction = Transaction::existing(thd)) transaction->cancel_waits();
}

bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type) {
    return type == HA_ENGINE_STATUS && show_engine_status(thd, print);
}

// Called when the server has crashed within an ALTER TABLE: 0 means that it had succeeded.
int check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong old_version) {
    TableEntry entry;
    if (engine.dictionary->read(table_name(path), entry)) return 2;
    return entry.version == old_version;
}

// Called at DROP TABLE, also for a table without a usable definition.
int drop_table(handlerton *, const char *path) {
    return engine.dictionary->drop(table_name(path));
}

} // namespace

void set_handlerton_functions(handlerton *hton) {
    hton->savepoint_offset = sizeof(uint64_t);
    hton->close_connection = close_connection;
    hton->kill_query = kill_query;
    hton->commit = commit;
    hton->rollback = rollback;
    hton->prepare = prepare;
    hton->commit_ordered = commit_ordered;
    hton->recover = recover;
    hton->commit_by_xid = commit_by_xid;
    hton->rollback_by_xid = rollback_by_xid;
    hton->commit_checkpoint_request = commit_checkpoint_request;
    hton->flush_logs = flush_logs;
    hton->savepoint_set = savepoint_set;
    hton->savepoint_rollback = savepoint_rollback;
    hton->savepoint_rollback_can_release_mdl = savepoint_rollback_can_release_mdl;
    hton->savepoint_release = savepoint_release;
    hton->start_consistent_snapshot = start_consistent_snapshot;
    hton->show_status = show_status;
    hton->check_version = check_version;
    hton->drop_table = drop_table;
}

} // namespace alluvium_sql
