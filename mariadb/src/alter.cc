// SPDX-License-Identifier: GPL-2.0-only
//
// ALTER TABLE in place: columns are added, dropped and moved by a new layout, without touching a
// row. New indexes are built while other connections write the table (index_build.h). Everything
// becomes visible by one write of the dictionary, under the exclusive metadata lock.
//
// A crash before that write leaves keyspaces that no table names; the next start drops them.

#include <algorithm>

#include "definition.h"
#include "engine.h"
#include "errors.h"
#include "expiry.h"
#include "ha_alluvium.h"
#include "index_build.h"

namespace alluvium_sql {

namespace {

constexpr alter_table_operations index_operations =
    ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;
constexpr alter_table_operations instant_operations =
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX | ALTER_INDEX_ORDER |
    ALTER_RENAME_INDEX | ALTER_INDEX_IGNORABILITY | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_STORED_COLUMN_ORDER |
    ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER |
    ALTER_COLUMN_NAME | ALTER_COLUMN_DEFAULT | ALTER_COLUMN_OPTION | ALTER_COLUMN_VCOL |
    ALTER_PARTITIONED;

// State of one ALTER of one table, or of one partition.
struct AlterContext : inplace_alter_handler_ctx {
    std::string name;
    TableEntry old_entry;
    TableEntry new_entry;
    // Numbers of the new table's keys that get a new keyspace.
    std::vector<uint> added;
    // Index id of the keyspace that the build needs meanwhile.
    uint64_t changes = 0;
    // Ids of the keyspaces that this change has created.
    std::vector<uint64_t> created;
    // Null if there are no new keys.
    std::unique_ptr<IndexBuild> build;

    std::vector<uint64_t> dropped_indexes() const {
        std::vector<uint64_t> dropped;
        for (uint64_t index : old_entry.indexes)
            if (std::find(new_entry.indexes.begin(), new_entry.indexes.end(), index) ==
                new_entry.indexes.end())
                dropped.push_back(index);
        return dropped;
    }
};

// Lets the codecs and virtual columns use all columns of a record.
class AllColumns {
public:
    AllColumns(THD *thd, TABLE &table)
        : table_(table), read_(tmp_use_all_columns(&table, &table.read_set)),
          write_(tmp_use_all_columns(&table, &table.write_set)) {
        table.in_use = thd;
    }
    ~AllColumns() {
        tmp_restore_column_map(&table_.read_set, read_);
        tmp_restore_column_map(&table_.write_set, write_);
    }
    AllColumns(const AllColumns &) = delete;
    AllColumns &operator=(const AllColumns &) = delete;

private:
    TABLE &table_;
    MY_BITMAP *const read_, *const write_;
};

bool same_name(const LEX_CSTRING &a, const LEX_CSTRING &b) {
    return !my_strcasecmp(system_charset_info, a.str, b.str);
}

bool is_dropped(const Alter_inplace_info &info, const KEY *key) {
    return std::find(info.index_drop_buffer, info.index_drop_buffer + info.index_drop_count, key) !=
           info.index_drop_buffer + info.index_drop_count;
}

// Number of the old key that a key of the new table continues; MAX_KEY for a new one.
uint old_key_of(const TABLE &table, Alter_inplace_info &info, const KEY &key) {
    LEX_CSTRING name = key.name;
    for (const auto &pair : info.rename_keys)
        if (same_name(pair.new_key->name, key.name)) name = pair.old_key->name;
    for (uint i = 0; i < table.s->keys; i++)
        if (same_name(table.key_info[i].name, name) && !is_dropped(info, &table.key_info[i]))
            return i;
    return MAX_KEY;
}

// Number in the old table of each field of the new one; MAX_FIELDS for a new field.
bool old_fields(const TABLE &altered, Alter_inplace_info &info, std::vector<uint> &fields) {
    List_iterator_fast<Create_field> created(info.alter_info->create_list);
    while (Create_field *field = created++)
        fields.push_back(field->field ? field->field->field_index : MAX_FIELDS);
    return fields.size() == altered.s->fields;
}

// Value of an added column in rows that exist, in the form of RowColumn::initial. False if it is
// not the same for all rows.
bool initial_value(const TABLE &altered, const Field &field, const RowColumn &column,
                   std::optional<std::string> &initial) {
    const uchar *record = altered.s->default_values;
    if (field.default_value || field.unireg_check == Field::NEXT_NUMBER ||
        field.has_default_now_unireg_check() || field.vcol_info)
        return false;
    if (column.nullable && record[column.null_offset] & column.null_mask) return true;
    const uchar *at = record + column.offset;
    const char *text = reinterpret_cast<const char *>(at);
    switch (column.kind) {
    case ColumnKind::Fixed:
        initial.emplace(text, column.length);
        return true;
    case ColumnKind::Variable:
        initial.emplace(text + column.length_bytes, load_little(at, column.length_bytes));
        return true;
    case ColumnKind::Blob:
        initial.emplace();
        return load_little(at, column.length_bytes) == 0;
    case ColumnKind::Padded: {
        CHARSET_INFO *charset = field.charset();
        initial.emplace(text, charset->lengthsp(text, column.length));
        return true;
    }
    }
    return false;
}

// Returns true if a column keeps the bytes of its values, also in keys. A VARCHAR may become
// longer.
bool same_bytes(const StoredColumn &from, const StoredColumn &to) {
    return from.kind == to.kind && from.nullable == to.nullable &&
           (from.length == to.length ||
            (from.kind == ColumnKind::Variable && from.length < to.length));
}

bool same_layout(const StoredLayout &a, const StoredLayout &b) {
    return std::equal(a.columns.begin(), a.columns.end(), b.columns.begin(), b.columns.end(),
                      [](const StoredColumn &x, const StoredColumn &y) {
                          return x.id == y.id && x.length == y.length;
                      });
}

// Gives ids to the columns of the new layout, and its version. False: not possible in place.
bool plan_layout(const TABLE &table, const TABLE &altered, Alter_inplace_info &info,
                 const TableEntry &old, TableEntry &next) {
    std::vector<uint> fields;
    if (!old_fields(altered, info, fields)) return false;
    PrimaryCodec old_primary(table, primary_key_of(table));
    PrimaryCodec new_primary(altered, primary_key_of(altered));
    std::vector<uint> old_stored = stored_fields(table, old_primary);
    std::vector<uint> new_stored = stored_fields(altered, new_primary);
    RowLayout layout = row_layout(altered, new_primary);
    next.initial.assign(new_stored.size(), std::nullopt);
    for (size_t i = 0; i < new_stored.size(); i++) {
        RowColumn &column = layout.columns[i];
        auto place = std::find(old_stored.begin(), old_stored.end(), fields[new_stored[i]]);
        if (place != old_stored.end()) {
            size_t old_place = static_cast<size_t>(place - old_stored.begin());
            const StoredColumn &stored = old.layouts.back().columns[old_place];
            if (!same_bytes(stored, column)) return false;
            column.id = stored.id;
            next.initial[i] = old.initial[old_place];
        } else {
            // A field that was virtual or in the primary key has no value in the rows.
            const Field &field = *altered.field[new_stored[i]];
            if (fields[new_stored[i]] != MAX_FIELDS ||
                !initial_value(altered, field, column, next.initial[i]))
                return false;
            column.id = next.next_column++;
        }
        column.initial = next.initial[i];
    }
    StoredLayout stored = layout.stored();
    if (same_layout(stored, old.layouts.back())) return true;
    layout.version = old.layouts.back().version + 1;
    stored.version = layout.version;
    next.layouts.push_back(std::move(stored));
    return RowCodec(std::move(layout), old.layouts).maps_all();
}

// Gives ids to the keys of the new table.
void plan_indexes(const TABLE &table, const TABLE &altered, Alter_inplace_info &info,
                  const TableEntry &old, AlterContext &context) {
    context.new_entry.indexes.clear();
    for (uint i = 0; i < altered.s->keys; i++) {
        uint old_key = old_key_of(table, info, altered.key_info[i]);
        if (old_key != MAX_KEY) {
            context.new_entry.indexes.push_back(old.indexes[old_key]);
            continue;
        }
        context.added.push_back(i);
        context.new_entry.indexes.push_back(context.new_entry.next_index++);
    }
    // The hidden primary key.
    if (old.indexes.size() > table.s->keys) context.new_entry.indexes.push_back(old.indexes.back());
}

bool has_hashed_key(const TABLE &table) {
    for (uint i = 0; i < table.s->keys; i++)
        if (table.key_info[i].algorithm == HA_KEY_ALG_LONG_HASH) return true;
    return false;
}

// The rows stay where they are only if the primary key is the same.
bool keeps_primary_key(const TABLE &table, const TABLE &altered, Alter_inplace_info &info) {
    const KEY *old_key = primary_key_of(table), *new_key = primary_key_of(altered);
    if (!old_key || !new_key) return !old_key && !new_key;
    return old_key_of(table, info, *new_key) == table.s->primary_key;
}

} // namespace

enum_alter_inplace_result
ha_alluvium::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) {
    // A copy checks the row of the sequence.
    if (info->create_info->used_fields & HA_CREATE_USED_SEQUENCE) {
        info->unsupported_reason = "SEQUENCE";
        return HA_ALTER_INPLACE_NOT_SUPPORTED;
    }
    alter_table_operations flags = info->handler_flags;
    if (flags & (ALTER_STORED_COLUMN_TYPE | ALTER_VIRTUAL_COLUMN_TYPE))
        info->unsupported_reason =
            my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
    if (flags & ~(index_operations | instant_operations)) {
        // The base class knows which of the others are changes of the server's files alone.
        info->handler_flags &= ~(index_operations | instant_operations);
        auto result = handler::check_if_supported_inplace_alter(altered, info);
        info->handler_flags = flags;
        if (result == HA_ALTER_INPLACE_NOT_SUPPORTED || result == HA_ALTER_ERROR) return result;
    }
    // A copy uses the options, or refuses them: the column of the expiry may be dropped or renamed.
    // It also gives new entries the time of their row, which a build in place does not know.
    uint expiry_field = no_field;
    if (!same_options(*table, *altered) || !find_expiry_field(*altered, expiry_field).empty())
        return HA_ALTER_INPLACE_NOT_SUPPORTED;
    const ha_table_option_struct *options = altered->s->option_struct;
    bool expires = (options && options->expire_after_seconds) || expiry_field != no_field;
    if (expires && flags & index_operations) return HA_ALTER_INPLACE_NOT_SUPPORTED;
    if (!keeps_primary_key(*table, *altered, *info) || has_hashed_key(*table) ||
        has_hashed_key(*altered) || table->versioned() || altered->versioned() || info->ignore)
        return HA_ALTER_INPLACE_NOT_SUPPORTED;
    for (uint i = 0; i < altered->s->keys; i++)
        if (altered->key_info[i].flags & (HA_FULLTEXT | HA_SPATIAL))
            return HA_ALTER_INPLACE_NOT_SUPPORTED;
    TableEntry next = share_->entry();
    if (!plan_layout(*table, *altered, *info, share_->entry(), next))
        return HA_ALTER_INPLACE_NOT_SUPPORTED;
    return flags & index_operations ? HA_ALTER_INPLACE_NOCOPY_NO_LOCK : HA_ALTER_INPLACE_INSTANT;
}

namespace {

// Returns true if `others` has all options of the engine in `options`, with their values.
bool has_options(const engine_option_value *others, const engine_option_value *options) {
    for (; options; options = options->next) {
        if (strncasecmp(options->name.str, "ALLUVIUM_", 9) || !options->value.str) continue;
        const engine_option_value *other = others;
        while (other && strcasecmp(other->name.str, options->name.str)) other = other->next;
        if (!other || !other->value.str || strcasecmp(other->value.str, options->value.str))
            return false;
    }
    return true;
}

} // namespace

// Called for changes of options, and before a partition and a table are exchanged. The next number
// is set by a copy; all others are the server's.
bool ha_alluvium::check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes) {
    const engine_option_value *own = table->s->option_list;
    bool same = table_changes != IS_EQUAL_NO && !(info->used_fields & HA_CREATE_USED_AUTO) &&
                has_options(own, info->option_list) && has_options(info->option_list, own);
    return same ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

// A longer VARCHAR changes no stored byte, as long as its length takes as many bytes in the record.
bool ha_alluvium::can_convert_nocopy(const Field &field, const Column_definition &column) const {
    if (field.real_type() != MYSQL_TYPE_VARCHAR || column.type_handler() != field.type_handler() ||
        column.charset != field.charset() || column.compression_method())
        return false;
    unsigned length_bytes = column.length > 255 ? 2 : 1;
    return column.length >= field.field_length &&
           static_cast<const Field_varstring &>(field).length_bytes == length_bytes;
}

namespace {

// Creates the keyspaces of the new keys and begins their build.
int begin_build(const TableShare &share, THD *thd, TABLE &altered, AlterContext &context) {
    PrimaryCodec primary(altered, primary_key_of(altered));
    std::vector<uint64_t> indexes;
    std::vector<alluvium_keyspace_options> options;
    for (uint number : context.added) {
        indexes.push_back(context.new_entry.indexes[number]);
        options.push_back(keyspace_options(altered, primary, number));
    }
    context.changes = context.new_entry.next_index++;
    indexes.push_back(context.changes);
    options.emplace_back();
    options.back().struct_size = sizeof(alluvium_keyspace_options);
    if (int error = engine.dictionary->create_keyspaces(context.new_entry, indexes, options))
        return error;
    context.created = indexes;
    context.build = std::make_unique<IndexBuild>(share, altered, context.new_entry, context.added,
                                                 context.changes);
    return context.build->begin(thd);
}

} // namespace

// Reports the error of a build, if there is one.
bool ha_alluvium::report_build(int error, TABLE *altered, uint duplicate) {
    if (error == HA_ERR_FOUND_DUPP_KEY && duplicate != MAX_KEY)
        print_keydup_error(altered, &altered->key_info[duplicate], MYF(0));
    else if (error)
        print_error(error, MYF(0));
    return error != 0;
}

bool ha_alluvium::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
    AlterContext *context = new AlterContext;
    info->handler_ctx = context;
    context->name = share_->name();
    context->old_entry = share_->entry();
    context->new_entry = share_->entry();
    context->new_entry.version = engine.dictionary->next_number();
    if (!plan_layout(*table, *altered, *info, context->old_entry, context->new_entry)) {
        my_error(ER_ALTER_OPERATION_NOT_SUPPORTED, MYF(0), "ALGORITHM=INPLACE", "ALGORITHM=COPY");
        return true;
    }
    plan_indexes(*table, *altered, *info, context->old_entry, *context);
    if (context->added.empty()) return false;
    return report_build(begin_build(*share_, ha_thd(), *altered, *context), altered, MAX_KEY);
}

bool ha_alluvium::inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
    auto *context = static_cast<AlterContext *>(info->handler_ctx);
    if (!context || !context->build) return false;
    AllColumns all(ha_thd(), *altered);
    int error = context->build->run(ha_thd());
    return report_build(error, altered, context->build->duplicate());
}

// Called with `commit` false also where the preparation has failed or was never begun. Then other
// connections may be writing the table.
bool ha_alluvium::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info,
                                             bool commit) {
    std::vector<AlterContext *> contexts;
    if (commit && info->group_commit_ctx)
        for (inplace_alter_handler_ctx **one = info->group_commit_ctx; *one; one++)
            contexts.push_back(static_cast<AlterContext *>(*one));
    else if (info->handler_ctx)
        contexts.push_back(static_cast<AlterContext *>(info->handler_ctx));
    if (!commit) {
        for (AlterContext *context : contexts) {
            context->build.reset();
            engine.dictionary->drop_keyspaces(context->new_entry.id, context->created);
        }
        return false;
    }
    std::vector<std::pair<std::string, TableEntry>> entries;
    for (AlterContext *context : contexts) {
        entries.emplace_back(context->name, context->new_entry);
        if (!context->build) continue;
        AllColumns all(ha_thd(), *altered);
        int error = context->build->finish(ha_thd());
        if (report_build(error, altered, context->build->duplicate())) return true;
    }
    if (report_build(engine.dictionary->write_all(entries), altered, MAX_KEY)) return true;
    // Tells the server that all partitions are done.
    info->group_commit_ctx = nullptr;
    for (AlterContext *context : contexts) {
        std::vector<uint64_t> dropped = context->dropped_indexes();
        if (context->build) dropped.push_back(context->changes);
        context->build.reset();
        engine.dictionary->drop_keyspaces(context->old_entry.id, dropped);
    }
    return false;
}

} // namespace alluvium_sql
