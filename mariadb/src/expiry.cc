// SPDX-License-Identifier: GPL-2.0-only

#include "expiry.h"

#include <alluvium.h>

#include "definition.h"

namespace alluvium_sql {

namespace {

constexpr uint64_t ms_of_second = 1000;
constexpr longlong days_to_1970 = 719528;

bool has_time(const Field &field) {
    switch (field.type()) {
    case MYSQL_TYPE_TIMESTAMP:
    case MYSQL_TYPE_DATETIME:
    case MYSQL_TYPE_LONGLONG:
        return true;
    default:
        return false;
    }
}

// Returns milliseconds of a time in seconds. A time before 1970 is in the past all the same.
uint64_t in_ms(longlong seconds, uint64_t microseconds) {
    if (seconds <= 0) return 1;
    uint64_t whole = static_cast<uint64_t>(seconds);
    if (whole > ALLUVIUM_NEVER / ms_of_second - 1) return ALLUVIUM_NEVER;
    return whole * ms_of_second + microseconds / 1000;
}

// A BIGINT has seconds since 1970, as from UNIX_TIMESTAMP().
uint64_t of_number(const Field &field, const uchar *at) {
    uint64_t number = uint8korr(at);
    if (!(field.flags & UNSIGNED_FLAG)) return in_ms(static_cast<longlong>(number), 0);
    return number > INT64_MAX ? ALLUVIUM_NEVER : in_ms(static_cast<longlong>(number), 0);
}

uint64_t of_timestamp(const Field &field, const uchar *at) {
    ulong microseconds = 0;
    my_time_t seconds = field.get_timestamp(at, &microseconds);
    return seconds == 0 && microseconds == 0 ? ALLUVIUM_NEVER : in_ms(seconds, microseconds);
}

// A DATETIME has no time zone, and is taken as UTC: that of a connection may change.
uint64_t of_datetime(Field &field, const uchar *at) {
    MYSQL_TIME time;
    my_ptrdiff_t offset = at - field.ptr;
    field.move_field_offset(offset);
    bool failed = field.get_date(&time, date_mode_t(0ULL));
    field.move_field_offset(-offset);
    if (failed || time.month == 0 || time.day == 0) return ALLUVIUM_NEVER;
    longlong days = static_cast<longlong>(calc_daynr(time.year, time.month, time.day));
    longlong seconds = (days - days_to_1970) * 86400 + time.hour * 3600L + time.minute * 60L +
                       static_cast<longlong>(time.second);
    return in_ms(seconds, time.second_part);
}

} // namespace

std::string find_expiry_field(const TABLE &table, uint &number) {
    number = no_field;
    const ha_table_option_struct *options = table.s->option_struct;
    if (!options || !options->expire_column || !*options->expire_column) return {};
    std::string name = options->expire_column;
    for (uint i = 0; i < table.s->fields; i++) {
        const Field &field = *table.field[i];
        if (my_strcasecmp(system_charset_info, field.field_name.str, name.c_str())) continue;
        if (!has_time(field)) return "column '" + name + "' is no TIMESTAMP, DATETIME or BIGINT";
        if (!field.stored_in_db()) return "column '" + name + "' is virtual: make it STORED";
        number = i;
        return {};
    }
    return "the table has no column '" + name + "'";
}

uint64_t expiry_of(const TABLE &table, uint number, const uchar *record) {
    Field &field = *table.field[number];
    if (field.is_null_in_record(record)) return ALLUVIUM_NEVER;
    const uchar *at = record + (field.ptr - table.record[0]);
    switch (field.type()) {
    case MYSQL_TYPE_LONGLONG:
        return of_number(field, at);
    case MYSQL_TYPE_TIMESTAMP:
        return of_timestamp(field, at);
    default:
        return of_datetime(field, at);
    }
}

} // namespace alluvium_sql
