// SPDX-License-Identifier: GPL-2.0-only

#include "checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <mutex>
#include <string>

#include "engine.h"
#include "errors.h"

#include "backup.h"
#include "sql_repl.h"

namespace alluvium_sql {

namespace {

// File of a checkpoint with the place of its newest commit in the binary log. The engine ignores
// it.
constexpr const char *position_file = "binlog_position";

// Holds back the commits of all connections.
class CommitBlock {
public:
    explicit CommitBlock(THD *thd) : thd_(thd) {
        MDL_REQUEST_INIT(&request_, MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT, MDL_EXPLICIT);
    }
    ~CommitBlock() {
        if (request_.ticket) thd_->mdl_context.release_lock(request_.ticket);
    }
    CommitBlock(const CommitBlock &) = delete;
    CommitBlock &operator=(const CommitBlock &) = delete;

    // Waits for the end of running commits. Returns false after an error, which the server then
    // has.
    bool begin() {
        return !thd_->mdl_context.acquire_lock(&request_, thd_->variables.lock_wait_timeout);
    }

private:
    THD *const thd_;
    MDL_request request_;
};

bool refuse(const char *variable, const std::string &reason) {
    my_printf_error(ER_WRONG_ARGUMENTS, "%s: %s", MYF(0), variable, reason.c_str());
    return false;
}

// Returns the path without links; empty if it does not exist.
std::string real_path(const std::string &path) {
    char resolved[PATH_MAX];
    return realpath(path.c_str(), resolved) ? resolved : "";
}

bool is_within(const std::string &path, const std::string &folder) {
    return !folder.empty() && (path == folder || path.rfind(folder + "/", 0) == 0);
}

// Returns true if a checkpoint can be made at the path. Otherwise the server has an error.
bool check_target(const char *variable, const std::string &path) {
    if (path[0] != '/') return refuse(variable, "'" + path + "' is not an absolute path");
    if (access(path.c_str(), F_OK) == 0)
        return refuse(variable, "'" + path + "' exists: name a folder that does not exist");
    std::string parent = real_path(path.substr(0, path.find_last_of('/') + 1));
    if (parent.empty())
        return refuse(variable, "the parent folder of '" + path + "' does not exist");
    if (is_within(parent, real_path(mysql_real_data_home)) ||
        is_within(parent, real_path(settings.data_directory)))
        return refuse(variable, "'" + path + "' is within the server's data folder");
    std::string place = parent + "/";
    if (is_secure_file_path(place.data())) return true;
    my_error(ER_OPTION_PREVENTS_STATEMENT, MYF(0), "--secure-file-priv");
    return false;
}

// Returns file, position and GTIDs of the newest commit, separated by tabs; empty without a binary
// log. Commits are held back.
std::string binlog_position() {
    if (!mysql_bin_log.is_open()) return {};
    LOG_INFO place;
    if (mysql_bin_log.get_current_log(&place)) return {};
    String gtids;
    if (rpl_append_gtid_state(&gtids, true)) return {};
    std::string text(place.log_file_name + dirname_length(place.log_file_name));
    return text + "\t" + std::to_string(place.pos) + "\t" +
           std::string(gtids.ptr(), gtids.length());
}

// Writes a new file durably.
bool write_file(const std::string &path, const std::string &text) {
    int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0660);
    if (file < 0) return false;
    bool good = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    good = fsync(file) == 0 && good;
    return close(file) == 0 && good;
}

// Makes the checkpoint. The caller holds back commits. Returns false after an error, which the
// server then has.
bool make_checkpoint(THD *thd, const char *variable, const std::string &path) {
    alluvium_checkpoint_info info = {};
    info.struct_size = sizeof info;
    ErrorPlace error;
    // Before the checkpoint: numbers of sequences are taken meanwhile, outside of transactions. A
    // replica that repeats their events ends with the same rows.
    std::string position = binlog_position();
    if (alluvium_checkpoint(engine.database, path.data(), path.size(), &info, error.out()) !=
        ALLUVIUM_CODE_OK) {
        my_printf_error(ER_UNKNOWN_ERROR, "%s: %s", MYF(0), variable, error.text().c_str());
        return false;
    }
    if (!position.empty() && !write_file(path + "/" + position_file, position + "\n")) {
        my_printf_error(ER_UNKNOWN_ERROR, "%s: cannot write '%s/%s' (error %d): delete the folder",
                        MYF(0), variable, path.c_str(), position_file, errno);
        return false;
    }
    std::string text = "checkpoint '" + path + "', commit " + std::to_string(info.seqno) +
                       (position.empty() ? "" : ", binary log: " + position);
    push_warning(thd, Sql_condition::WARN_LEVEL_NOTE, ER_UNKNOWN_ERROR, text.c_str());
    sql_print_information("ALLUVIUM: %s", text.c_str());
    return true;
}

// Returns the new value of a variable, with the life of the statement.
const char *value_of(THD *thd, st_mysql_value *value) {
    char buffer[FN_REFLEN];
    int length = sizeof buffer;
    const char *text = value->val_str(value, buffer, &length);
    return text ? thd->strmake(text, static_cast<size_t>(length)) : "";
}

// Target of the next backup's checkpoint; empty: none. Guarded by LOCK_global_system_variables,
// which the server holds while it reads or sets the variable.
char backup_target[FN_REFLEN];

// Returns true if a connection is in BACKUP STAGE BLOCK_COMMIT. mariadb-backup flushes the logs by
// another connection. The connection is in the stage before it has the lock, but then its statement
// is still running.
my_bool blocks_commits(THD *connection, THD *own) {
    return connection->current_backup_stage == BACKUP_LOCK_COMMIT &&
           (connection == own || connection->get_command() == COM_SLEEP);
}

// Returns the target of the next backup, and forgets it if it is used now.
std::string backup_target_for(bool now) {
    mysql_mutex_lock(&LOCK_global_system_variables);
    std::string path = backup_target;
    if (now) backup_target[0] = 0;
    mysql_mutex_unlock(&LOCK_global_system_variables);
    return path;
}

} // namespace

// Called without a lock of the server, unlike the update of a variable: so it does the work.
int create_checkpoint(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value) {
    const char *variable = "alluvium_create_checkpoint";
    const char *path = value_of(thd, value);
    *static_cast<const char **>(save) = path;
    if (!path || !engine.database) return 1;
    if (!*path) return 0;
    if (!check_target(variable, path)) return 1;
    ErrorPlace error;
    // Most memtables are written before commits have to wait.
    if (alluvium_flush(engine.database, error.out()) != ALLUVIUM_CODE_OK) {
        my_printf_error(ER_UNKNOWN_ERROR, "%s: %s", MYF(0), variable, error.text().c_str());
        return 1;
    }
    CommitBlock block(thd);
    return block.begin() && make_checkpoint(thd, variable, path) ? 0 : 1;
}

void keep_nothing(THD *, st_mysql_sys_var *, void *, const void *) {}

char *created_checkpoint = nullptr;

char *backup_target_value = backup_target;

int check_backup_target(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value) {
    const char *path = value_of(thd, value);
    *static_cast<const char **>(save) = path;
    if (!path) return 1;
    if (strlen(path) >= sizeof backup_target) {
        refuse("alluvium_backup_checkpoint", "the path is too long");
        return 1;
    }
    return !*path || check_target("alluvium_backup_checkpoint", path) ? 0 : 1;
}

void set_backup_target(THD *, st_mysql_sys_var *, void *, const void *save) {
    // DEFAULT is null.
    const char *path = *static_cast<const char *const *>(save);
    strmake(backup_target, path ? path : "", sizeof backup_target - 1);
}

bool checkpoint_for_backup(THD *thd) {
    if (!thd) return false;
    bool blocked = server_threads.iterate(blocks_commits, thd);
    std::string path = backup_target_for(blocked);
    if (!blocked) {
        // mariadb-backup also flushes the logs before: so little is left for the time of the block.
        ErrorPlace error;
        if (!path.empty() && alluvium_flush(engine.database, error.out()) != ALLUVIUM_CODE_OK)
            log_failure("write memtables before a backup", error);
        return false;
    }
    if (!path.empty()) {
        if (make_checkpoint(thd, "alluvium_backup_checkpoint", path)) return false;
        // mariadb-backup does not look at the result of this statement.
        sql_print_error("ALLUVIUM: the copy '%s' failed, so the backup lacks the rows of this "
                        "engine's tables",
                        path.c_str());
        return true;
    }
    if (engine.dictionary->has_tables())
        sql_print_warning("ALLUVIUM: a backup runs without alluvium_backup_checkpoint, so the rows "
                          "of this engine's tables are not in it");
    return false;
}

} // namespace alluvium_sql
