// SPDX-License-Identifier: GPL-2.0-only
//
// Status variables and SHOW ENGINE ALLUVIUM STATUS: the same numbers, as a list and as text with
// the transactions and lock waits.

#include <algorithm>

#include "engine.h"
#include "errors.h"
#include "handles.h"
#include "lock_waits.h"

namespace alluvium_sql {

namespace {

// Transactions that the text lists.
constexpr size_t transactions_max = 20;

// Each member is the status variable `Alluvium_` + its name. Counters begin at the server's start.
struct Status {
    ulonglong memory_used, memtable_bytes, cache_used, transaction_bytes, cache_hits, cache_misses,
        log_bytes_written, table_bytes_written, flushes, compactions, upper_bytes, last_bytes,
        compaction_backlog_bytes, flush_backlog_bytes, delayed_commits, delay_us, row_locks,
        lock_waits, lock_timeouts, deadlocks, conflicts, transactions, oldest_transaction_s,
        prepared_transactions, newest_commit, oldest_read_commit, keyspaces;
};

// Failures leave zeros and are logged.
Status read_status() {
    alluvium_stats stats = {};
    stats.struct_size = sizeof stats;
    ErrorPlace error;
    if (alluvium_get_stats(engine.database, &stats, error.out()) != ALLUVIUM_CODE_OK)
        log_failure("read the engine's counters", error);
    List prepared;
    ErrorPlace listing;
    if (alluvium_prepared_list(engine.database, into(prepared), listing.out()) != ALLUVIUM_CODE_OK)
        log_failure("list prepared transactions", listing);
    uint64_t transactions = 0, oldest_us = 0;
    count_transactions(transactions, oldest_us);
    Status status = {};
    status.memory_used = stats.memory.total_bytes;
    status.memtable_bytes = stats.memory.memtable_bytes;
    status.cache_used = stats.cache_used_bytes;
    status.transaction_bytes = stats.memory.transaction_bytes + stats.memory.prepared_bytes;
    status.cache_hits = stats.cache_hits;
    status.cache_misses = stats.cache_misses;
    status.log_bytes_written = stats.log_bytes_written;
    status.table_bytes_written = stats.table_bytes_written;
    status.flushes = stats.flushes;
    status.compactions = stats.compactions;
    status.upper_bytes = stats.upper_bytes;
    status.last_bytes = stats.last_bytes;
    status.compaction_backlog_bytes = stats.backlog_bytes;
    status.flush_backlog_bytes = stats.sealed_bytes;
    status.delayed_commits = stats.delayed_commits;
    status.delay_us = stats.delay_us;
    status.row_locks = stats.row_locks;
    status.lock_waits = lock_wait_count();
    status.lock_timeouts = failures.lock_timeouts;
    status.deadlocks = failures.deadlocks;
    status.conflicts = failures.conflicts;
    status.transactions = transactions;
    status.oldest_transaction_s = oldest_us / 1000000;
    status.prepared_transactions = alluvium_list_count(prepared.get());
    status.newest_commit = stats.visible_seqno;
    status.oldest_read_commit = stats.oldest_read_seqno;
    status.keyspaces = stats.keyspaces;
    return status;
}

struct StatusName {
    const char *name;
    ulonglong Status::*member;
};

constexpr StatusName status_names[] = {
    {"memory_used", &Status::memory_used},
    {"memtable_bytes", &Status::memtable_bytes},
    {"cache_used", &Status::cache_used},
    {"transaction_bytes", &Status::transaction_bytes},
    {"cache_hits", &Status::cache_hits},
    {"cache_misses", &Status::cache_misses},
    {"log_bytes_written", &Status::log_bytes_written},
    {"table_bytes_written", &Status::table_bytes_written},
    {"flushes", &Status::flushes},
    {"compactions", &Status::compactions},
    {"upper_bytes", &Status::upper_bytes},
    {"last_bytes", &Status::last_bytes},
    {"compaction_backlog_bytes", &Status::compaction_backlog_bytes},
    {"flush_backlog_bytes", &Status::flush_backlog_bytes},
    {"delayed_commits", &Status::delayed_commits},
    {"delay_us", &Status::delay_us},
    {"row_locks", &Status::row_locks},
    {"lock_waits", &Status::lock_waits},
    {"lock_timeouts", &Status::lock_timeouts},
    {"deadlocks", &Status::deadlocks},
    {"conflicts", &Status::conflicts},
    {"transactions", &Status::transactions},
    {"oldest_transaction_s", &Status::oldest_transaction_s},
    {"prepared_transactions", &Status::prepared_transactions},
    {"newest_commit", &Status::newest_commit},
    {"oldest_read_commit", &Status::oldest_read_commit},
    {"keyspaces", &Status::keyspaces},
};
constexpr size_t status_count = sizeof status_names / sizeof status_names[0];

// Values of the last SHOW STATUS. The server fills and reads them under its LOCK_status.
Status shown;

int fill_status(THD *, SHOW_VAR *out, char *) {
    static st_mysql_show_var variables[status_count + 1];
    shown = read_status();
    for (size_t i = 0; i < status_count; i++)
        variables[i] = {status_names[i].name,
                        reinterpret_cast<char *>(&(shown.*status_names[i].member)), SHOW_LONGLONG};
    variables[status_count] = {nullptr, nullptr, SHOW_UNDEF};
    out->type = SHOW_ARRAY;
    out->value = reinterpret_cast<char *>(variables);
    return 0;
}

std::string numbers_text() {
    Status status = read_status();
    std::string text;
    for (const StatusName &one : status_names) {
        std::string name = one.name;
        std::replace(name.begin(), name.end(), '_', ' ');
        text += name + ": " + std::to_string(status.*one.member) + "\n";
    }
    return text;
}

std::string duration_text(const char *name, alluvium_histogram_kind kind) {
    alluvium_histogram histogram = {};
    histogram.struct_size = sizeof histogram;
    ErrorPlace error;
    if (alluvium_get_histogram(engine.database, kind, &histogram, error.out()) != ALLUVIUM_CODE_OK)
        return error.text() + "\n";
    auto share = [&](double part) {
        return std::to_string(alluvium_histogram_quantile(&histogram, part));
    };
    return std::string(name) + " us: 50% below " + share(0.5) + ", 99% below " + share(0.99) + "\n";
}

std::string statement_text(const std::string &statement) {
    return statement.empty() ? "" : ": " + statement;
}

std::string transactions_text() {
    std::string text;
    size_t listed = 0;
    for (const OpenTransaction &open : open_transactions()) {
        if (listed++ == transactions_max) return text + "and younger ones\n";
        text += "connection " + std::to_string(open.connection) + ", transaction open for " +
                std::to_string(open.age_us / 1000000) + " s" + statement_text(open.statement) +
                "\n";
    }
    return text;
}

std::string owner_text(const LockOwner &owner) {
    std::string name = owner.connection
                           ? "connection " + std::to_string(owner.connection)
                           : "transaction " + std::to_string(owner.transaction);
    return name + statement_text(owner.statement) + "\n";
}

std::string lock_waits_text() {
    std::vector<LockWait> waits;
    std::string text;
    if (int error = lock_waits(waits)) return own_error_text(error) + "\n";
    for (const LockWait &wait : waits) {
        text += "wait of " + std::to_string(wait.waited_us / 1000) + " ms for a row of '" +
                wait.table + "', index " + std::to_string(wait.index) + "\n  waits: " +
                owner_text(wait.waiter);
        for (const LockOwner &owner : wait.owners) text += "  has it: " + owner_text(owner);
    }
    return text;
}

} // namespace

st_mysql_show_var status_variables[] = {
    {"alluvium", reinterpret_cast<char *>(&fill_status), SHOW_FUNC},
    {nullptr, nullptr, SHOW_UNDEF},
};

bool show_engine_status(THD *thd, stat_print_fn *print) {
    std::string text = std::string("library version: ") + alluvium_version() + "\n" +
                       numbers_text() +
                       duration_text("commits", ALLUVIUM_HISTOGRAM_KIND_COMMIT_US) +
                       duration_text("log syncs", ALLUVIUM_HISTOGRAM_KIND_SYNC_US) +
                       transactions_text() + lock_waits_text();
    return print(thd, STRING_WITH_LEN("ALLUVIUM"), STRING_WITH_LEN(""), text.data(), text.size());
}

} // namespace alluvium_sql
