// SPDX-License-Identifier: GPL-2.0-only
//
// Handler of one open table of one statement. Its members are in a file for each subject:
//
//   open.cc            open, close, flags
//   definition.cc      create, drop, rename, truncate
//   alter.cc           ALTER TABLE in place
//   locks.cc           begin of a statement, row locks
//   read.cc            scans, lookups, positions
//   read_ahead.cc      rows of index scans, several at a time
//   multi_read.cc      several lookups at once
//   write.cc           insert, update, delete
//   bulk.cc            bulk loads
//   sequence.cc        tables of sequences
//   auto_increment.cc  AUTO_INCREMENT
//   statistics.cc      numbers for the optimizer
//   check.cc           CHECK TABLE
//   maintenance.cc     ANALYZE, OPTIMIZE

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compat.h"
#include "errors.h"
#include "rows_ahead.h"
#include "table_share.h"
#include "transaction.h"

namespace alluvium_sql {

// Several lookups at once.
struct LookupBatch {
    bool active = false;
    RANGE_SEQ_IF functions = {};
    range_seq_t place = nullptr;
    RowsAhead rows;
    // The server's name of each key.
    std::vector<range_id_t> ids;

    // Ends the whole series of reads.
    void stop();
};

// Rows that a scan of an index has read ahead, in the order of the scan.
struct ScanWindow {
    // Chosen at the first row of a scan.
    bool active = false;
    bool forward = true;
    RowsAhead rows;
    // Key of the entry of each row.
    std::vector<std::string> entry_keys;
    // No window follows: the scan has ended, or failed with `error`.
    bool is_last = false;
    int error = 0;
    // The scan has given its end.
    bool end_is_reached = false;

    // Begins a scan. `rows_max`: rows of a window.
    void begin(bool is_forward, size_t rows_max);
    // Frees the rows.
    void stop();
};

class ha_alluvium final : public handler {
public:
    ha_alluvium(handlerton *hton, TABLE_SHARE *table_share) : handler(hton, table_share) {}

    // -- open.cc
    Table_flags table_flags() const override;
    ulong index_flags(uint number, uint part, bool all_parts) const override;
    uint max_supported_keys() const override { return MAX_KEY; }
    uint max_supported_key_length() const override { return key_length_max; }
    uint max_supported_key_part_length() const override { return key_length_max; }
    uint max_supported_record_length() const override { return HA_MAX_REC_LENGTH; }
    // The word of clients for an index that is read in order.
    const char *index_type(uint) override { return "BTREE"; }
    const key_map *keys_to_use_for_scanning() override { return &key_map_full; }
    int open(const char *path, int mode, uint test_if_locked) override;
    int close() override;
    int extra(enum ha_extra_function operation) override;
    int reset() override;
    void print_error(int error, myf flags) override;
    bool get_error_message(int error, String *text) override;
    ulonglong table_version() const override;

    // -- definition.cc
    int create(const char *path, TABLE *form, HA_CREATE_INFO *info) override;
    int delete_table(const char *path) override;
    int rename_table(const char *from, const char *to) override;
    int truncate() override;
    void update_create_info(HA_CREATE_INFO *info) override;

    // -- alter.cc
    enum_alter_inplace_result
    check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
    bool check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes) override;
    bool can_convert_nocopy(const Field &field, const Column_definition &column) const override;
    bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
    bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
    bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info,
                                    bool commit) override;

    // -- locks.cc
    uint lock_count() const override { return 0; }
    THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type) override;
    int external_lock(THD *thd, int type) override;
    int start_stmt(THD *thd, thr_lock_type type) override;
    void unlock_row() override;

    // -- read.cc
    int index_init(uint number, bool sorted) override;
    int index_end() override;
    int index_read_map(uchar *record, const uchar *key, key_part_map map,
                       enum ha_rkey_function flag) override;
    int index_first(uchar *record) override;
    int index_last(uchar *record) override;
    int index_next(uchar *record) override;
    int index_prev(uchar *record) override;
    int index_next_same(uchar *record, const uchar *key, uint length) override;
    int rnd_init(bool scan) override;
    int rnd_end() override;
    int rnd_next(uchar *record) override;
    int rnd_pos(uchar *record, uchar *position) override;
    void position(const uchar *record) override;
    Item *idx_cond_push(uint number, Item *condition) override;

    // -- multi_read.cc
    ha_rows multi_range_read_info_const(uint number, RANGE_SEQ_IF *sequence, void *param,
                                        uint ranges, uint *buffer_size, uint *mode,
                                        Cost_estimate *cost) override;
    ha_rows multi_range_read_info(uint number, uint ranges, uint keys, uint key_parts,
                                  uint *buffer_size, uint *mode, Cost_estimate *cost) override;
    int multi_range_read_init(RANGE_SEQ_IF *sequence, void *param, uint ranges, uint mode,
                              HANDLER_BUFFER *buffer) override;
    int multi_range_read_next(range_id_t *id) override;

    // -- write.cc
    int write_row(const uchar *record) override;
    int update_row(const uchar *old_record, const uchar *new_record) override;
    int delete_row(const uchar *record) override;

    // -- bulk.cc
    void start_bulk_insert(ha_rows rows, uint flags) override;
    int end_bulk_insert() override;

    // -- auto_increment.cc
    void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                            ulonglong *first, ulonglong *reserved) override;
    int reset_auto_increment(ulonglong next) override;

    // -- statistics.cc
    int info(uint flags) override;
    ha_rows records_in_range(uint number, const key_range *from, const key_range *to,
                             page_range *pages) override;
    double scan_time() override;
    double read_time(uint number, uint ranges, ha_rows rows) override;

    // -- check.cc, maintenance.cc
    int analyze(THD *thd, HA_CHECK_OPT *options) override;
    int check(THD *thd, HA_CHECK_OPT *options) override;
    int optimize(THD *thd, HA_CHECK_OPT *options) override;

private:
    // As in InnoDB, so that tables move between the engines.
    static constexpr uint key_length_max = 3072;

    // Limits of the open cursor, to go on past them.
    struct Limits {
        std::string low;  // empty: the start of the keyspace
        std::string high; // exclusive; empty: the end of the keyspace
        // `high` comes from the statement's end of the range: nothing after it is wanted.
        bool high_is_final = false;
    };
    enum class Move { First, Last, Next, Prev };
    // Row that a failed write has found in its way.
    struct Duplicate {
        bool present = false;
        std::string key;
        Value value;
    };

    int load_share(const char *path);
    const std::vector<KeyPart> &parts_of(uint number) const;
    key_part_map tuple_map(uint number, key_part_map map) const;
    bool is_primary(uint number) const { return number == share_->primary_number(); }

    // -- read.cc
    int check_complete(uint number);
    int open_range(uint number, Limits limits);
    int open_prefix(uint number, const std::string &prefix);
    int move(Move move, bool &found);
    int step(uchar *record, Move first_move, int missing);
    int read_cursor_row(uchar *record);
    int read_entry(uchar *record, Bytes key, Bytes value);
    int read_row(uchar *record);
    int decode_row(uchar *record, Bytes key, Bytes value);
    int lookup(uchar *record, const std::string &key);
    int read_range(uchar *record, const std::string &key, bool after);
    int read_before(uchar *record, const std::string &key, bool inclusive);
    int check_pushed_condition(uchar *record, Bytes key, Bytes value, bool &matches);
    void compute_virtual_columns();
    int entry_changed(const uchar *record, Bytes key, bool &changed);
    void forget_cursor();
    void store_position(uchar *to, const std::string &key) const;

    // Rows that may be large are read in small numbers: a large one may follow small ones.
    size_t rows_at_once(size_t rows) const {
        constexpr size_t large_rows_max = 8;
        return share_->has_blobs() ? large_rows_max : rows;
    }

    // -- read_ahead.cc
    bool reads_ahead() const;
    int step_ahead(uchar *record, Move first_move, int missing);
    int fill_window(uchar *record, Move first_move);
    int add_to_window(uchar *record);
    int return_to_window();

    // -- multi_read.cc
    bool can_batch(uint number) const;
    int fill_batch(bool &empty);

    // -- alter.cc
    bool report_build(int error, TABLE *altered, uint duplicate);

    // -- write.cc
    int check_duplicates(const uchar *record, const std::string *old_key, const uchar *old_record);
    bool expires() const { return share_->expiry_field() != no_field; }
    uint64_t expiry(const uchar *record) const {
        return expires() ? expiry_of(*table, share_->expiry_field(), record) : 0;
    }
    int insert_pair(const alluvium_keyspace *keyspace, const std::string &key,
                    const std::string &value, Tracking tracking);
    int put_pair(const alluvium_keyspace *keyspace, const std::string &key,
                 const std::string &value, Tracking tracking);
    int insert_row(const uchar *record);
    bool replaces_after_duplicate() const;
    int insert_primary(const uchar *record);
    int found_duplicate(uint number, const std::string &row_key, Value value);
    int lock_entry(uint number, std::string &owner);
    int remove_entry(uint number, bool locks);
    int update_entries(const uchar *old_record, const uchar *new_record);

    // -- sequence.cc
    bool is_sequence() const { return table_share->sequence != nullptr; }
    int write_sequence(const uchar *record);
    int read_sequence(uchar *record);

    // -- bulk.cc
    int lock_out_writers(THD *thd);
    int find_empty(bool &empty);
    bool wants_bulk_load();
    int load_row(const uchar *record);
    int load_entry(uint number, const std::string &key, const std::string &value);
    int found_load_duplicate(const ErrorPlace &error);

    // -- auto_increment.cc
    int raise_numbers();

    // -- statistics.cc
    bool plan_is_forced(uint number) const;
    void set_rows_per_key();
    int sample_statistics();
    void renew_statistics();
    int sample_index(size_t number, uint64_t rows, IndexStatistics &statistics);

    TableShare *share_ = nullptr;
    Transaction *transaction_ = nullptr;
    RowLock row_lock_ = RowLock::None;
    // SKIP LOCKED: rows that other transactions have locked do not exist for the statement.
    bool skip_locked_ = false;

    Cursor cursor_;
    uint cursor_index_ = MAX_KEY;
    Limits limits_;
    ScanWindow window_;
    bool scan_begins_ = false;
    bool key_read_ = false;
    // The statement changes the row that it finds in the way of an insert.
    bool overwrites_ = false;
    // Rows that the statement still has to write, as the server told at the first row.
    ulonglong numbers_left_ = 0;
    // Error of the last reservation of numbers: the server would only say that it failed.
    int numbers_error_ = 0;
    // Time at which the row that is written expires, if `expires`.
    uint64_t until_ms_ = 0;
    // Key of the row that was read last.
    std::string row_key_;
    // Holds the bytes that blob columns of the last row point to.
    Value row_value_;

    LookupBatch batch_;
    // Bulk load under way; null: rows go into the transaction.
    Ingest load_;
    // Error of the look for a bulk load.
    int load_error_ = 0;
    Duplicate duplicate_;
    uint duplicate_index_ = MAX_KEY;

    // Buffers, to save allocations.
    std::string key_buffer_, range_buffer_, value_buffer_, row_buffer_, new_key_, old_key_,
        old_entry_key_, old_entry_value_;
};

} // namespace alluvium_sql
