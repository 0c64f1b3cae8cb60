// SPDX-License-Identifier: GPL-2.0-only

#include "rows_ahead.h"

#include <algorithm>
#include <utility>

#include "transaction.h"

namespace alluvium_sql {

namespace {

// Bytes of the rows of one read, if they are about as large as those of the read before it.
constexpr size_t bytes_max = 1 << 20;

} // namespace

void RowsAhead::restart(size_t first, size_t max) {
    clear();
    max_ = max;
    wanted_ = std::min(first, max);
}

void RowsAhead::clear() {
    for (alluvium_value *value : values_) alluvium_value_free(value);
    values_.clear();
    count_ = 0;
    next_ = 0;
}

std::string &RowsAhead::add() {
    if (count_ == keys_.size()) keys_.emplace_back();
    return keys_[count_++];
}

int RowsAhead::read(Transaction &transaction, const alluvium_keyspace *rows) {
    if (count_ == 0) return 0;
    std::vector<alluvium_slice> slices;
    slices.reserve(count_);
    for (size_t i = 0; i < count_; i++) slices.push_back({keys_[i].data(), keys_[i].size()});
    if (int error = transaction.multi_get(rows, slices, values_)) return error;
    size_t bytes = 0;
    for (alluvium_value *value : values_) {
        size_t size = 0;
        if (value) alluvium_value_data(value, &size);
        bytes += size;
    }
    size_t fitting = bytes_max / std::max<size_t>(bytes / count_, 1);
    wanted_ = std::clamp<size_t>(fitting, 1, std::min(wanted_ * 2, max_));
    return 0;
}

bool RowsAhead::next(std::string &key, Value &row) {
    while (next_ < values_.size()) {
        size_t place = next_++;
        if (!values_[place]) continue;
        key = keys_[place];
        row.reset(std::exchange(values_[place], nullptr));
        return true;
    }
    return false;
}

} // namespace alluvium_sql
