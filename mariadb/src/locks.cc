// SPDX-License-Identifier: GPL-2.0-only
//
// Begin of a statement and its row locks. The server's metadata locks serve LOCK TABLES, so there
// are no table locks here.

#include "engine.h"
#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

namespace {

RowLock lock_of(enum thr_lock_type type) {
    if (type >= TL_FIRST_WRITE) return RowLock::Exclusive;
    bool shared = type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED;
    return shared ? RowLock::Shared : RowLock::None;
}

bool skips_locked(enum thr_lock_type type) {
    return type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
}

// Returns true if the statement relies on metadata locks to keep out all writers of the table.
bool locks_out_writers(THD *thd, int type) {
    switch (thd_sql_command(thd)) {
    case SQLCOM_ALTER_TABLE:
    case SQLCOM_CREATE_INDEX:
    case SQLCOM_DROP_INDEX:
        return true;
    case SQLCOM_LOCK_TABLES:
        return type == F_WRLCK;
    default:
        return false;
    }
}

} // namespace

THR_LOCK_DATA **ha_alluvium::store_lock(THD *, THR_LOCK_DATA **to, enum thr_lock_type type) {
    if (type == TL_IGNORE || type == TL_UNLOCK) return to;
    row_lock_ = lock_of(type);
    skip_locked_ = skips_locked(type);
    return to;
}

int ha_alluvium::external_lock(THD *thd, int type) {
    if (type == F_UNLCK) return 0;
    if (locks_out_writers(thd, type))
        if (int error = engine.dictionary->check_prepared(share_->entry())) return error;
    if (is_sequence()) return 0;
    transaction_ = &Transaction::of(thd);
    return transaction_->enter_statement();
}

// Within LOCK TABLES the server calls this for each statement, instead of external_lock.
int ha_alluvium::start_stmt(THD *thd, thr_lock_type type) {
    row_lock_ = lock_of(type);
    skip_locked_ = skips_locked(type);
    transaction_ = &Transaction::of(thd);
    return transaction_->enter_statement();
}

void ha_alluvium::unlock_row() {
    if (row_lock_ != RowLock::None)
        transaction_->unlock_row(share_->primary_keyspace(), row_key_);
}

} // namespace alluvium_sql
