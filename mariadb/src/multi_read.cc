// SPDX-License-Identifier: GPL-2.0-only
//
// Several lookups at once. Equalities on the whole primary key become reads of many keys. All other
// cases, and locking reads, go the server's way.
//
// The server must ask for this (`mode` without HA_MRR_USE_DEFAULT_IMPL), so the cost functions
// below clear that flag where a batch helps.

#include "ha_alluvium.h"

namespace alluvium_sql {

namespace {

// Keys of the first read and of any: enough to share the cost of the seeks, few enough to stop
// early.
constexpr size_t batch_keys_first = 16;
constexpr size_t batch_keys_max = 128;

} // namespace

void LookupBatch::stop() {
    rows.clear();
    active = false;
}

bool ha_alluvium::can_batch(uint number) const {
    // A locking read has to lock row by row. A hidden key is never looked up.
    return row_lock_ == RowLock::None && is_primary(number) && !share_->primary().is_hidden();
}

ha_rows ha_alluvium::multi_range_read_info_const(uint number, RANGE_SEQ_IF *sequence, void *param,
                                                 uint ranges, uint *buffer_size, uint *mode,
                                                 Cost_estimate *cost) {
    bool sorted = *mode & HA_MRR_SORTED;
    ha_rows rows = handler::multi_range_read_info_const(number, sequence, param, ranges,
                                                        buffer_size, mode, cost);
    if (rows != HA_POS_ERROR && ranges > 1 && !sorted && can_batch(number))
        *mode &= ~HA_MRR_USE_DEFAULT_IMPL;
    return rows;
}

ha_rows ha_alluvium::multi_range_read_info(uint number, uint ranges, uint keys, uint key_parts,
                                           uint *buffer_size, uint *mode, Cost_estimate *cost) {
    bool sorted = *mode & HA_MRR_SORTED;
    ha_rows rows =
        handler::multi_range_read_info(number, ranges, keys, key_parts, buffer_size, mode, cost);
    if (!sorted && can_batch(number)) *mode &= ~HA_MRR_USE_DEFAULT_IMPL;
    return rows;
}

int ha_alluvium::multi_range_read_init(RANGE_SEQ_IF *sequence, void *param, uint ranges, uint mode,
                                       HANDLER_BUFFER *buffer) {
    batch_.stop();
    if (!can_batch(active_index) || mode & HA_MRR_SORTED || ranges < 2)
        return handler::multi_range_read_init(sequence, param, ranges, mode, buffer);
    // Only a sequence of whole keys can be read so. It is started anew where one range is not.
    KEY_MULTI_RANGE range;
    uint parts = table->key_info[active_index].user_defined_key_parts;
    range_seq_t place = sequence->init(param, ranges, mode);
    while (!sequence->next(place, &range))
        if (!(range.range_flag & EQ_RANGE) || range.range_flag & NULL_RANGE ||
            range.start_key.keypart_map != make_prev_keypart_map(parts))
            return handler::multi_range_read_init(sequence, param, ranges, mode, buffer);
    batch_.active = true;
    batch_.rows.restart(batch_keys_first, rows_at_once(batch_keys_max));
    batch_.functions = *sequence;
    batch_.place = sequence->init(param, ranges, mode);
    return 0;
}

// Reads the rows of the next keys.
int ha_alluvium::fill_batch(bool &empty) {
    batch_.rows.clear();
    batch_.ids.clear();
    KEY_MULTI_RANGE range;
    while (!batch_.rows.is_full() && !batch_.functions.next(batch_.place, &range)) {
        encode_tuple(parts_of(active_index), range.start_key.key, range.start_key.keypart_map,
                     batch_.rows.add());
        batch_.ids.push_back(range.ptr);
    }
    empty = batch_.rows.count() == 0;
    return batch_.rows.read(*transaction_, share_->primary_keyspace());
}

int ha_alluvium::multi_range_read_next(range_id_t *id) {
    if (!batch_.active) return handler::multi_range_read_next(id);
    while (!batch_.rows.next(row_key_, row_value_)) {
        if (thd_kill_level(ha_thd())) return HA_ERR_ABORTED_BY_USER;
        bool empty = false;
        if (int error = fill_batch(empty)) return error;
        if (empty) return HA_ERR_END_OF_FILE;
    }
    *id = batch_.ids[batch_.rows.given() - 1];
    int error = decode_row(table->record[0], Bytes(row_key_), bytes_of(row_value_));
    if (!error && table->s->virtual_fields &&
        table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ))
        return HA_ERR_GENERIC;
    return error;
}

} // namespace alluvium_sql
