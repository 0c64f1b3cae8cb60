// SPDX-License-Identifier: GPL-2.0-only
//
// Declaration of the plugin; open and close of its database.

#include <sys/stat.h>

#include "definition.h"
#include "engine.h"
#include "errors.h"
#include "ha_alluvium.h"
#include "information_schema.h"
#include "lock_waits.h"

namespace alluvium_sql {

Engine engine;

namespace {

handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root) {
    return new (root) ha_alluvium(hton, share);
}

// Tables have no files of their own in the folder of their database.
const char *no_extensions[] = {nullptr};

// Passes on the events that an administrator has to know.
void report_event(void *, const alluvium_event *event) {
    const char *message =
        event->error ? alluvium_error_message(event->error, nullptr) : "no details";
    switch (event->kind) {
    case ALLUVIUM_EVENT_KIND_NO_SPACE_BEGIN:
        sql_print_error("ALLUVIUM: no space on the device, background work waits: %s", message);
        break;
    case ALLUVIUM_EVENT_KIND_NO_SPACE_END:
        sql_print_information("ALLUVIUM: there is space on the device again");
        break;
    case ALLUVIUM_EVENT_KIND_POISONED:
        sql_print_error("ALLUVIUM: a write failed, so all further writes are refused. Repair the "
                        "cause and restart the server: %s",
                        message);
        break;
    case ALLUVIUM_EVENT_KIND_BACKGROUND_FAILURE:
        sql_print_warning("ALLUVIUM: a flush or a compaction failed and is retried: %s", message);
        break;
    case ALLUVIUM_EVENT_KIND_CLOCK_JUMP:
        sql_print_warning("ALLUVIUM: the system's clock has jumped by more than a day");
        break;
    case ALLUVIUM_EVENT_KIND_STORED_TIME_AHEAD:
        sql_print_warning("ALLUVIUM: the system's clock is more than a day before the time stored "
                          "in the database; see `alluvium set-time`");
        break;
    default:
        break;
    }
}

int open_database() {
    alluvium_options options = {};
    options.struct_size = sizeof options;
    options.memory_bytes = settings.memory_bytes;
    options.compaction_threads = static_cast<uint32_t>(settings.compaction_threads);
    // Transactions ask for SYNC themselves; this holds for the dictionary's counters.
    options.durability = ALLUVIUM_DURABILITY_BUFFERED;
    options.event_listener = report_event;
    options.lock_wait_listener = report_lock_wait;
    struct stat folder;
    bool is_new = stat(settings.data_directory, &folder) != 0;
    ErrorPlace error;
    if (alluvium_open(settings.data_directory, strlen(settings.data_directory), &options,
                      &engine.database, error.out()) == ALLUVIUM_CODE_OK) {
        // The log gives the reason if the folder was lost or is not mounted.
        if (is_new)
            sql_print_warning("ALLUVIUM: '%s' was missing, so the engine has no tables yet",
                              settings.data_directory);
        return 0;
    }
    sql_print_error("ALLUVIUM: cannot open '%s': %s", settings.data_directory,
                    error.text().c_str());
    return 1;
}

void close_database() {
    engine.dictionary.reset();
    if (!engine.database) return;
    ErrorPlace error;
    if (alluvium_close(engine.database, error.out()) != ALLUVIUM_CODE_OK)
        log_failure("sync the log at the end", error);
    alluvium_database_free(engine.database);
    engine.database = nullptr;
}

int start(void *plugin) {
    engine.hton = static_cast<handlerton *>(plugin);
    engine.hton->create = create_handler;
    engine.hton->flags = HTON_TEMPORARY_NOT_SUPPORTED | HTON_SUPPORTS_EXTENDED_KEYS;
    engine.hton->tablefile_extensions = no_extensions;
    engine.hton->table_options = table_options;
    set_handlerton_functions(engine.hton);
    if (open_database()) return 1;
    engine.dictionary = std::make_unique<Dictionary>(engine.database);
    if (int error = engine.dictionary->open()) {
        sql_print_error("ALLUVIUM: cannot read the dictionary: error %d", error);
        close_database();
        return 1;
    }
    return 0;
}

int stop(void *) {
    close_database();
    return 0;
}

st_mysql_storage_engine descriptor = {MYSQL_HANDLERTON_INTERFACE_VERSION};

} // namespace

} // namespace alluvium_sql

maria_declare_plugin(alluvium){
    MYSQL_STORAGE_ENGINE_PLUGIN,
    &alluvium_sql::descriptor,
    "ALLUVIUM",
    "Alluvium project",
    "Transactional log-structured engine with row locks and one memory budget",
    PLUGIN_LICENSE_GPL,
    alluvium_sql::start,
    alluvium_sql::stop,
    0x0001,
    alluvium_sql::status_variables,
    alluvium_sql::system_variables,
    "0.1",
    MariaDB_PLUGIN_MATURITY_EXPERIMENTAL,
},
{
    MYSQL_INFORMATION_SCHEMA_PLUGIN,
    &alluvium_sql::schema_table_descriptor,
    "ALLUVIUM_LOCK_WAITS",
    "Alluvium project",
    "Waits for row locks of the storage engine ALLUVIUM",
    PLUGIN_LICENSE_GPL,
    alluvium_sql::start_lock_waits_table,
    nullptr,
    0x0001,
    nullptr,
    nullptr,
    "0.1",
    MariaDB_PLUGIN_MATURITY_EXPERIMENTAL,
} maria_declare_plugin_end;
