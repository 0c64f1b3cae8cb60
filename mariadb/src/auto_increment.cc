// SPDX-License-Identifier: GPL-2.0-only
//
// AUTO_INCREMENT: numbers come from the shared counter and never go back.

#include <algorithm>

#include "ha_alluvium.h"

namespace alluvium_sql {

void ha_alluvium::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                                     ulonglong *first, ulonglong *reserved) {
    uint64_t number = 0;
    // `wanted` is right at the first call of a statement only. As in InnoDB, a later call reserves
    // one number for each row that is left.
    if (numbers_left_ == 0) numbers_left_ = std::max<ulonglong>(wanted, 1);
    wanted = numbers_left_;
    // The server takes this value as "no number left".
    *first = ULONGLONG_MAX;
    *reserved = wanted;
    numbers_error_ = share_->reserve_numbers(offset, increment, wanted, number);
    if (!numbers_error_) *first = number;
}

// Raises the counter above the number in record[0].
int ha_alluvium::raise_numbers() {
    Field *number = table->found_next_number_field;
    if (!number || table->s->next_number_keypart) return 0;
    longlong used = number->val_int();
    if (used < 0 && !(number->flags & UNSIGNED_FLAG)) return 0;
    return share_->raise_numbers(static_cast<uint64_t>(used));
}

int ha_alluvium::reset_auto_increment(ulonglong next) { return share_->set_next_number(next); }

void ha_alluvium::update_create_info(HA_CREATE_INFO *info) {
    if (info->used_fields & HA_CREATE_USED_AUTO || !table->found_next_number_field) return;
    info->auto_increment_value = share_->next_number();
}

} // namespace alluvium_sql
