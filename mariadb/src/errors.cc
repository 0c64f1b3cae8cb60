// SPDX-License-Identifier: GPL-2.0-only

#include "errors.h"

#include <utility>

namespace alluvium_sql {

namespace {

// Text of the last own error of this thread: the server asks for it right after the failed call.
thread_local std::string last_text;

// Damage that the engine has found for this thread; empty if the plugin itself has found it.
thread_local std::string damage_text;

// The server cuts a text after 200 bytes, so the advice comes first.
std::string damaged_text() {
    const std::string found = std::exchange(damage_text, {});
    return "damaged data, other tables stay usable: restore a backup, or stop the server and run "
           "`alluvium repair`: " +
           (found.empty() ? "a row, an index entry or the dictionary" : found);
}

int own(OwnError error, const ErrorPlace &place) {
    last_text = place.text();
    return error;
}

} // namespace

Failures failures;

std::string ErrorPlace::text() const {
    const char *message = alluvium_error_message(error_, nullptr);
    std::string text = message ? message : "no details";
    for (size_t i = 0; i < alluvium_error_cause_count(error_); i++) {
        const char *cause = alluvium_error_cause(error_, i, nullptr);
        if (cause) text.append(": ").append(cause);
    }
    return text;
}

int handler_error(alluvium_code code, const ErrorPlace &place, THD *thd) {
    switch (code) {
    case ALLUVIUM_CODE_OK:
        return 0;
    case ALLUVIUM_CODE_LOCK_TIMEOUT:
        failures.lock_timeouts++;
        return HA_ERR_LOCK_WAIT_TIMEOUT;
    case ALLUVIUM_CODE_CANCELED:
        return HA_ERR_ABORTED_BY_USER;
    case ALLUVIUM_CODE_CONFLICT:
    case ALLUVIUM_CODE_DEADLOCK:
        (code == ALLUVIUM_CODE_DEADLOCK ? failures.deadlocks : failures.conflicts)++;
        // Without this the server continues in a transaction whose reads are out of date.
        if (thd) thd->mark_transaction_to_rollback(true);
        return HA_ERR_LOCK_DEADLOCK;
    case ALLUVIUM_CODE_NO_SPACE:
        return HA_ERR_DISK_FULL;
    case ALLUVIUM_CODE_CORRUPTION:
        damage_text = place.text();
        sql_print_error("ALLUVIUM: %s", damage_text.c_str());
        return HA_ERR_CRASHED;
    case ALLUVIUM_CODE_KEYSPACE_DROPPED:
        return HA_ERR_TABLE_DEF_CHANGED;
    case ALLUVIUM_CODE_DUPLICATE_KEY:
        return HA_ERR_FOUND_DUPP_KEY;
    case ALLUVIUM_CODE_TRANSACTION_TOO_LARGE:
        return own(error_transaction_too_large, place);
    case ALLUVIUM_CODE_POISONED:
        return own(error_poisoned, place);
    default:
        sql_print_error("ALLUVIUM: %s", place.text().c_str());
        return own(error_engine, place);
    }
}

void log_failure(const char *action, const ErrorPlace &place) {
    sql_print_error("ALLUVIUM: cannot %s: %s", action, place.text().c_str());
}

int fail_with(const std::string &text) {
    last_text = text;
    return error_engine;
}

std::string own_error_text(int error) {
    switch (error) {
    case error_engine:
        return last_text;
    case error_serializable:
        return "SERIALIZABLE is not supported: use REPEATABLE READ, and SELECT ... FOR UPDATE for "
               "the rows that you rely on";
    case error_transaction_too_large:
        // The rest of the engine's text names an option that SQL does not have.
        return last_text.substr(0, last_text.find(": ")) +
               ": write fewer rows in one transaction, or raise alluvium_memory_bytes";
    case error_poisoned:
        return "no more writes after a failed write to disk: repair the cause and restart the "
               "server: " +
               last_text;
    case error_row_format:
        return "a stored row does not match the table's definition: run CHECK TABLE";
    case error_key_too_long:
        return "the key of a row is longer than 65535 bytes: index a prefix of the column";
    case error_entry_damaged:
        return "the table's entry in the dictionary is damaged: restore a backup of the server, or "
               "drop the table and load it from a dump";
    case error_entry_newer:
        return "a newer version of the plugin has written the table's entry in the dictionary: use "
               "that version or a later one";
    case error_mark_damaged:
        return "the table's AUTO_INCREMENT mark in the dictionary is damaged";
    case error_damaged:
        return damaged_text();
    case error_prepared_writes:
        return "a prepared XA transaction has written the table: find it with XA RECOVER, and end it "
               "with XA COMMIT or XA ROLLBACK first";
    default:
        return {};
    }
}

} // namespace alluvium_sql
