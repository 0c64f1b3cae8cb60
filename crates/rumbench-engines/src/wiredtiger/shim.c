/*
 * Plain functions for the adapter of WiredTiger. They replace the methods of WiredTiger's handles,
 * which are function pointers in structs; only the header of the same release describes them.
 * `library.rs` declares each function again and is the only caller; the declarations must match.
 *
 * Every function returns 0 or WiredTiger's error code, unless it says otherwise. Keys and values
 * are passed as address and length; returned ones belong to the cursor and are valid until its next
 * call. One thread at a time uses a session and its cursors; all threads may use a connection.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <wiredtiger.h>

/* `library.rs` has the same numbers. */
_Static_assert(WT_ROLLBACK == -31800, "WT_ROLLBACK");
_Static_assert(WT_NOTFOUND == -31803, "WT_NOTFOUND");

static int
on_error(WT_EVENT_HANDLER *handler, WT_SESSION *session, int error, const char *message)
{
    (void)handler;
    (void)session;
    (void)error;
    fprintf(stderr, "%s\n", message);
    return (0);
}

/* Discards messages, such as the progress of recovery: standard output is the laboratory's. */
static int
on_message(WT_EVENT_HANDLER *handler, WT_SESSION *session, const char *message)
{
    (void)handler;
    (void)session;
    (void)message;
    return (0);
}

static WT_EVENT_HANDLER handler = {.handle_error = on_error, .handle_message = on_message};

static WT_ITEM
item(const void *data, size_t size)
{
    WT_ITEM item = {.data = data, .size = size};
    return (item);
}

/* Opens or creates the database in `directory`. */
int
shim_open(const char *directory, const char *config, WT_CONNECTION **connection)
{
    return (wiredtiger_open(directory, &handler, config, connection));
}

/* Closes all sessions too; none of them may be used or closed afterwards. */
int
shim_close(WT_CONNECTION *connection)
{
    return (connection->close(connection, NULL));
}

int
shim_open_session(WT_CONNECTION *connection, WT_SESSION **session)
{
    return (connection->open_session(connection, NULL, NULL, session));
}

/* Rolls back the open transaction and closes the session's cursors too. */
int
shim_close_session(WT_SESSION *session)
{
    return (session->close(session, NULL));
}

/* Creates a table. Does nothing if it exists with the same configuration. */
int
shim_create(WT_SESSION *session, const char *uri, const char *config)
{
    return (session->create(session, uri, config));
}

int
shim_open_cursor(WT_SESSION *session, const char *uri, WT_CURSOR **cursor)
{
    return (session->open_cursor(session, uri, NULL, NULL, cursor));
}

/* Begins a transaction and takes its snapshot. */
int
shim_begin(WT_SESSION *session)
{
    return (session->begin_transaction(session, NULL));
}

/* Commits. The transaction ends even if this fails. */
int
shim_commit(WT_SESSION *session)
{
    return (session->commit_transaction(session, NULL));
}

/* Rolls back and resets all cursors of the session. */
int
shim_rollback(WT_SESSION *session)
{
    return (session->rollback_transaction(session, NULL));
}

int
shim_checkpoint(WT_SESSION *session)
{
    return (session->checkpoint(session, NULL));
}

/* Writes and syncs the log. */
int
shim_sync_log(WT_SESSION *session)
{
    return (session->log_flush(session, "sync=on"));
}

/* Finds the value of a key. Returns WT_NOTFOUND if the key is not visible. */
int
shim_search(
  WT_CURSOR *cursor, const void *key, size_t key_size, const void **value, size_t *value_size)
{
    WT_ITEM found = {0}, wanted = item(key, key_size);
    int error;

    cursor->set_key(cursor, &wanted);
    if ((error = cursor->search(cursor)) != 0 || (error = cursor->get_value(cursor, &found)) != 0)
        return (error);
    *value = found.data;
    *value_size = found.size;
    return (0);
}

/* Makes other writers of an existing row conflict until the transaction ends. */
int
shim_reserve(WT_CURSOR *cursor, const void *key, size_t key_size)
{
    WT_ITEM wanted = item(key, key_size);

    cursor->set_key(cursor, &wanted);
    return (cursor->reserve(cursor));
}

/* Writes a row, whether or not the key exists. */
int
shim_put(WT_CURSOR *cursor, const void *key, size_t key_size, const void *value, size_t value_size)
{
    WT_ITEM row_key = item(key, key_size), row_value = item(value, value_size);

    cursor->set_key(cursor, &row_key);
    cursor->set_value(cursor, &row_value);
    return (cursor->insert(cursor));
}

int
shim_remove(WT_CURSOR *cursor, const void *key, size_t key_size)
{
    WT_ITEM wanted = item(key, key_size);

    cursor->set_key(cursor, &wanted);
    return (cursor->remove(cursor));
}

/*
 * Moves to the key or to a neighbor of its position. `order` is negative at a smaller key, 0 at the
 * key itself, and positive at a larger key. Returns WT_NOTFOUND if the table is empty.
 */
int
shim_search_near(WT_CURSOR *cursor, const void *key, size_t key_size, int *order)
{
    WT_ITEM wanted = item(key, key_size);

    cursor->set_key(cursor, &wanted);
    return (cursor->search_near(cursor, order));
}

/* Moves to the next or the previous row. Returns WT_NOTFOUND if there is none. */
int
shim_step(WT_CURSOR *cursor, bool forward)
{
    return (forward ? cursor->next(cursor) : cursor->prev(cursor));
}

/* Returns key and value of the cursor's row. */
int
shim_row(
  WT_CURSOR *cursor, const void **key, size_t *key_size, const void **value, size_t *value_size)
{
    WT_ITEM row_key = {0}, row_value = {0};
    int error;

    if ((error = cursor->get_key(cursor, &row_key)) != 0 ||
      (error = cursor->get_value(cursor, &row_value)) != 0)
        return (error);
    *key = row_key.data;
    *key_size = row_key.size;
    *value = row_value.data;
    *value_size = row_value.size;
    return (0);
}

/* Releases the page of the cursor and, outside a transaction, the snapshot. */
int
shim_reset(WT_CURSOR *cursor)
{
    return (cursor->reset(cursor));
}

static const struct {
    const char *name;
    int key;
} counters[] = {
  {"cache_bytes", WT_STAT_CONN_CACHE_BYTES_INUSE},
  {"cache_dirty_bytes", WT_STAT_CONN_CACHE_BYTES_DIRTY},
  {"cache_read_bytes", WT_STAT_CONN_CACHE_BYTES_READ},
  {"cache_written_bytes", WT_STAT_CONN_CACHE_BYTES_WRITE},
  {"block_read_bytes", WT_STAT_CONN_BLOCK_BYTE_READ},
  {"block_written_bytes", WT_STAT_CONN_BLOCK_BYTE_WRITE},
  {"log_written_bytes", WT_STAT_CONN_LOG_BYTES_WRITTEN},
  {"log_syncs", WT_STAT_CONN_LOG_SYNC},
  {"checkpoints", WT_STAT_CONN_CHECKPOINTS_TOTAL_SUCCEED},
  {"rollbacks", WT_STAT_CONN_TXN_ROLLBACK},
  {"client_cache_wait_us", WT_STAT_CONN_APPLICATION_CACHE_TIME},
};

/* Returns the number of counters. */
size_t
shim_counters(void)
{
    return (sizeof(counters) / sizeof(counters[0]));
}

/* Returns the name of a counter below `shim_counters()`; valid forever. */
const char *
shim_counter_name(size_t counter)
{
    return (counters[counter].name);
}

/* Stores the current values of all `shim_counters()` counters. Needs a database with statistics. */
int
shim_counter_values(WT_SESSION *session, int64_t *values)
{
    const char *description, *text;
    WT_CURSOR *cursor;
    size_t i;
    int error, closed;

    if ((error = session->open_cursor(
           session, "statistics:", NULL, "statistics=(fast)", &cursor)) != 0)
        return (error);
    for (i = 0; error == 0 && i < shim_counters(); i++) {
        cursor->set_key(cursor, counters[i].key);
        if ((error = cursor->search(cursor)) == 0)
            error = cursor->get_value(cursor, &description, &text, &values[i]);
    }
    closed = cursor->close(cursor);
    return (error != 0 ? error : closed);
}

/* Returns the text of an error code; valid forever. */
const char *
shim_error_text(int error)
{
    return (wiredtiger_strerror(error));
}

void
shim_version(int *major, int *minor, int *patch)
{
    (void)wiredtiger_version(major, minor, patch);
}
