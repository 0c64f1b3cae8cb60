// SPDX-License-Identifier: GPL-2.0-only
//
// System and status variables.

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

// Counters of the whole database.
struct Status {
    ulonglong memory_used, cache_used, cache_hits, cache_misses, flushes, compactions,
        table_bytes_written, delayed_commits, row_locks, keyspaces;
};

Status status;

int fill_status(THD *, SHOW_VAR *out, char *) {
    static st_mysql_show_var variables[] = {
        {"memory_used", reinterpret_cast<char *>(&status.memory_used), SHOW_LONGLONG},
        {"cache_used", reinterpret_cast<char *>(&status.cache_used), SHOW_LONGLONG},
        {"cache_hits", reinterpret_cast<char *>(&status.cache_hits), SHOW_LONGLONG},
        {"cache_misses", reinterpret_cast<char *>(&status.cache_misses), SHOW_LONGLONG},
        {"flushes", reinterpret_cast<char *>(&status.flushes), SHOW_LONGLONG},
        {"compactions", reinterpret_cast<char *>(&status.compactions), SHOW_LONGLONG},
        {"table_bytes_written", reinterpret_cast<char *>(&status.table_bytes_written),
         SHOW_LONGLONG},
        {"delayed_commits", reinterpret_cast<char *>(&status.delayed_commits), SHOW_LONGLONG},
        {"row_locks", reinterpret_cast<char *>(&status.row_locks), SHOW_LONGLONG},
        {"keyspaces", reinterpret_cast<char *>(&status.keyspaces), SHOW_LONGLONG},
        {nullptr, nullptr, SHOW_UNDEF},
    };
    alluvium_stats stats = {};
    stats.struct_size = sizeof stats;
    ErrorPlace error;
    if (alluvium_get_stats(engine.database, &stats, error.out()) != ALLUVIUM_CODE_OK)
        log_failure("read the engine's counters", error);
    status = {stats.memory.total_bytes, stats.cache_used_bytes, stats.cache_hits,
              stats.cache_misses,       stats.flushes,          stats.compactions,
              stats.table_bytes_written, stats.delayed_commits, stats.row_locks,
              stats.keyspaces};
    out->type = SHOW_ARRAY;
    out->value = reinterpret_cast<char *>(variables);
    return 0;
}

} // namespace

alluvium_durability commit_durability() {
    return settings.flush_log_at_trx_commit == 1 ? ALLUVIUM_DURABILITY_SYNC
                                                 : ALLUVIUM_DURABILITY_BUFFERED;
}

int64_t lock_timeout_ms(THD *thd) {
    ulong seconds = THDVAR(thd, lock_wait_timeout);
    return seconds == 0 ? ALLUVIUM_NO_WAIT : static_cast<int64_t>(seconds) * 1000;
}

bool bulk_load_wanted(THD *thd) { return THDVAR(thd, bulk_load); }

st_mysql_sys_var *system_variables[] = {
    MYSQL_SYSVAR(memory_bytes),      MYSQL_SYSVAR(flush_log_at_trx_commit),
    MYSQL_SYSVAR(compaction_threads), MYSQL_SYSVAR(datadir),
    MYSQL_SYSVAR(settle_now),        MYSQL_SYSVAR(lock_wait_timeout),
    MYSQL_SYSVAR(bulk_load),         nullptr,
};

st_mysql_show_var status_variables[] = {
    {"alluvium", reinterpret_cast<char *>(&fill_status), SHOW_FUNC},
    {nullptr, nullptr, SHOW_UNDEF},
};

} // namespace alluvium_sql
