// SPDX-License-Identifier: GPL-2.0-only
//
// Connections with their transactions and lock waits.
//
// A replica that applies transactions in parallel must hear when one of them waits for a later one:
// the server then kills the later one, instead of both waiting for the timeout.

#pragma once

#include <string>
#include <vector>

#include <alluvium.h>

#include "compat.h"

namespace alluvium_sql {

class Transaction;

// Returns a tag that names the connection until remove_connection. Never 0.
uint64_t add_connection(THD *thd, const Transaction *transaction);
void remove_connection(uint64_t tag);

// Listener of the database: tells the server which connection waits for which others.
void report_lock_wait(void *context, const alluvium_lock_wait *wait);

// Returns the number of waits for row locks since the start.
uint64_t lock_wait_count();

// Connection that has a lock or waits for one.
struct LockOwner {
    // 0: a transaction without a connection, such as a prepared one.
    my_thread_id connection = 0;
    // Number of the engine.
    uint64_t transaction = 0;
    std::string statement;
};

// Wait for a row lock that is under way.
struct LockWait {
    LockOwner waiter;
    std::vector<LockOwner> owners;
    // `db/t`; empty for a table that was dropped meanwhile.
    std::string table;
    // Place of the index among the keys of the table; a hidden primary key comes last.
    uint64_t index = 0;
    uint64_t waited_us = 0;
};

// Sets `waits` to those under way. 0, or an error of the handler.
int lock_waits(std::vector<LockWait> &waits);

// Open transaction of a connection.
struct OpenTransaction {
    my_thread_id connection = 0;
    uint64_t age_us = 0;
    std::string statement;
};

// Returns all open transactions, the oldest first.
std::vector<OpenTransaction> open_transactions();
// Sets the number of open transactions and the age of the oldest one.
void count_transactions(uint64_t &count, uint64_t &oldest_us);

} // namespace alluvium_sql
