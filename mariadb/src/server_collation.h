// SPDX-License-Identifier: GPL-2.0-only
//
// Collations of the server for key parts: the only codec file that includes the server's headers.

#pragma once

#include "text_image.h"

struct charset_info_st;

namespace alluvium_sql {

enum class TextColumn {
    // VARCHAR and TEXT: compared as their collation says.
    Varying,
    // CHAR: values have their full number of characters, so trailing spaces never count.
    Char,
};

// Returns the collation for key parts, the same object for each call with the same arguments, or
// null for a collation whose order has no images (`filename`). CREATE TABLE must refuse such an
// index. `&my_charset_bin` needs no collation: use the binary kinds. Thread-safe.
//
// Take the collation of the key part's field (`key_part->field->charset()`), not of the table.
const Collation *server_collation(const charset_info_st *charset, TextColumn column);

} // namespace alluvium_sql
