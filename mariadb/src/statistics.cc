// SPDX-License-Identifier: GPL-2.0-only
//
// Numbers for the optimizer: sizes from the engine, rows for each value from samples.

#include <algorithm>

#include "engine.h"
#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

namespace {

// Samples of ANALYZE: so many places of an index, so many entries at each.
constexpr size_t sample_places = 20;
constexpr size_t sample_entries = 50;
// A table with fewer rows is read whole.
constexpr uint64_t sample_whole_rows = sample_places * sample_entries;

} // namespace

int ha_alluvium::info(uint flags) {
    if (flags & (HA_STATUS_VARIABLE | HA_STATUS_CONST)) {
        TableSizes sizes = share_->sizes();
        // The optimizer takes an empty table for one that stays empty; SHOW wants the number.
        bool for_optimizer = !(flags & (HA_STATUS_TIME | HA_STATUS_OPEN));
        stats.records = std::max<uint64_t>(sizes.rows, for_optimizer ? 1 : 0);
        stats.deleted = 0;
        stats.data_file_length = sizes.row_bytes;
        stats.index_file_length = sizes.index_bytes;
        stats.mean_rec_length =
            static_cast<ulong>(sizes.row_bytes / std::max<uint64_t>(stats.records, 1));
    }
    if (flags & HA_STATUS_CONST) {
        if (share_->statistics_are_old(stats.records)) renew_statistics();
        set_rows_per_key();
    }
    if (flags & HA_STATUS_ERRKEY) errkey = duplicate_index_;
    if (flags & HA_STATUS_AUTO) stats.auto_increment_value = share_->next_number();
    return 0;
}

// Damage in one place must not keep a statement from the rest of the table.
void ha_alluvium::renew_statistics() {
    int error = sample_statistics();
    if (error)
        sql_print_warning("ALLUVIUM: the statistics of '%s' stay as they are: %s",
                          share_->name().c_str(), own_error_text(error).c_str());
}

void ha_alluvium::set_rows_per_key() {
    for (uint i = 0; i < table->s->keys; i++) {
        KEY &key = table->key_info[i];
        std::vector<uint64_t> rows = share_->rows_per_value(i);
        for (uint part = 0; part < key.ext_key_parts; part++) {
            uint64_t number = part < rows.size() ? rows[part] : 1;
            bool whole = part + 1 >= key.user_defined_key_parts &&
                         (key.flags & HA_NOSAME) && !(key.flags & HA_NULL_PART_KEY);
            key.rec_per_key[part] = whole ? 1 : static_cast<ulong>(std::max<uint64_t>(number, 1));
        }
    }
}

namespace {

// Length of the bytes of the first parts that two keys share, counted in parts.
size_t equal_parts(const std::vector<KeyPart> &parts, Bytes a, Bytes b) {
    for (size_t i = 0; i < parts.size(); i++) {
        const uint8_t *from_a = a.at, *from_b = b.at;
        if (!skip_part(parts[i], a) || !skip_part(parts[i], b)) return i;
        size_t length = static_cast<size_t>(a.at - from_a);
        if (length != static_cast<size_t>(b.at - from_b) || memcmp(from_a, from_b, length) != 0)
            return i;
    }
    return parts.size();
}

// Counts neighbors that differ, within the entries from one place of an index.
struct Sample {
    explicit Sample(const std::vector<KeyPart> &parts) : parts(parts), changes(parts.size(), 0) {}

    void add(Bytes key) {
        if (has_last) {
            pairs++;
            for (size_t i = equal_parts(parts, Bytes(last), key); i < parts.size(); i++)
                changes[i]++;
        }
        last.assign(reinterpret_cast<const char *>(key.at), key.length());
        has_last = true;
    }

    const std::vector<KeyPart> &parts;
    std::vector<uint64_t> changes;
    uint64_t pairs = 0;
    std::string last;
    bool has_last = false;
};

alluvium_code sample_from(alluvium_cursor *cursor, Sample &sample, size_t entries, bool found,
                          alluvium_error **error) {
    alluvium_code code = ALLUVIUM_CODE_OK;
    for (size_t i = 0; i < entries && found && code == ALLUVIUM_CODE_OK; i++) {
        size_t size = 0;
        const uint8_t *data = alluvium_cursor_key(cursor, &size);
        sample.add(Bytes(data, size));
        code = alluvium_cursor_next(cursor, &found, error);
    }
    return code;
}

// A key between two keys, at this share of their distance in the first bytes that differ.
std::string key_between(const std::string &first, const std::string &last, size_t place) {
    size_t same = 0;
    while (same < first.size() && same < last.size() && first[same] == last[same]) same++;
    auto number = [&](const std::string &key) {
        uint64_t value = 0;
        for (size_t i = 0; i < 7; i++)
            value = value << 8 | (same + i < key.size() ? static_cast<uint8_t>(key[same + i]) : 0);
        return value;
    };
    uint64_t low = number(first), high = number(last);
    std::string key = first.substr(0, same);
    append_big(key, 7, low + (high > low ? (high - low) / sample_places * place : 0));
    return key;
}

} // namespace

int ha_alluvium::sample_index(size_t number, uint64_t rows, IndexStatistics &statistics) {
    const std::vector<KeyPart> &parts = parts_of(static_cast<uint>(number));
    Sample sample(parts);
    Cursor cursor;
    ErrorPlace error;
    bool found = false;
    alluvium_cursor_options options = {};
    options.struct_size = sizeof options;
    options.keys_only = 1;
    alluvium_code code =
        alluvium_cursor_open(alluvium_keyspace_reader(share_->keyspace(number)), &options,
                             into(cursor), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_cursor_seek_first(cursor.get(), &found, error.out());
    if (code == ALLUVIUM_CODE_OK && rows <= sample_whole_rows) {
        code = sample_from(cursor.get(), sample, 2 * sample_whole_rows, found, error.out());
    } else if (code == ALLUVIUM_CODE_OK && found) {
        Bytes key = key_of(cursor);
        std::string first(reinterpret_cast<const char *>(key.at), key.length());
        code = alluvium_cursor_seek_last(cursor.get(), &found, error.out());
        key = key_of(cursor);
        std::string last(reinterpret_cast<const char *>(key.at), key.length());
        for (size_t place = 0; place < sample_places && code == ALLUVIUM_CODE_OK; place++) {
            std::string from = key_between(first, last, place);
            code = alluvium_cursor_seek(cursor.get(), from.data(), from.size(), &found,
                                        error.out());
            sample.has_last = false;
            if (code == ALLUVIUM_CODE_OK)
                code = sample_from(cursor.get(), sample, sample_entries, found, error.out());
        }
    }
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, ha_thd());
    for (uint64_t changes : sample.changes)
        statistics.rows_per_value.push_back(
            std::max<uint64_t>(1, (sample.pairs + 1) / (changes + 1)));
    return 0;
}

int ha_alluvium::sample_statistics() {
    std::vector<IndexStatistics> statistics(table->s->keys);
    for (uint i = 0; i < table->s->keys; i++)
        if (int error = sample_index(i, stats.records, statistics[i])) return error;
    if (int error = engine.dictionary->write_statistics(share_->entry().id, statistics))
        return error;
    share_->set_statistics(std::move(statistics), stats.records);
    return 0;
}

// FORCE INDEX has left one way to read the only table of the statement.
bool ha_alluvium::plan_is_forced(uint number) const {
    const TABLE_LIST *tables = ha_thd()->lex->query_tables;
    return table->force_index && table->keys_in_use_for_query.is_set(number) &&
           table->keys_in_use_for_query.bits_set() == 1 && tables && !tables->next_global;
}

ha_rows ha_alluvium::records_in_range(uint number, const key_range *from, const key_range *to,
                                      page_range *) {
    std::string low, high;
    const std::vector<KeyPart> &parts = parts_of(number);
    if (from) encode_tuple(parts, from->key, tuple_map(number, from->keypart_map), low);
    if (to) encode_tuple(parts, to->key, tuple_map(number, to->keypart_map), high);
    if (from && to && plan_is_forced(number)) {
        // A look at the index would cost as much as a short range itself.
        size_t equal = equal_parts(parts, Bytes(low), Bytes(high));
        if (equal > 0 && equal <= table->key_info[number].ext_key_parts)
            return table->key_info[number].rec_per_key[equal - 1];
    }
    if (from && from->flag == HA_READ_AFTER_KEY) low = key_successor(low);
    if (to && to->flag != HA_READ_BEFORE_KEY) high = key_successor(high);
    if (!high.empty() && high <= low) return 1;
    uint64_t rows = 0, bytes = 0;
    ErrorPlace error;
    alluvium_code code = alluvium_keyspace_estimate_range(
        share_->keyspace(number), low.data(), low.size(), high.empty() ? nullptr : high.data(),
        high.size(), &rows, &bytes, error.out());
    if (code != ALLUVIUM_CODE_OK) {
        log_failure("estimate a range", error);
        return HA_POS_ERROR;
    }
    // 0 would mean that the range is empty for sure.
    return std::max<uint64_t>(rows, 1);
}

// Costs in reads of a page, as the server counts them: a scan reads many rows with each block.
double ha_alluvium::scan_time() { return static_cast<double>(stats.records) / 20 + 2; }

double ha_alluvium::read_time(uint number, uint ranges, ha_rows rows) {
    if (!is_primary(number)) return handler::read_time(number, ranges, rows);
    return ranges + static_cast<double>(rows) / 20;
}

} // namespace alluvium_sql
