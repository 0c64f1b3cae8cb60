// SPDX-License-Identifier: GPL-2.0-only
//
// System variables.

#include "checkpoint.h"
#include "engine.h"
#include "errors.h"

namespace alluvium_sql {

Settings settings;

namespace {

my_bool settle_trigger;

MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                   "Seconds that a statement waits for a row lock; 0: not at all", nullptr,
                   nullptr, 50, 0, 1024 * 1024 * 1024, 0);

MYSQL_THDVAR_BOOL(bulk_load, PLUGIN_VAR_OPCMDARG,
                  "Load rows of LOAD DATA and INSERT SELECT past the transaction, into an empty "
                  "table: faster, but not rolled back after an error",
                  nullptr, nullptr, FALSE);

void set_memory_bytes(THD *, st_mysql_sys_var *, void *target, const void *value) {
    ulonglong bytes = *static_cast<const ulonglong *>(value);
    ErrorPlace error;
    if (engine.database && alluvium_set_memory_bytes(engine.database, bytes, error.out()) !=
                               ALLUVIUM_CODE_OK) {
        my_printf_error(ER_WRONG_ARGUMENTS, "alluvium_memory_bytes: %s", MYF(0),
                        error.text().c_str());
        return;
    }
    *static_cast<ulonglong *>(target) = bytes;
}

void settle(THD *, st_mysql_sys_var *, void *, const void *value) {
    ErrorPlace error;
    if (!*static_cast<const my_bool *>(value)) return;
    if (alluvium_settle(engine.database, error.out()) != ALLUVIUM_CODE_OK)
        my_printf_error(ER_UNKNOWN_ERROR, "alluvium_settle_now: %s", MYF(0), error.text().c_str());
}

MYSQL_SYSVAR_ULONGLONG(memory_bytes, settings.memory_bytes, PLUGIN_VAR_RQCMDARG,
                       "Memory of the engine for everything: caches, memtables, transactions",
                       nullptr, set_memory_bytes, 256ULL << 20, 8ULL << 20, ULONGLONG_MAX, 0);
MYSQL_SYSVAR_ULONG(flush_log_at_trx_commit, settings.flush_log_at_trx_commit, PLUGIN_VAR_OPCMDARG,
                   "1: a commit is on the device when it returns; 0 and 2: a power loss may lose "
                   "the last 100 ms of commits",
                   nullptr, nullptr, 1, 0, 2, 0);
MYSQL_SYSVAR_ULONG(compaction_threads, settings.compaction_threads,
                   PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY, "Number of compaction threads",
                   nullptr, nullptr, 1, 1, 16, 0);
MYSQL_SYSVAR_STR(datadir, settings.data_directory, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                 "Folder of the engine's files, within the server's data folder or absolute",
                 nullptr, nullptr, "./#alluvium");
MYSQL_SYSVAR_BOOL(settle_now, settle_trigger, PLUGIN_VAR_RQCMDARG,
                  "Set to 1 to write all memtables to tables and wait until no compaction is due",
                  nullptr, settle, FALSE);

MYSQL_SYSVAR_STR(create_checkpoint, created_checkpoint, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT,
                 "Set to the path of a new folder to make a copy of the engine's database there, "
                 "while the server runs",
                 create_checkpoint, keep_nothing, nullptr);
MYSQL_SYSVAR_STR(backup_checkpoint, backup_target_value, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT,
                 "Path of a new folder: the next backup that reaches BACKUP STAGE BLOCK_COMMIT, "
                 "such as that of mariadb-backup, makes a copy of the engine's database there",
                 check_backup_target, set_backup_target, nullptr);

} // namespace

alluvium_durability commit_durability() {
    return settings.flush_log_at_trx_commit == 1 ? ALLUVIUM_DURABILITY_SYNC
                                                 : ALLUVIUM_DURABILITY_BUFFERED;
}

namespace {

// NOWAIT and WAIT n are SET STATEMENT lock_wait_timeout=n for the server, and hold for row locks
// too.
bool statement_sets_lock_timeout(THD *thd) {
    List_iterator_fast<set_var_base> variables(thd->lex->stmt_var_list);
    while (set_var_base *variable = variables++)
        if (variable->is_system() &&
            strcmp(static_cast<set_var *>(variable)->var->name.str, "lock_wait_timeout") == 0)
            return true;
    return false;
}

} // namespace

int64_t lock_timeout_ms(THD *thd) {
    ulonglong seconds = statement_sets_lock_timeout(thd) ? thd->variables.lock_wait_timeout
                                                         : THDVAR(thd, lock_wait_timeout);
    return seconds == 0 ? ALLUVIUM_NO_WAIT : static_cast<int64_t>(seconds) * 1000;
}

bool bulk_load_wanted(THD *thd) { return THDVAR(thd, bulk_load); }

st_mysql_sys_var *system_variables[] = {
    MYSQL_SYSVAR(memory_bytes),      MYSQL_SYSVAR(flush_log_at_trx_commit),
    MYSQL_SYSVAR(compaction_threads), MYSQL_SYSVAR(datadir),
    MYSQL_SYSVAR(settle_now),        MYSQL_SYSVAR(lock_wait_timeout),
    MYSQL_SYSVAR(bulk_load),         MYSQL_SYSVAR(create_checkpoint),
    MYSQL_SYSVAR(backup_checkpoint), nullptr,
};

} // namespace alluvium_sql
