// SPDX-License-Identifier: GPL-2.0-only
//
// Owners of the handles of the C interface: each frees its handle once.

#pragma once

#include <memory>
#include <string>

#include <alluvium.h>

#include "bytes.h"

namespace alluvium_sql {

struct FreeHandle {
    void operator()(alluvium_value *value) const { alluvium_value_free(value); }
    void operator()(alluvium_cursor *cursor) const { alluvium_cursor_free(cursor); }
    void operator()(alluvium_keyspace *keyspace) const { alluvium_keyspace_free(keyspace); }
    void operator()(alluvium_snapshot *snapshot) const { alluvium_snapshot_free(snapshot); }
    void operator()(alluvium_list *list) const { alluvium_list_free(list); }
    void operator()(alluvium_batch *batch) const { alluvium_batch_free(batch); }
    void operator()(alluvium_ingest *ingest) const { alluvium_ingest_free(ingest); }
    void operator()(alluvium_lock_cancel *cancel) const { alluvium_lock_cancel_free(cancel); }
    void operator()(alluvium_transaction *txn) const { alluvium_transaction_free(txn); }
    void operator()(alluvium_prepared *prepared) const { alluvium_prepared_free(prepared); }
    void operator()(alluvium_changes *changes) const { alluvium_changes_free(changes); }
    void operator()(alluvium_change *change) const { alluvium_change_free(change); }
};

template <typename Handle> using Owned = std::unique_ptr<Handle, FreeHandle>;

using Value = Owned<alluvium_value>;
using Cursor = Owned<alluvium_cursor>;
using Keyspace = Owned<alluvium_keyspace>;
using List = Owned<alluvium_list>;
using Batch = Owned<alluvium_batch>;
using Ingest = Owned<alluvium_ingest>;

// Place for the result of a call of the C interface: `call(..., into(owned), ...)`. The handle
// moves to its owner at the end of the full expression.
template <typename Handle> class Into {
public:
    explicit Into(Owned<Handle> &owner) : owner_(owner) {}
    ~Into() { owner_.reset(handle_); }
    Into(const Into &) = delete;
    Into &operator=(const Into &) = delete;
    operator Handle **() { return &handle_; }

private:
    Owned<Handle> &owner_;
    Handle *handle_ = nullptr;
};
template <typename Handle> Into<Handle> into(Owned<Handle> &owner) { return Into<Handle>(owner); }

inline Bytes bytes_of(const Value &value) {
    size_t size = 0;
    const uint8_t *data = alluvium_value_data(value.get(), &size);
    return Bytes(data, size);
}
inline Bytes key_of(const Cursor &cursor) {
    size_t size = 0;
    const uint8_t *data = alluvium_cursor_key(cursor.get(), &size);
    return Bytes(data, size);
}
inline Bytes value_of(const Cursor &cursor) {
    size_t size = 0;
    const uint8_t *data = alluvium_cursor_value(cursor.get(), &size);
    return Bytes(data, size);
}

} // namespace alluvium_sql
