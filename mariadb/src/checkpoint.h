// SPDX-License-Identifier: GPL-2.0-only
//
// Checkpoints: copies of the engine's database while the server runs.
//
// The server's lock for backups holds back commits meanwhile, so a copy has one place in the binary
// log. `alluvium_create_checkpoint` makes a copy at once. `alluvium_backup_checkpoint` makes one in
// the next backup by another program, at the moment whose state that backup has: when the program
// has reached BACKUP STAGE BLOCK_COMMIT and flushes the logs of all engines. mariadb-backup does
// this before it ends its copy of InnoDB.

#pragma once

#include "compat.h"

namespace alluvium_sql {

// Makes the checkpoint that alluvium_backup_checkpoint has asked for, if a backup has reached
// BLOCK_COMMIT. Called at a flush of the logs by this connection. Returns true after an error,
// which the server then has.
bool checkpoint_for_backup(THD *thd);

// Functions and value of the system variables.
int create_checkpoint(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value);
void keep_nothing(THD *, st_mysql_sys_var *, void *, const void *);
int check_backup_target(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value);
void set_backup_target(THD *, st_mysql_sys_var *, void *, const void *save);
extern char *created_checkpoint;
extern char *backup_target_value;

} // namespace alluvium_sql
