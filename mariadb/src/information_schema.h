// SPDX-License-Identifier: GPL-2.0-only
//
// Tables of INFORMATION_SCHEMA.

#pragma once

#include "compat.h"

namespace alluvium_sql {

extern st_mysql_information_schema schema_table_descriptor;

// Initializes ALLUVIUM_LOCK_WAITS: a row for each transaction that another one waits for.
int start_lock_waits_table(void *table);

} // namespace alluvium_sql
