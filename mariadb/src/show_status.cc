// SPDX-License-Identifier: GPL-2.0-only
//
// SHOW ENGINE ALLUVIUM STATUS.

#include "engine.h"
#include "errors.h"
#include "handles.h"
#include "lock_waits.h"

namespace alluvium_sql {

namespace {

std::string sizes_text() {
    alluvium_stats stats = {};
    stats.struct_size = sizeof stats;
    ErrorPlace error;
    if (alluvium_get_stats(engine.database, &stats, error.out()) != ALLUVIUM_CODE_OK)
        return error.text() + "\n";
    auto line = [](const char *name, uint64_t value) {
        return std::string(name) + ": " + std::to_string(value) + "\n";
    };
    return line("keyspaces", stats.keyspaces) + line("memory bytes", stats.memory.total_bytes) +
           line("memtable bytes", stats.memory.memtable_bytes) +
           line("cache bytes", stats.memory.cache_bytes) +
           line("transaction bytes", stats.memory.transaction_bytes) +
           line("prepared bytes", stats.memory.prepared_bytes) +
           line("row locks", stats.row_locks) + line("flushes", stats.flushes) +
           line("compactions", stats.compactions) +
           line("delayed commits", stats.delayed_commits);
}

std::string prepared_text() {
    List xids;
    ErrorPlace error;
    if (alluvium_prepared_list(engine.database, into(xids), error.out()) != ALLUVIUM_CODE_OK)
        return error.text() + "\n";
    return "prepared transactions: " + std::to_string(alluvium_list_count(xids.get())) + "\n";
}

} // namespace

bool show_engine_status(THD *thd, stat_print_fn *print) {
    std::string text = std::string("library version: ") + alluvium_version() + "\n" +
                       sizes_text() + prepared_text() + lock_waits_text();
    return print(thd, STRING_WITH_LEN("ALLUVIUM"), STRING_WITH_LEN(""), text.data(), text.size());
}

} // namespace alluvium_sql
