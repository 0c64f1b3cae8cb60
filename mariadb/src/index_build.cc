// SPDX-License-Identifier: GPL-2.0-only

#include "index_build.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "definition.h"
#include "engine.h"
#include "errors.h"

namespace alluvium_sql {

namespace {

// Rows in memory before a bulk load writes them to temporary files.
constexpr uint64_t load_memory_bytes = 32 << 20;
// Writes of one commit: enough to share its cost, few enough not to hold up other commits.
constexpr size_t batch_writes = 256;
// Changed rows that the last round, which locks the table, may find.
constexpr uint64_t last_round_rows = 1000;
// Rounds without the lock; writers that are faster than the build would make them endless.
constexpr int rounds_max = 20;
// Number of the round in the keys of the keyspace of changes.
constexpr size_t round_bytes = 4;
constexpr auto follower_wait = std::chrono::milliseconds(20);
constexpr auto prepared_wait = std::chrono::milliseconds(10);

// Codec of the rows of a table, in any layout of its entry.
RowCodec row_codec(const TABLE &altered, const PrimaryCodec &primary, const TableEntry &entry) {
    RowLayout layout = row_layout(altered, primary);
    layout.version = entry.layouts.back().version;
    for (size_t i = 0; i < layout.columns.size(); i++) {
        layout.columns[i].id = entry.layouts.back().columns[i].id;
        layout.columns[i].initial = entry.initial[i];
    }
    return RowCodec(std::move(layout), entry.layouts);
}

// Writes a batch as one commit, and empties it. The dictionary's write after the build makes it
// durable.
int write(alluvium_batch *batch) {
    if (alluvium_batch_is_empty(batch)) return 0;
    alluvium_write_options options = {};
    options.struct_size = sizeof options;
    options.durability = ALLUVIUM_DURABILITY_BUFFERED;
    // No transaction writes these keyspaces.
    options.untracked = 1;
    ErrorPlace error;
    alluvium_code code = alluvium_write(engine.database, batch, &options, error.out());
    alluvium_batch_clear(batch);
    return handler_error(code, error, nullptr);
}

} // namespace

IndexBuild::IndexBuild(const TableShare &share, TABLE &altered, const TableEntry &entry,
                       const std::vector<uint> &added, uint64_t changes)
    : share_(share), altered_(altered), table_id_(entry.id), added_(added), changes_id_(changes),
      primary_(altered, primary_key_of(altered)), rows_(row_codec(altered, primary_, entry)) {
    for (uint number : added_) {
        indexes_.emplace_back(altered, altered.key_info[number], primary_);
        index_ids_.push_back(entry.indexes[number]);
    }
}

int IndexBuild::open_keyspaces() {
    for (uint64_t index : index_ids_) {
        keyspaces_.emplace_back();
        int error = engine.dictionary->open_keyspace(table_id_, index, keyspaces_.back());
        if (error) return error;
    }
    return engine.dictionary->open_keyspace(table_id_, changes_id_, changes_);
}

// A transaction that is prepared, and whose connection has ended, holds no metadata lock. Its
// decision would change rows that the build has already read.
int IndexBuild::wait_for_prepared_writers(THD *thd) {
    auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(lock_timeout_ms(thd));
    for (;;) {
        bool has = false;
        ErrorPlace error;
        alluvium_code code = alluvium_keyspace_has_prepared_writer(
            engine.database, share_.primary_keyspace(), &has, error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, thd);
        if (!has) return 0;
        if (thd_kill_level(thd)) return HA_ERR_ABORTED_BY_USER;
        if (std::chrono::steady_clock::now() >= until) return HA_ERR_LOCK_WAIT_TIMEOUT;
        std::this_thread::sleep_for(prepared_wait);
    }
}

int IndexBuild::begin(THD *thd) {
    if (int error = open_keyspaces()) return error;
    if (int error = wait_for_prepared_writers(thd)) return error;
    size_t size = 0;
    const uint8_t *name = alluvium_keyspace_name(share_.primary_keyspace(), &size);
    alluvium_slice rows = {name, size};
    alluvium_changes_options options = {};
    options.struct_size = sizeof options;
    options.keyspaces = &rows;
    options.keyspace_count = 1;
    ErrorPlace error;
    alluvium_code code = alluvium_snapshot_open(engine.database, into(applied_), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_changes_open(engine.database, alluvium_snapshot_seqno(applied_.get()) + 1,
                                     &options, into(log_), error.out());
    return code == ALLUVIUM_CODE_OK ? start_following() : handler_error(code, error, thd);
}

int IndexBuild::run(THD *thd) {
    if (int error = load(thd)) return error;
    uint64_t rows = 0, before = UINT64_MAX;
    for (int round = 0; round < rounds_max; round++) {
        if (int error = catch_up(thd, rows)) return error;
        // The last round takes about as long as this one.
        if (rows <= last_round_rows || rows >= before) return 0;
        before = rows;
    }
    return 0;
}

int IndexBuild::finish(THD *thd) {
    uint64_t rows = 0;
    if (int error = wait_for_prepared_writers(thd)) return error;
    return catch_up(thd, rows);
}

// -- Load of a snapshot

int IndexBuild::decode(Bytes key, Bytes value) {
    uchar *record = altered_.record[0];
    if (!primary_.decode(key, record) ||
        rows_.decode(value.at, value.length(), record) != Decoded::Ok)
        return HA_ERR_CRASHED;
    // A row has the values of all other columns, also of stored generated ones: computed anew in
    // this connection they might differ.
    for (uint number : added_)
        if (int error = compute_key_columns(altered_, number, false)) return error;
    return 0;
}

template <typename Visit> int IndexBuild::scan(THD *thd, Visit visit) {
    Cursor cursor;
    ErrorPlace error;
    bool found = false;
    alluvium_reader reader = alluvium_snapshot_reader(applied_.get(), share_.primary_keyspace());
    alluvium_code code = alluvium_cursor_open(reader, nullptr, into(cursor), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_cursor_seek_first(cursor.get(), &found, error.out());
    while (code == ALLUVIUM_CODE_OK && found) {
        if (thd_kill_level(thd)) return HA_ERR_ABORTED_BY_USER;
        Bytes key = key_of(cursor);
        if (int failed = decode(key, value_of(cursor))) return failed;
        row_key_.assign(reinterpret_cast<const char *>(key.at), key.length());
        if (int failed = visit()) return failed;
        code = alluvium_cursor_next(cursor.get(), &found, error.out());
    }
    return handler_error(code, error, thd);
}

// Puts the entries of the row in the record into the load.
int IndexBuild::put_entries(const Ingest &ingest) {
    for (size_t i = 0; i < indexes_.size(); i++) {
        indexes_[i].encode(altered_.record[0], row_key_, key_, value_);
        if (key_.size() > ALLUVIUM_KEY_BYTES_MAX) return error_key_too_long;
        ErrorPlace error;
        alluvium_code code =
            alluvium_put(alluvium_ingest_writer(ingest.get(), keyspaces_[i].get()), key_.data(),
                         key_.size(), value_.data(), value_.size(), error.out());
        if (code == ALLUVIUM_CODE_DUPLICATE_KEY)
            return find_loaded_duplicate(altered_.in_use, error);
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    }
    return 0;
}

int IndexBuild::load(THD *thd) {
    alluvium_ingest_options options = {};
    options.struct_size = sizeof options;
    options.any_order = 1;
    options.memory_bytes = load_memory_bytes;
    // Entries of other indexes end with the row's key, so they never are duplicates.
    options.duplicates = ALLUVIUM_DUPLICATES_REFUSE;
    Ingest ingest;
    ErrorPlace error;
    alluvium_code code =
        alluvium_ingest_begin(engine.database, &options, into(ingest), error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, thd);
    if (int failed = scan(thd, [&]() { return put_entries(ingest); })) return failed;
    ErrorPlace finishing;
    code = alluvium_ingest_finish(ingest.get(), nullptr, finishing.out());
    if (code == ALLUVIUM_CODE_DUPLICATE_KEY) return find_loaded_duplicate(thd, finishing);
    return handler_error(code, finishing, thd);
}

// The load may find a duplicate long after it was put, so its row is looked for.
int IndexBuild::find_loaded_duplicate(THD *thd, const ErrorPlace &error) {
    size_t size = 0;
    const uint8_t *data = alluvium_error_key(error.get(), &size);
    std::string wanted(reinterpret_cast<const char *>(data), data ? size : 0);
    constexpr int found = -1;
    int failed = scan(thd, [&]() {
        for (size_t i = 0; i < indexes_.size(); i++) {
            if (!indexes_[i].is_unique()) continue;
            indexes_[i].encode(altered_.record[0], row_key_, key_, value_);
            duplicate_ = added_[i];
            if (key_ == wanted) return found;
        }
        return 0;
    });
    return failed && failed != found ? failed : HA_ERR_FOUND_DUPP_KEY;
}

// -- The log

int IndexBuild::start_following() {
    following_ = true;
    try {
        follower_ = std::thread(&IndexBuild::follow, this);
    } catch (const std::system_error &error) {
        return fail_with(std::string("no thread for the build of an index: ") + error.what());
    }
    return 0;
}

void IndexBuild::follow() {
    std::unique_lock<std::mutex> lock(log_mutex_);
    while (following_ && !follow_error_) {
        follow_error_ = drain(UINT64_MAX);
        // The text belongs to the thread.
        if (follow_error_) follow_text_ = own_error_text(follow_error_);
        else follower_wakes_.wait_for(lock, follower_wait);
    }
}

void IndexBuild::stop_following() {
    if (!follower_.joinable()) return;
    {
        std::lock_guard<std::mutex> guard(log_mutex_);
        following_ = false;
    }
    follower_wakes_.notify_one();
    follower_.join();
}

// Moves the keys of rows that were changed up to a commit from the log to the keyspace of changes.
// Called with the lock held.
int IndexBuild::drain(uint64_t last) {
    Batch batch(alluvium_batch_new());
    for (;;) {
        if (!next_change_) {
            ErrorPlace error;
            alluvium_code code =
                alluvium_changes_next(log_.get(), into(next_change_), error.out());
            if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
        }
        if (!next_change_ || alluvium_change_seqno(next_change_.get()) > last) break;
        if (int error = collect(next_change_.get(), batch.get())) return error;
        next_change_.reset();
    }
    return write(batch.get());
}

int IndexBuild::collect(const alluvium_change *change, alluvium_batch *batch) {
    // The metadata lock keeps out bulk loads, but the commit of a transaction larger than memory is
    // an ingest too.
    if (alluvium_change_get_kind(change) == ALLUVIUM_CHANGE_KIND_INGEST)
        return fail_with("a transaction larger than memory changed the table meanwhile: try again");
    alluvium_writer writer = alluvium_batch_writer(batch, changes_.get());
    for (size_t i = 0; i < alluvium_change_operation_count(change); i++) {
        alluvium_operation operation = {};
        operation.struct_size = sizeof operation;
        ErrorPlace error;
        alluvium_code code = alluvium_change_operation(change, i, &operation, error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
        std::string key;
        append_big(key, round_bytes, round_);
        append_bytes(key, static_cast<const uint8_t *>(operation.key.data), operation.key.size);
        code = alluvium_put(writer, key.data(), key.size(), nullptr, 0, error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
        collected_++;
        if (alluvium_batch_count(batch) >= batch_writes)
            if (int failed = write(batch)) return failed;
    }
    return 0;
}

// -- Rounds

// Takes the next snapshot, and the number of the round that has all changes up to it.
int IndexBuild::end_collection(uint64_t &rows, uint32_t &round, Owned<alluvium_snapshot> &next) {
    std::lock_guard<std::mutex> guard(log_mutex_);
    if (follow_error_) return follow_text_.empty() ? follow_error_ : fail_with(follow_text_);
    ErrorPlace error;
    alluvium_code code = alluvium_snapshot_open(engine.database, into(next), error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    if (int failed = drain(alluvium_snapshot_seqno(next.get()))) return failed;
    rows = std::exchange(collected_, 0);
    round = round_++;
    return 0;
}

// Makes the indexes those of the newest commit. `rows` gets the number of changes.
int IndexBuild::catch_up(THD *thd, uint64_t &rows) {
    Owned<alluvium_snapshot> next;
    uint32_t round = 0;
    if (int error = end_collection(rows, round, next)) return error;
    if (rows) {
        // All old entries go first, so an entry that a new one meets belongs to another row.
        if (int failed = apply(thd, round, next.get(), Pass::Remove)) return failed;
        if (int failed = apply(thd, round, next.get(), Pass::Add)) return failed;
        std::string prefix;
        append_big(prefix, round_bytes, round);
        ErrorPlace error;
        alluvium_code code = alluvium_delete_prefix(alluvium_keyspace_writer(changes_.get()),
                                                    prefix.data(), prefix.size(), error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, thd);
    }
    applied_ = std::move(next);
    return 0;
}

// Goes through the rows that have changed between `applied_` and the next snapshot.
int IndexBuild::apply(THD *thd, uint32_t round, const alluvium_snapshot *next, Pass pass) {
    Batch batch(alluvium_batch_new());
    Cursor cursor;
    Entries old_entries, new_entries;
    std::string prefix;
    append_big(prefix, round_bytes, round);
    alluvium_cursor_options options = {};
    options.struct_size = sizeof options;
    options.prefix = prefix.data();
    options.prefix_size = prefix.size();
    ErrorPlace error;
    bool found = false;
    alluvium_code code = alluvium_cursor_open(alluvium_keyspace_reader(changes_.get()), &options,
                                              into(cursor), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_cursor_seek_first(cursor.get(), &found, error.out());
    while (code == ALLUVIUM_CODE_OK && found) {
        if (thd_kill_level(thd)) return HA_ERR_ABORTED_BY_USER;
        Bytes key = key_of(cursor);
        row_key_.assign(reinterpret_cast<const char *>(key.at) + round_bytes,
                        key.length() - round_bytes);
        int failed = read_entries(applied_.get(), old_entries);
        if (!failed) failed = read_entries(next, new_entries);
        if (!failed)
            failed = pass == Pass::Remove ? remove_entries(old_entries, new_entries, batch.get())
                                          : add_entries(old_entries, new_entries, batch.get());
        if (failed) return failed;
        code = alluvium_cursor_next(cursor.get(), &found, error.out());
    }
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, thd);
    return write(batch.get());
}

// Sets the entries of the row `row_key_` in a snapshot; the record then has that row, if any.
int IndexBuild::read_entries(const alluvium_snapshot *snapshot, Entries &entries) {
    entries.clear();
    ErrorPlace error;
    alluvium_reader reader = alluvium_snapshot_reader(snapshot, share_.primary_keyspace());
    alluvium_code code =
        alluvium_get(reader, row_key_.data(), row_key_.size(), into(row_), error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    if (!row_) return 0;
    if (int failed = decode(Bytes(row_key_), bytes_of(row_))) return failed;
    entries.resize(indexes_.size());
    for (size_t i = 0; i < indexes_.size(); i++) {
        Entry &entry = entries[i];
        entry.unique =
            indexes_[i].encode(altered_.record[0], row_key_, entry.key, entry.value);
        if (entry.key.size() > ALLUVIUM_KEY_BYTES_MAX) return error_key_too_long;
    }
    return 0;
}

int IndexBuild::remove_entries(const Entries &old_entries, const Entries &new_entries,
                               alluvium_batch *batch) {
    for (size_t i = 0; i < old_entries.size(); i++) {
        const std::string &key = old_entries[i].key;
        if (!new_entries.empty() && new_entries[i].key == key) continue;
        ErrorPlace error;
        alluvium_code code = alluvium_delete(alluvium_batch_writer(batch, keyspaces_[i].get()),
                                             key.data(), key.size(), error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    }
    return alluvium_batch_count(batch) >= batch_writes ? write(batch) : 0;
}

int IndexBuild::add_entries(const Entries &old_entries, const Entries &new_entries,
                            alluvium_batch *batch) {
    bool unique = false;
    for (size_t i = 0; i < new_entries.size(); i++) {
        const Entry &entry = new_entries[i];
        bool same_key = !old_entries.empty() && old_entries[i].key == entry.key;
        if (same_key && old_entries[i].value == entry.value) continue;
        if (entry.unique && !same_key)
            if (int error = check_unique(i, entry)) return error;
        unique |= entry.unique;
        ErrorPlace error;
        alluvium_code code =
            alluvium_put(alluvium_batch_writer(batch, keyspaces_[i].get()), entry.key.data(),
                         entry.key.size(), entry.value.data(), entry.value.size(), error.out());
        if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    }
    // The check of the next row has to meet the entries of this one.
    return unique || alluvium_batch_count(batch) >= batch_writes ? write(batch) : 0;
}

int IndexBuild::check_unique(size_t place, const Entry &entry) {
    Value existing;
    ErrorPlace error;
    alluvium_code code = alluvium_get(alluvium_keyspace_reader(keyspaces_[place].get()),
                                      entry.key.data(), entry.key.size(), into(existing),
                                      error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    if (!existing) return 0;
    duplicate_ = added_[place];
    return HA_ERR_FOUND_DUPP_KEY;
}

} // namespace alluvium_sql
