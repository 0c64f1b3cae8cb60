// SPDX-License-Identifier: GPL-2.0-only
//
// ALTER TABLE in place: columns are added, dropped and moved by a new layout, without touching a
// row. New indexes are built by a bulk load. Everything becomes visible by one write of the
// dictionary.

#include <algorithm>

#include "definition.h"
#include "engine.h"
#include "errors.h"
#include "expiry.h"
#include "ha_alluvium.h"

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

// Rows in memory before a bulk load writes them to temporary files.
constexpr uint64_t load_memory_bytes = 32 << 20;

// State of one ALTER of one table, or of one partition.
struct AlterContext : inplace_alter_handler_ctx {
    std::string name;
    TableEntry old_entry;
    TableEntry new_entry;
    // Numbers of the new table's keys that get a new keyspace.
    std::vector<uint> added;

    std::vector<uint64_t> added_indexes() const {
        std::vector<uint64_t> indexes;
        for (uint number : added) indexes.push_back(new_entry.indexes[number]);
        return indexes;
    }
    std::vector<uint64_t> dropped_indexes() const {
        std::vector<uint64_t> dropped;
        for (uint64_t index : old_entry.indexes)
            if (std::find(new_entry.indexes.begin(), new_entry.indexes.end(), index) ==
                new_entry.indexes.end())
                dropped.push_back(index);
        return dropped;
    }
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
    alter_table_operations flags = info->handler_flags;
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
    return flags & index_operations ? HA_ALTER_INPLACE_SHARED_LOCK : HA_ALTER_INPLACE_INSTANT;
}

// Called for changes of options. The next number is set by a copy; all others are the server's.
bool ha_alluvium::check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes) {
    bool same = table_changes != IS_EQUAL_NO && !(info->used_fields & HA_CREATE_USED_AUTO);
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
    PrimaryCodec primary(*altered, primary_key_of(*altered));
    std::vector<alluvium_keyspace_options> options;
    for (uint number : context->added)
        options.push_back(keyspace_options(*altered, primary, number));
    int error = engine.dictionary->create_keyspaces(context->new_entry, context->added_indexes(),
                                                    options);
    if (!error) return false;
    print_error(error, MYF(0));
    context->added.clear();
    return true;
}

namespace {

// Builds the new indexes of one table by one scan of its rows.
class IndexBuild {
public:
    IndexBuild(const TableShare &share, TABLE &altered, const AlterContext &context)
        : share_(share), altered_(altered), context_(context),
          primary_(altered, primary_key_of(altered)), rows_(codec()) {}

    // 0, or an error of the handler. `duplicate` gets the number of the key that is not unique,
    // whose row is then in the record of the new table.
    int run(THD *thd, uint &duplicate);

private:
    RowCodec codec() const {
        RowLayout layout = row_layout(altered_, PrimaryCodec(altered_, primary_key_of(altered_)));
        const StoredLayout &stored = context_.new_entry.layouts.back();
        layout.version = stored.version;
        for (size_t i = 0; i < layout.columns.size(); i++) {
            layout.columns[i].id = stored.columns[i].id;
            layout.columns[i].initial = context_.new_entry.initial[i];
        }
        return RowCodec(std::move(layout), context_.new_entry.layouts);
    }
    int begin();
    template <typename Visit> int scan(THD *thd, Visit visit);
    int read(Bytes key, Bytes value);
    int put(size_t place, uint &duplicate);
    int find_duplicate(THD *thd, const ErrorPlace &error, uint &duplicate);

    const TableShare &share_;
    TABLE &altered_;
    const AlterContext &context_;
    PrimaryCodec primary_;
    RowCodec rows_;
    std::vector<IndexCodec> indexes_;
    std::vector<Keyspace> keyspaces_;
    Ingest ingest_;
    std::string row_key_, key_, value_;
};

int IndexBuild::begin() {
    for (uint number : context_.added) {
        indexes_.emplace_back(altered_, altered_.key_info[number], primary_);
        keyspaces_.emplace_back();
        int error = engine.dictionary->open_keyspace(
            context_.new_entry.id, context_.new_entry.indexes[number], keyspaces_.back());
        if (error) return error;
    }
    alluvium_ingest_options options = {};
    options.struct_size = sizeof options;
    options.any_order = 1;
    options.memory_bytes = load_memory_bytes;
    // Entries of other indexes end with the row's key, so they never are duplicates.
    options.duplicates = ALLUVIUM_DUPLICATES_REFUSE;
    ErrorPlace error;
    return handler_error(
        alluvium_ingest_begin(engine.database, &options, into(ingest_), error.out()), error,
        nullptr);
}

int IndexBuild::read(Bytes key, Bytes value) {
    uchar *record = altered_.record[0];
    if (!primary_.decode(key, record) ||
        rows_.decode(value.at, value.length(), record) != Decoded::Ok)
        return HA_ERR_CRASHED;
    row_key_.assign(reinterpret_cast<const char *>(key.at), key.length());
    if (!altered_.s->virtual_fields) return 0;
    return altered_.update_virtual_fields(altered_.file, VCOL_UPDATE_FOR_WRITE) ? HA_ERR_GENERIC
                                                                               : 0;
}

template <typename Visit> int IndexBuild::scan(THD *thd, Visit visit) {
    Cursor cursor;
    ErrorPlace error;
    bool found = false;
    alluvium_code code =
        alluvium_cursor_open(alluvium_keyspace_reader(share_.primary_keyspace()), nullptr,
                             into(cursor), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_cursor_seek_first(cursor.get(), &found, error.out());
    while (code == ALLUVIUM_CODE_OK && found) {
        if (thd_kill_level(thd)) return HA_ERR_ABORTED_BY_USER;
        if (int failed = read(key_of(cursor), value_of(cursor))) return failed;
        if (int failed = visit()) return failed;
        code = alluvium_cursor_next(cursor.get(), &found, error.out());
    }
    return handler_error(code, error, thd);
}

int IndexBuild::put(size_t place, uint &duplicate) {
    indexes_[place].encode(altered_.record[0], row_key_, key_, value_);
    ErrorPlace error;
    alluvium_code code =
        alluvium_put(alluvium_ingest_writer(ingest_.get(), keyspaces_[place].get()), key_.data(),
                     key_.size(), value_.data(), value_.size(), error.out());
    if (code == ALLUVIUM_CODE_DUPLICATE_KEY) return find_duplicate(nullptr, error, duplicate);
    return handler_error(code, error, nullptr);
}

// The load may find a duplicate long after it was put, so its row is looked for.
int IndexBuild::find_duplicate(THD *thd, const ErrorPlace &error, uint &duplicate) {
    size_t size = 0;
    const uint8_t *data = alluvium_error_key(error.get(), &size);
    std::string wanted(reinterpret_cast<const char *>(data), data ? size : 0);
    constexpr int found = -1;
    int failed = scan(thd ? thd : altered_.in_use, [&]() {
        for (size_t i = 0; i < indexes_.size(); i++) {
            if (!indexes_[i].is_unique()) continue;
            indexes_[i].encode(altered_.record[0], row_key_, key_, value_);
            duplicate = context_.added[i];
            if (key_ == wanted) return found;
        }
        return 0;
    });
    return failed && failed != found ? failed : HA_ERR_FOUND_DUPP_KEY;
}

int IndexBuild::run(THD *thd, uint &duplicate) {
    if (int error = begin()) return error;
    int failed = scan(thd, [&]() {
        for (size_t i = 0; i < indexes_.size(); i++)
            if (int error = put(i, duplicate)) return error;
        return 0;
    });
    if (failed) return failed;
    ErrorPlace error;
    alluvium_code code = alluvium_ingest_finish(ingest_.get(), nullptr, error.out());
    if (code == ALLUVIUM_CODE_DUPLICATE_KEY) return find_duplicate(thd, error, duplicate);
    return handler_error(code, error, thd);
}

} // namespace

bool ha_alluvium::inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
    auto *context = static_cast<AlterContext *>(info->handler_ctx);
    if (!context || context->added.empty()) return false;
    altered->in_use = ha_thd();
    MY_BITMAP *old_read = tmp_use_all_columns(altered, &altered->read_set);
    MY_BITMAP *old_write = tmp_use_all_columns(altered, &altered->write_set);
    uint duplicate = MAX_KEY;
    int error = IndexBuild(*share_, *altered, *context).run(ha_thd(), duplicate);
    if (error == HA_ERR_FOUND_DUPP_KEY && duplicate != MAX_KEY)
        print_keydup_error(altered, &altered->key_info[duplicate], MYF(0));
    else if (error)
        print_error(error, MYF(0));
    tmp_restore_column_map(&altered->read_set, old_read);
    tmp_restore_column_map(&altered->write_set, old_write);
    return error != 0;
}

// Called with `commit` false also where the preparation has failed or was never begun.
bool ha_alluvium::commit_inplace_alter_table(TABLE *, Alter_inplace_info *info, bool commit) {
    std::vector<AlterContext *> contexts;
    if (commit && info->group_commit_ctx)
        for (inplace_alter_handler_ctx **one = info->group_commit_ctx; *one; one++)
            contexts.push_back(static_cast<AlterContext *>(*one));
    else if (info->handler_ctx)
        contexts.push_back(static_cast<AlterContext *>(info->handler_ctx));
    // Tells the server that all partitions are done.
    info->group_commit_ctx = nullptr;
    if (!commit) {
        for (AlterContext *context : contexts)
            engine.dictionary->drop_keyspaces(context->new_entry.id, context->added_indexes());
        return false;
    }
    std::vector<std::pair<std::string, TableEntry>> entries;
    for (AlterContext *context : contexts) entries.emplace_back(context->name, context->new_entry);
    if (int error = engine.dictionary->write_all(entries)) {
        print_error(error, MYF(0));
        return true;
    }
    for (AlterContext *context : contexts)
        engine.dictionary->drop_keyspaces(context->old_entry.id, context->dropped_indexes());
    return false;
}

} // namespace alluvium_sql
