// SPDX-License-Identifier: GPL-2.0-only

#include "information_schema.h"

#include "engine.h"
#include "lock_waits.h"

#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"

namespace alluvium_sql {

st_mysql_information_schema schema_table_descriptor = {
    MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

namespace {

constexpr uint statement_characters = 1024;

ST_FIELD_INFO lock_wait_fields[] = {
    Show::Column("WAITING_ID", Show::ULonglong(), NULLABLE),
    Show::Column("WAITING_STATEMENT", Show::Varchar(statement_characters), NOT_NULL),
    Show::Column("BLOCKING_ID", Show::ULonglong(), NULLABLE),
    Show::Column("BLOCKING_STATEMENT", Show::Varchar(statement_characters), NOT_NULL),
    Show::Column("TABLE_NAME", Show::Varchar(2 * NAME_LEN + 2), NOT_NULL),
    Show::Column("INDEX_NUMBER", Show::ULonglong(), NOT_NULL),
    Show::Column("WAIT_MS", Show::ULonglong(), NOT_NULL),
    Show::CEnd(),
};

void store_owner(const LockOwner &owner, Field *connection, Field *statement) {
    connection->set_notnull();
    if (owner.connection) connection->store(static_cast<longlong>(owner.connection), true);
    else connection->set_null();
    statement->store(owner.statement.data(), owner.statement.size(), system_charset_info);
}

int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *) {
    // Statements of other connections are there for those who may see them in the process list.
    if (!engine.database || check_global_access(thd, PROCESS_ACL, true)) return 0;
    std::vector<LockWait> waits;
    if (lock_waits(waits)) return 1;
    TABLE *table = tables->table;
    for (const LockWait &wait : waits) {
        for (const LockOwner &owner : wait.owners) {
            store_owner(wait.waiter, table->field[0], table->field[1]);
            store_owner(owner, table->field[2], table->field[3]);
            table->field[4]->store(wait.table.data(), wait.table.size(), system_charset_info);
            table->field[5]->store(static_cast<longlong>(wait.index), true);
            table->field[6]->store(static_cast<longlong>(wait.waited_us / 1000), true);
            if (schema_table_store_record(thd, table)) return 1;
        }
    }
    return 0;
}

} // namespace

int start_lock_waits_table(void *table) {
    auto *schema = static_cast<ST_SCHEMA_TABLE *>(table);
    schema->fields_info = lock_wait_fields;
    schema->fill_table = fill_lock_waits;
    return 0;
}

} // namespace alluvium_sql
