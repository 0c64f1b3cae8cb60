// SPDX-License-Identifier: GPL-2.0-only
//
// Build of new indexes of one table while other connections read and write it:
// docs/decisions/0058-index-builds.md.
//
// Writers know nothing of a build. Their changes of rows are read from the engine's log:
//
//   begin    under the exclusive metadata lock, so no open transaction has written the table.
//            Takes a snapshot. From now on a thread moves the keys of changed rows from the log to
//            a keyspace of changes.
//   run      loads the entries of the snapshot's rows. Then rounds: each takes a newer snapshot,
//            and gives each row that changed between the two its newer entries. The rounds end when
//            few rows change meanwhile.
//   finish   the last round, under the exclusive metadata lock.
//
// Invariant: between two rounds the indexes have exactly the entries of the rows of `applied_`.

#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "errors.h"
#include "table_share.h"

namespace alluvium_sql {

class IndexBuild {
public:
    // `entry` describes the table after the change. `added` has the numbers of its new keys, and
    // `changes` the index id of the keyspace of changes; all their keyspaces exist.
    IndexBuild(const TableShare &share, TABLE &altered, const TableEntry &entry,
               const std::vector<uint> &added, uint64_t changes);
    ~IndexBuild() { stop_following(); }

    // Each returns 0 or an error of the handler. After HA_ERR_FOUND_DUPP_KEY, `duplicate()` is the
    // number of the key that is not unique, with its row in the record of the new table.
    int begin(THD *thd);
    int run(THD *thd);
    int finish(THD *thd);
    uint duplicate() const { return duplicate_; }

private:
    // Entry of one row in one index.
    struct Entry {
        std::string key, value;
        bool unique = false;
    };
    // Entries of one row in all new indexes; none without a row.
    using Entries = std::vector<Entry>;
    enum class Pass { Remove, Add };

    int open_keyspaces();
    int wait_for_prepared_writers(THD *thd);

    int load(THD *thd);
    int put_entries(const Ingest &ingest);
    template <typename Visit> int scan(THD *thd, Visit visit);
    int decode(Bytes key, Bytes value);
    int find_loaded_duplicate(THD *thd, const ErrorPlace &error);

    int start_following();
    void stop_following();
    void follow();
    int drain(uint64_t last);
    int end_collection(uint64_t &rows, uint32_t &round, Owned<alluvium_snapshot> &next);
    int collect(const alluvium_change *change, alluvium_batch *batch);

    int catch_up(THD *thd, uint64_t &rows);
    int apply(THD *thd, uint32_t round, const alluvium_snapshot *next, Pass pass);
    int read_entries(const alluvium_snapshot *snapshot, Entries &entries);
    int remove_entries(const Entries &old_entries, const Entries &new_entries,
                       alluvium_batch *batch);
    int add_entries(const Entries &old_entries, const Entries &new_entries, alluvium_batch *batch);
    int check_unique(size_t place, const Entry &entry);

    const TableShare &share_;
    TABLE &altered_;
    const uint64_t table_id_;
    const std::vector<uint> added_;
    // Ids of the new indexes, in the order of `added_`.
    std::vector<uint64_t> index_ids_;
    const uint64_t changes_id_;
    PrimaryCodec primary_;
    RowCodec rows_;
    std::vector<IndexCodec> indexes_;
    std::vector<Keyspace> keyspaces_;

    // Rows of this snapshot have their entries.
    Owned<alluvium_snapshot> applied_;

    // Guards the members up to `follow_text_`.
    std::mutex log_mutex_;
    std::condition_variable follower_wakes_;
    Owned<alluvium_changes> log_;
    // Read from `log_`, and newer than the last snapshot.
    Owned<alluvium_change> next_change_;
    // For each changed row: the number of the round that has to look at it, and the row's key.
    Keyspace changes_;
    uint32_t round_ = 0;
    // Rows that the next round has to look at, each as often as it was changed.
    uint64_t collected_ = 0;
    bool following_ = false;
    int follow_error_ = 0;
    std::string follow_text_;
    // Reads the log all the time, because the engine keeps only a limited part of it for a reader.
    std::thread follower_;

    uint duplicate_ = MAX_KEY;
    std::string row_key_, key_, value_;
    // Holds the bytes of the blobs in the record.
    Value row_;
};

} // namespace alluvium_sql
