// SPDX-License-Identifier: GPL-2.0-only
//
// ANALYZE and OPTIMIZE TABLE.

#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

int ha_alluvium::analyze(THD *, HA_CHECK_OPT *) {
    share_->forget_sizes();
    if (info(HA_STATUS_VARIABLE)) return HA_ADMIN_FAILED;
    if (sample_statistics()) return HA_ADMIN_FAILED;
    set_rows_per_key();
    return HA_ADMIN_OK;
}


// Compacts all keyspaces of the table, so that deleted rows give back their space.
int ha_alluvium::optimize(THD *thd, HA_CHECK_OPT *options) {
    for (size_t i = 0; i < share_->entry().indexes.size(); i++) {
        ErrorPlace error;
        alluvium_code code = alluvium_keyspace_compact_range(share_->keyspace(i), nullptr, 0,
                                                             nullptr, 0, error.out());
        if (code == ALLUVIUM_CODE_OK) continue;
        log_failure("compact a table", error);
        return HA_ADMIN_FAILED;
    }
    return analyze(thd, options);
}

} // namespace alluvium_sql
