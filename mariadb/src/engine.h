// SPDX-License-Identifier: GPL-2.0-only
//
// The open engine: one database in a server, its dictionary and its settings.

#pragma once

#include <memory>

#include <alluvium.h>

#include "compat.h"
#include "dictionary.h"

namespace alluvium_sql {

// Engine of this server. Set when the plugin is loaded, before any other thread can use it.
struct Engine {
    handlerton *hton = nullptr;
    alluvium_database *database = nullptr;
    std::unique_ptr<Dictionary> dictionary;
};

extern Engine engine;

// System variables that hold for the whole server.
struct Settings {
    ulonglong memory_bytes;
    ulong flush_log_at_trx_commit;
    ulong compaction_threads;
    char *data_directory;
};

extern Settings settings;
extern st_mysql_sys_var *system_variables[];
extern st_mysql_show_var status_variables[];

// Returns the durability of a commit: SYNC, or BUFFERED if alluvium_flush_log_at_trx_commit is not
// 1.
alluvium_durability commit_durability();

// Returns the timeout of row locks of a connection, for the options of a transaction.
int64_t lock_timeout_ms(THD *thd);

// Returns true if the connection loads rows past the transaction (alluvium_bulk_load).
bool bulk_load_wanted(THD *thd);

// Fills the handlerton with the functions of handlerton.cc.
void set_handlerton_functions(handlerton *hton);

// SHOW ENGINE ALLUVIUM STATUS.
bool show_engine_status(THD *thd, stat_print_fn *print);

} // namespace alluvium_sql
