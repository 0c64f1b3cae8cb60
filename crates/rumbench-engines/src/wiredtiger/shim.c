/*
 * What the adapter of WiredTiger calls: plain functions in place of the methods of its handles, which are pointers in
 * structures that only the header of the very same release describes. `library.rs` declares each of them again and is
 * their only caller; the two must say the same.
 *
 * Every function returns 0 or WiredTiger's error code. Rows go in and come out as address and length; those that come
 * out belong to the cursor and are valid until its next call. A session and its cursors are used by one thread at a
 * time; a connection may be used by all.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <wiredtiger.h>

/* `library.rs` knows these numbers too. */
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

/* Progress of recovery and the like would go to standard output, which belongs to the laboratory. */
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

/* Closes all sessions too, so that none may be used or closed after it. */
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

/* Rolls back, and closes its cursors too. */
int
shim_close_session(WT_SESSION *session)
{
    return (session->close(session, NULL));
}

/* Does nothing where the table exists with the same configuration. */
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

/* The snapshot is taken here. */
int
shim_begin(WT_SESSION *session)
{
    return (session->begin_transaction(session, NULL));
}

/* The transaction has ended also where this fails. */
int
shim_commit(WT_SESSION *session)
{
    return (session->commit_transaction(session, NULL));
}

/* Also resets all cursors of the session. */
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

/* WT_NOTFOUND where no such key is visible. */
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

/* Makes every other writer of this existing row conflict until the transaction ends. */
int
shim_reserve(WT_CURSOR *cursor, const void *key, size_t key_size)
{
    WT_ITEM wanted = item(key, key_size);

    cursor->set_key(cursor, &wanted);
    return (cursor->reserve(cursor));
}

/* Writes a row whether or not the key exists. */
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
 * Goes to the key or to a neighbor of where it would be: `order` is less than 0 at a smaller key, 0 at the key itself,
 * more at a larger one. WT_NOTFOUND in an empty table.
 */
int
shim_search_near(WT_CURSOR *cursor, const void *key, size_t key_size, int *order)
{
    WT_ITEM wanted = item(key, key_size);

    cursor->set_key(cursor, &wanted);
    return (cursor->search_near(cursor, order));
}

/* Goes to the next or to the previous row. WT_NOTFOUND behind the last one. */
int
shim_step(WT_CURSOR *cursor, bool forward)
{
    return (forward ? cursor->next(cursor) : cursor->prev(cursor));
}

/* The row that the cursor stands on. */
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

/* Lets go of the page and, outside a transaction, of the snapshot. */
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

/* How many counters there are. */
size_t
shim_counters(void)
{
    return (sizeof(counters) / sizeof(counters[0]));
}

/* The name of a counter below `shim_counters()`, for ever. */
const char *
shim_counter_name(size_t counter)
{
    return (counters[counter].name);
}

/* The values of all counters now, `shim_counters()` of them. The database must have been opened with statistics. */
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

/* What an error code means, for ever. */
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
