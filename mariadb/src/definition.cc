// SPDX-License-Identifier: GPL-2.0-only
//
// CREATE, DROP, RENAME and TRUNCATE TABLE.

#include "definition.h"

#include <algorithm>

#include "engine.h"
#include "errors.h"
#include "expiry.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

// ALLUVIUM_COMPRESSION has the values of alluvium_compression, in their order.
ha_create_table_option table_options[] = {
    HA_TOPTION_ENUM("ALLUVIUM_COMPRESSION", compression, "ADAPTIVE,LZ4,NONE", 0),
    // 0: rows do not expire. At most 100 years.
    HA_TOPTION_NUMBER("ALLUVIUM_EXPIRE_AFTER", expire_after_seconds, 0, 0, 3155760000ULL, 1),
    HA_TOPTION_STRING("ALLUVIUM_EXPIRE_COLUMN", expire_column),
    HA_TOPTION_END,
};

namespace {

// Leading parts of fixed size, for a filter of prefixes. Longer prefixes are rarely asked for.
constexpr size_t filter_parts_max = 2;

bool has_fixed_size(const KeyPart &part) {
    switch (part.kind) {
    case KeyKind::Signed:
    case KeyKind::Unsigned:
    case KeyKind::Float:
    case KeyKind::Binary:
        return !part.nullable;
    default:
        return false;
    }
}

// Bytes of the first one or two parts that are never NULL and have a fixed size, but not of all
// parts: the whole-key filter does that.
uint32_t filter_prefix_bytes(const std::vector<KeyPart> &parts, size_t own_parts) {
    size_t bytes = 0;
    for (size_t i = 0; i < own_parts && i < filter_parts_max && i + 1 < parts.size(); i++) {
        if (!has_fixed_size(parts[i])) break;
        size_t next = bytes + key_part_bytes_max(parts[i]);
        if (next > 255) break;
        bytes = next;
    }
    return static_cast<uint32_t>(bytes);
}

int refuse(const char *what, const char *instead) {
    my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "ALLUVIUM has no %s: %s", MYF(0), what, instead);
    return HA_WRONG_CREATE_OPTION;
}

int check_keys(const TABLE &table) {
    for (uint i = 0; i < table.s->keys; i++) {
        const KEY &key = table.key_info[i];
        if (key.flags & HA_FULLTEXT || key.algorithm == HA_KEY_ALG_FULLTEXT)
            return refuse("FULLTEXT indexes", "use InnoDB for this table");
        if (key.flags & HA_SPATIAL || key.algorithm == HA_KEY_ALG_RTREE)
            return refuse("SPATIAL indexes", "use InnoDB for this table");
        for (uint p = 0; p < key.user_defined_key_parts; p++) {
            KeyPart part = make_key_part(table, key.key_part[p]);
            bool text = part.kind == KeyKind::Char || part.kind == KeyKind::VarChar ||
                        part.kind == KeyKind::BlobText;
            if (text && !part.collation)
                return refuse("indexes of this collation", "give the column another one");
        }
    }
    return 0;
}

int check_expiry(const TABLE &table) {
    const ha_table_option_struct *options = table.s->option_struct;
    if (table.s->sequence && options && options->expire_after_seconds)
        return refuse("sequences that expire", "leave ALLUVIUM_EXPIRE_AFTER out");
    uint field = no_field;
    std::string reason = find_expiry_field(table, field);
    if (reason.empty() && field != no_field && options->expire_after_seconds)
        reason = "the table also has ALLUVIUM_EXPIRE_AFTER: leave one of the options out";
    if (!reason.empty()) {
        my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "ALLUVIUM_EXPIRE_COLUMN: %s", MYF(0),
                        reason.c_str());
        return HA_WRONG_CREATE_OPTION;
    }
    // With ALLUVIUM_EXPIRE_AFTER an update would leave entries of a row to expire before it.
    uint keys = table.s->primary_key == MAX_KEY ? 0 : 1;
    if (!options || !options->expire_after_seconds || table.s->keys == keys) return 0;
    return refuse("secondary indexes in a table with ALLUVIUM_EXPIRE_AFTER",
                  "leave the indexes out, or use ALLUVIUM_EXPIRE_COLUMN");
}

bool has_foreign_key(THD *thd) {
    List_iterator_fast<Key> keys(thd->lex->alter_info.key_list);
    while (Key *key = keys++)
        if (key->type == Key::FOREIGN_KEY) return true;
    return false;
}

} // namespace

bool same_options(const TABLE &a, const TABLE &b) {
    const ha_table_option_struct *x = a.s->option_struct, *y = b.s->option_struct;
    if (!x || !y) return x == y;
    auto column = [](const ha_table_option_struct *options) {
        return std::string(options->expire_column ? options->expire_column : "");
    };
    return x->expire_after_seconds == y->expire_after_seconds && x->compression == y->compression &&
           !my_strcasecmp(system_charset_info, column(x).c_str(), column(y).c_str());
}

alluvium_keyspace_options keyspace_options(const TABLE &table, const PrimaryCodec &primary,
                                           uint number) {
    alluvium_keyspace_options options = {};
    options.struct_size = sizeof options;
    if (const ha_table_option_struct *chosen = table.s->option_struct) {
        options.compression = chosen->compression;
        if (chosen->expire_after_seconds) options.expiry = ALLUVIUM_EXPIRY_AFTER;
        options.expire_after_ms = chosen->expire_after_seconds * 1000;
        if (chosen->expire_column && *chosen->expire_column)
            options.expiry = ALLUVIUM_EXPIRY_PER_ROW;
    }
    const KEY *key = number < table.s->keys ? &table.key_info[number] : nullptr;
    if (!key) return options;
    if (number == table.s->primary_key) {
        options.expect_hits = 1;
        options.prefix_filter_bytes = filter_prefix_bytes(primary.parts(), primary.parts().size());
        return options;
    }
    IndexCodec index(table, *key, primary);
    options.no_whole_key_filter = index.is_unique() ? 0 : 1;
    options.prefix_filter_bytes = filter_prefix_bytes(index.parts(), index.own_parts());
    return options;
}

int compute_key_columns(TABLE &table, uint number, bool ignore_warnings) {
    const KEY &info = table.key_info[number];
    for (uint i = 0; i < info.user_defined_key_parts; i++) {
        Field *field = table.field[info.key_part[i].fieldnr - 1];
        if (!field->stored_in_db() && table.update_virtual_field(field, ignore_warnings))
            return HA_ERR_GENERIC;
    }
    return 0;
}

namespace {

// Returns true if a table or partition that the statement makes gets the rows of another one.
bool copies_rows(THD *thd) {
    switch (thd_sql_command(thd)) {
    case SQLCOM_ALTER_TABLE:
    case SQLCOM_CREATE_INDEX:
    case SQLCOM_DROP_INDEX:
    case SQLCOM_OPTIMIZE:
        return true;
    default:
        return false;
    }
}

} // namespace

int ha_alluvium::create(const char *path, TABLE *form, HA_CREATE_INFO *info) {
    if (info->tmp_table())
        return refuse("temporary tables", "create it with ENGINE=InnoDB or ENGINE=Aria");
    if (has_foreign_key(ha_thd()))
        return refuse("foreign keys", "leave the constraint out, or use InnoDB for both tables");
    if (info->data_file_name || info->index_file_name)
        return refuse("DATA DIRECTORY and INDEX DIRECTORY", "set alluvium_datadir for all tables");
    if (int error = check_keys(*form)) return error;
    if (int error = check_expiry(*form)) return error;

    PrimaryCodec primary(*form, primary_key_of(*form));
    TableEntry entry;
    entry.id = engine.dictionary->next_number();
    entry.version = engine.dictionary->next_number();
    std::vector<alluvium_keyspace_options> options;
    uint count = form->s->keys + (primary.is_hidden() ? 1 : 0);
    for (uint i = 0; i < count; i++) {
        options.push_back(keyspace_options(*form, primary, i));
        entry.indexes.push_back(entry.next_index++);
    }
    StoredLayout layout = row_layout(*form, primary).stored();
    layout.version = 1;
    for (StoredColumn &column : layout.columns) column.id = entry.next_column++;
    entry.initial.resize(layout.columns.size());
    entry.layouts.push_back(std::move(layout));

    std::string name = table_name(path);
    TableEntry old;
    int error = engine.dictionary->read(name, old);
    if (error != HA_ERR_NO_SUCH_TABLE) return error ? error : HA_ERR_TABLE_EXIST;
    if ((error = engine.dictionary->create_keyspaces(entry, entry.indexes, options))) return error;
    error = engine.dictionary->write(name, entry);
    if (!error && info->auto_increment_value > 1)
        error = engine.dictionary->write_mark(entry.id, info->auto_increment_value);
    if (error) engine.dictionary->drop_keyspaces(entry.id, entry.indexes);
    else if (copies_rows(ha_thd()) && !is_sequence()) Transaction::of(ha_thd()).note_copy(entry);
    return error;
}

int ha_alluvium::delete_table(const char *path) {
    return engine.dictionary->drop(table_name(path));
}

int ha_alluvium::rename_table(const char *from, const char *to) {
    return engine.dictionary->rename(table_name(from), table_name(to));
}

int ha_alluvium::truncate() {
    forget_cursor();
    row_value_.reset();
    return share_->truncate();
}

} // namespace alluvium_sql
