// SPDX-License-Identifier: GPL-2.0-only
//
// Errors of the C interface as errors of the server.

#pragma once

#include <atomic>
#include <string>

#include <alluvium.h>

#include "compat.h"

namespace alluvium_sql {

// Error numbers of this engine, above those of the server. `own_error_text` has their texts.
enum OwnError : int {
    error_engine = HA_ERR_LAST + 100,
    error_serializable,
    error_transaction_too_large,
    error_poisoned,
    error_row_format,
    error_key_too_long,
    error_entry_damaged,
    error_entry_newer,
    error_mark_damaged,
    error_damaged,
    error_prepared_writes,
};

// Failed calls since the start of the server.
struct Failures {
    std::atomic<uint64_t> lock_timeouts{0};
    std::atomic<uint64_t> deadlocks{0};
    std::atomic<uint64_t> conflicts{0};
};

extern Failures failures;

// Place for the error of one call, freed with it.
class ErrorPlace {
public:
    ErrorPlace() = default;
    ~ErrorPlace() { alluvium_error_free(error_); }
    ErrorPlace(const ErrorPlace &) = delete;
    ErrorPlace &operator=(const ErrorPlace &) = delete;

    alluvium_error **out() { return &error_; }
    const alluvium_error *get() const { return error_; }

    // Returns the message with its causes.
    std::string text() const;

private:
    alluvium_error *error_ = nullptr;
};

// Returns the handler's error for a code; 0 for success. Asks the server to roll back the whole
// transaction after a deadlock or a conflict. `thd` may be null.
int handler_error(alluvium_code code, const ErrorPlace &place, THD *thd);

// Writes a failure to the server's error log, for callers that can only go on.
void log_failure(const char *action, const ErrorPlace &place);

// Fails a call with a text of this engine: the text of the next `own_error_text(error_engine)`.
int fail_with(const std::string &text);

// Returns the text of an own error; empty for the server's errors.
std::string own_error_text(int error);

} // namespace alluvium_sql
