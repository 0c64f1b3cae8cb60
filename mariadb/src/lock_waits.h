// SPDX-License-Identifier: GPL-2.0-only
//
// Reports of lock waits. A replica that applies transactions in parallel must hear when one of them
// waits for a later one: the server then kills the later one, instead of both waiting for the
// timeout.

#pragma once

#include <string>

#include <alluvium.h>

#include "compat.h"

namespace alluvium_sql {

// Returns a tag that names the connection until remove_connection. Never 0.
uint64_t add_connection(THD *thd);
void remove_connection(uint64_t tag);

// Listener of the database: tells the server who waits for whom.
void report_lock_wait(void *context, const alluvium_lock_wait *wait);

// Returns the waits under way as text, a line each.
std::string lock_waits_text();

} // namespace alluvium_sql
