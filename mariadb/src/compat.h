// SPDX-License-Identifier: GPL-2.0-only
//
// Headers of the server, in the one order that compiles. Differences between its versions go here.

#pragma once

// A storage engine uses classes of the server that plugins do not see without this.
#define MYSQL_SERVER 1

#include <my_global.h>

#include "create_options.h"
#include "field.h"
#include "handler.h"
#include "key.h"
#include "log.h"
#include "set_var.h"
#include "sql_class.h"
#include "sql_partition.h"
#include "sql_table.h"
#include "table.h"
#include "xa.h"

#if MYSQL_VERSION_ID < 101100 || MYSQL_VERSION_ID >= 110000
#error "This storage engine is written for MariaDB 10.11"
#endif
