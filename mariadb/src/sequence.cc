// SPDX-License-Identifier: GPL-2.0-only
//
// Table of a sequence. It has one row, which the server reads and replaces under a lock of its own
// and outside of transactions: a number that was given is not given again, also after a rollback.
// So each write is a commit of its own, and each read sees the newest one.

#include "engine.h"
#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

namespace {

// Hidden key of the row.
constexpr uint64_t sequence_row = 1;

} // namespace

int ha_alluvium::write_sequence(const uchar *record) {
    share_->primary().encode(record, sequence_row, new_key_);
    row_buffer_.clear();
    share_->rows().encode(record, row_buffer_);
    Batch batch(alluvium_batch_new());
    alluvium_writer writer = alluvium_batch_writer(batch.get(), share_->primary_keyspace());
    alluvium_write_options options = {};
    options.struct_size = sizeof options;
    options.durability = commit_durability();
    ErrorPlace error;
    alluvium_code code = alluvium_put(writer, new_key_.data(), new_key_.size(), row_buffer_.data(),
                                      row_buffer_.size(), error.out());
    if (code == ALLUVIUM_CODE_OK)
        code = alluvium_write(engine.database, batch.get(), &options, error.out());
    return handler_error(code, error, ha_thd());
}

int ha_alluvium::read_sequence(uchar *record) {
    share_->primary().encode(record, sequence_row, row_key_);
    ErrorPlace error;
    alluvium_code code =
        alluvium_get(alluvium_keyspace_reader(share_->primary_keyspace()), row_key_.data(),
                     row_key_.size(), into(row_value_), error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, ha_thd());
    if (!row_value_) return HA_ERR_END_OF_FILE;
    return decode_row(record, Bytes(row_key_), bytes_of(row_value_));
}

} // namespace alluvium_sql
