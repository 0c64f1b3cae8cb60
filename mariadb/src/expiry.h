// SPDX-License-Identifier: GPL-2.0-only
//
// Expiry of rows at the time in a column (table option ALLUVIUM_EXPIRE_COLUMN). A row and all its
// index entries have the same time, so they expire together.

#pragma once

#include <string>

#include "compat.h"

namespace alluvium_sql {

// Number of no field.
constexpr uint no_field = MAX_FIELDS;

// Sets `number` to the field of the table's ALLUVIUM_EXPIRE_COLUMN, or to `no_field` if it has no
// such option. Returns the reason why the column cannot be one; empty if it can.
std::string find_expiry_field(const TABLE &table, uint &number);

// Returns the time at which a record expires, in milliseconds since 1970; ALLUVIUM_NEVER for NULL
// and for a zero date. `field` is one of find_expiry_field.
uint64_t expiry_of(const TABLE &table, uint field, const uchar *record);

} // namespace alluvium_sql
