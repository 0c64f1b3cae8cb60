// SPDX-License-Identifier: GPL-2.0-only

#include "engine.h"
#include "errors.h"
#include "ha_alluvium.h"

namespace alluvium_sql {

handler::Table_flags ha_alluvium::table_flags() const {
    return HA_NULL_IN_KEY | HA_PARTIAL_COLUMN_READ | HA_BINLOG_ROW_CAPABLE | HA_REC_NOT_IN_SEQ |
           HA_CAN_INDEX_BLOBS | HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX |
           HA_DUPLICATE_POS | HA_CRASH_SAFE | HA_CAN_VIRTUAL_COLUMNS |
           HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE |
           HA_ONLINE_ANALYZE | HA_CAN_SQL_HANDLER | HA_CAN_GEOMETRY | HA_CONCURRENT_OPTIMIZE |
           HA_CAN_ONLINE_BACKUPS | HA_CAN_SKIP_LOCKED | HA_CAN_TABLES_WITHOUT_ROLLBACK;
}

ulong ha_alluvium::index_flags(uint number, uint part, bool) const {
    ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE |
                  HA_DO_INDEX_COND_PUSHDOWN;
    // The server also asks before it knows which key is the primary one, so that one gets the same.
    if (number == table_share->primary_key) flags |= HA_CLUSTERED_INDEX;
    if (!table_share->key_info) return flags | HA_KEYREAD_ONLY;
    const KEY_PART_INFO &info = table_share->key_info[number].key_part[part];
    bool whole = !(info.key_part_flag & (HA_PART_KEY_SEG | HA_BLOB_PART));
    return whole ? flags | HA_KEYREAD_ONLY : flags;
}

int ha_alluvium::load_share(const char *path) {
    int error = 0;
    lock_shared_ha_data();
    share_ = static_cast<TableShare *>(get_ha_share_ptr());
    if (!share_) {
        std::unique_ptr<TableShare> opened;
        error = TableShare::open(*table, table_name(path), opened);
        if (!error) {
            share_ = opened.release();
            set_ha_share_ptr(share_);
        }
    }
    unlock_shared_ha_data();
    return error;
}

int ha_alluvium::open(const char *path, int, uint) {
    if (int error = load_share(path)) return error;
    ref_length = static_cast<uint>(share_->primary().bytes_max()) + 2;
    return info(HA_STATUS_VARIABLE | HA_STATUS_CONST);
}

int ha_alluvium::close() {
    forget_cursor();
    batch_.stop();
    load_.reset();
    row_value_.reset();
    duplicate_ = {};
    share_ = nullptr;
    return 0;
}

int ha_alluvium::extra(enum ha_extra_function operation) {
    switch (operation) {
    case HA_EXTRA_KEYREAD:
        key_read_ = true;
        break;
    case HA_EXTRA_NO_KEYREAD:
        key_read_ = false;
        break;
    case HA_EXTRA_WRITE_CAN_REPLACE:
    case HA_EXTRA_INSERT_WITH_UPDATE:
        overwrites_ = true;
        break;
    case HA_EXTRA_WRITE_CANNOT_REPLACE:
        overwrites_ = false;
        break;
    default:
        break;
    }
    return 0;
}

int ha_alluvium::reset() {
    key_read_ = false;
    overwrites_ = false;
    numbers_left_ = 0;
    duplicate_ = {};
    forget_cursor();
    batch_.stop();
    load_.reset();
    load_error_ = 0;
    row_value_.reset();
    return 0;
}

// The server's text for damage names a repair of the index, which this engine does not have.
void ha_alluvium::print_error(int error, myf flags) {
    handler::print_error(error == HA_ERR_CRASHED ? static_cast<int>(error_damaged) : error, flags);
}

bool ha_alluvium::get_error_message(int error, String *text) {
    std::string own = own_error_text(error);
    if (!own.empty()) text->append(own.data(), own.size());
    return false;
}

ulonglong ha_alluvium::table_version() const { return share_ ? share_->entry().version : 0; }

const std::vector<KeyPart> &ha_alluvium::parts_of(uint number) const {
    return is_primary(number) ? share_->primary().parts() : share_->index(number).parts();
}

// The server means "all parts of the key" by a map of ones, without those of the primary key.
key_part_map ha_alluvium::tuple_map(uint number, key_part_map map) const {
    const KEY &key = table->key_info[number];
    uint parts = map == HA_WHOLE_KEY ? key.user_defined_key_parts : key.ext_key_parts;
    return map & make_prev_keypart_map(parts);
}

} // namespace alluvium_sql
