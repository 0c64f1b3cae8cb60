/*
 * Minimal client on top of the server's own C library (libmariadb, libpq): runs the recorded
 * statements one after the other with the recorded parameters, and reads each value of each row.
 * Its CPU time is that of a C program without other work.
 *
 * Usage: library_client SOCKET RECORDING
 * RECORDING has the format of bare_client's. It is parsed before the clock starts.
 * Output: number of messages, microseconds of CPU in user mode and in system mode, without
 * connecting and preparing.
 * Built with -DMARIADB and libmariadb, or with libpq.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Limits of the workload's statements. */
#define PARAMETERS 64
#define COLUMNS 32
#define STATEMENTS 256
/* Size of the longest value of an answer. */
#define VALUE_BYTES (1 << 20)

enum kind { PREPARE, EXECUTE, QUERY, OTHER };

/* Recorded message, parsed once; its pointers point into the recording. */
struct message {
    enum kind kind;
    unsigned statement;
    unsigned parameters;
    const unsigned char *body;
    size_t length;
    /* One entry for each parameter. */
    const unsigned char **values;
    size_t *lengths;
    unsigned char *types;
};

/* Prevents the compiler from removing the reads of values. */
static volatile unsigned long seen;

static void fail(const char *what)
{
    fprintf(stderr, "library_client: %s\n", what);
    exit(1);
}

static void *room_for(size_t count, size_t size)
{
    void *room = calloc(count ? count : 1, size);
    if (!room)
        fail("no memory");
    return room;
}

static void parameters(struct message *of, unsigned count)
{
    if (count > PARAMETERS)
        fail("too many parameters");
    of->parameters = count;
    of->values = room_for(count, sizeof *of->values);
    of->lengths = room_for(count, sizeof *of->lengths);
    of->types = room_for(count, sizeof *of->types);
}

#ifdef MARIADB
#include <mysql.h>

static MYSQL connection;
static MYSQL_STMT *statements[STATEMENTS];
static MYSQL_BIND bound[PARAMETERS], columns[COLUMNS];
static unsigned long column_lengths[COLUMNS];
static unsigned char *column_room;

static void check(int error, MYSQL_STMT *statement)
{
    if (error)
        fail(statement ? mysql_stmt_error(statement) : mysql_error(&connection));
}

static void open_connection(const char *socket)
{
    mysql_init(&connection);
    if (!mysql_real_connect(&connection, NULL, "root", "", "rumbench", 0, socket, CLIENT_FOUND_ROWS | CLIENT_MULTI_STATEMENTS))
        fail(mysql_error(&connection));
    column_room = room_for(COLUMNS, VALUE_BYTES);
}

static size_t mariadb_length(const unsigned char **at)
{
    size_t length = *(*at)++;
    unsigned bytes = length == 0xfc ? 2 : length == 0xfd ? 3 : length == 0xfe ? 8 : 0, of;
    if (!bytes)
        return length;
    for (length = 0, of = 0; of < bytes; of++)
        length |= (size_t)*(*at)++ << (8 * of);
    return length;
}

/* Parses a message; its packet begins with length and number. The server has reported how many
 * parameters each statement has. */
static void read_message(struct message *of, unsigned is_first)
{
    const unsigned char *at = of->body + 4, *kinds;
    unsigned each, count;

    of->kind = OTHER;
    if (is_first)
        return;
    of->body = at + 1;
    of->length -= 5;
    if (*at == 0x16)
        of->kind = PREPARE;
    if (*at == 0x03)
        of->kind = QUERY;
    if (*at != 0x17)
        return;
    of->kind = EXECUTE;
    memcpy(&of->statement, at + 1, 4);
    if (of->statement >= STATEMENTS || !statements[of->statement])
        fail("a statement that was not prepared");
    count = (unsigned)mysql_stmt_param_count(statements[of->statement]);
    parameters(of, count);
    /* Command, statement, flags and iterations, a bitmap of NULLs, and a flag that types follow. */
    kinds = at + 10 + (count + 7) / 8 + 1;
    at = kinds + 2 * count;
    for (each = 0; each < count; each++) {
        of->types[each] = kinds[2 * each];
        of->lengths[each] = kinds[2 * each] == MYSQL_TYPE_LONGLONG ? 8 : mariadb_length(&at);
        of->values[each] = at;
        at += of->lengths[each];
    }
}

static void prepare(struct message *message)
{
    MYSQL_STMT *statement = mysql_stmt_init(&connection);
    if (!statement)
        fail("no memory");
    check(mysql_stmt_prepare(statement, (const char *)message->body, message->length), statement);
    /* The recording has the server's statement numbers, which start at 1 in each connection. */
    if (statement->stmt_id >= STATEMENTS)
        fail("too many statements");
    statements[statement->stmt_id] = statement;
}

/* Returns true for a duplicate key, and for a lock timeout or deadlock between clients. */
static int is_expected(unsigned error)
{
    return error == 1062 || error == 1205 || error == 1213;
}

static void rows(MYSQL_STMT *statement)
{
    unsigned count = mysql_stmt_field_count(statement), each;
    if (!count)
        return;
    for (each = 0; each < count; each++) {
        columns[each].buffer_type = statement->fields[each].type;
        columns[each].buffer = column_room + (size_t)each * VALUE_BYTES;
        columns[each].buffer_length = VALUE_BYTES;
        columns[each].length = &column_lengths[each];
    }
    check(mysql_stmt_bind_result(statement, columns), statement);
    while (!mysql_stmt_fetch(statement))
        for (each = 0; each < count; each++)
            seen += column_room[(size_t)each * VALUE_BYTES];
    mysql_stmt_free_result(statement);
}

static void run(struct message *message)
{
    MYSQL_STMT *statement;
    unsigned each;

    if (message->kind == QUERY) {
        check(mysql_real_query(&connection, (const char *)message->body, message->length), NULL);
        mysql_free_result(mysql_store_result(&connection));
        return;
    }
    statement = statements[message->statement];
    for (each = 0; each < message->parameters; each++) {
        bound[each].buffer_type = message->types[each];
        bound[each].buffer = (void *)message->values[each];
        bound[each].buffer_length = message->lengths[each];
        bound[each].length = &message->lengths[each];
    }
    if (message->parameters)
        check(mysql_stmt_bind_param(statement, bound), statement);
    if (mysql_stmt_execute(statement) && !is_expected(mysql_stmt_errno(statement)))
        fail(mysql_stmt_error(statement));
    rows(statement);
}

#else
#include <libpq-fe.h>

static PGconn *connection;
static const int binary[PARAMETERS] = {[0 ... PARAMETERS - 1] = 1};

static unsigned big_endian(const unsigned char *at, unsigned bytes)
{
    unsigned number = 0;
    while (bytes--)
        number = number << 8 | *at++;
    return number;
}

static void open_connection(const char *socket)
{
    char folder[1024], *slash, text[1200];
    snprintf(folder, sizeof folder, "%s", socket);
    slash = strrchr(folder, '/');
    if (!slash)
        fail("the socket's path has no folder");
    *slash = 0;
    snprintf(text, sizeof text, "host=%s user=rumbench dbname=postgres", folder);
    connection = PQconnectdb(text);
    if (PQstatus(connection) != CONNECTION_OK)
        fail(PQerrorMessage(connection));
}

static void read_message(struct message *of, unsigned is_first)
{
    const unsigned char *at = of->body;
    unsigned each, count;

    of->kind = OTHER;
    if (is_first)
        return;
    if (*at == 'P')
        of->kind = PREPARE;
    if (*at == 'Q')
        of->kind = QUERY;
    of->body = at + 5;
    if (*at != 'B')
        return;
    of->kind = EXECUTE;
    /* The portal has no name, so the statement's name is at body + 1. One format for all
     * parameters. */
    at = of->body + 1;
    at += strlen((const char *)at) + 1 + 4;
    count = big_endian(at, 2);
    parameters(of, count);
    for (at += 2, each = 0; each < count; each++) {
        of->lengths[each] = big_endian(at, 4);
        of->values[each] = at + 4;
        at += 4 + of->lengths[each];
    }
}

static void finish(PGresult *result, int is_checked)
{
    ExecStatusType status = PQresultStatus(result);
    int row, column, rows = PQntuples(result), columns = PQnfields(result);
    if (is_checked && status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail(PQresultErrorMessage(result));
    for (row = 0; row < rows; row++)
        for (column = 0; column < columns; column++)
            seen += (unsigned char)*PQgetvalue(result, row, column);
    PQclear(result);
}

static void prepare(struct message *message)
{
    const char *name = (const char *)message->body;
    finish(PQprepare(connection, name, name + strlen(name) + 1, 0, NULL), 1);
}

static void run(struct message *message)
{
    int lengths[PARAMETERS];
    unsigned each;
    if (message->kind == QUERY) {
        finish(PQexec(connection, (const char *)message->body), 1);
        return;
    }
    for (each = 0; each < message->parameters; each++)
        lengths[each] = (int)message->lengths[each];
    /* Not checked: a duplicate key is expected, and so are errors of later statements of its
     * transaction. */
    finish(PQexecPrepared(connection, (const char *)message->body + 1, (int)message->parameters, (const char *const *)message->values,
                          lengths, binary, 1), 0);
}
#endif

static unsigned char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes;
    if (!file || fseek(file, 0, SEEK_END))
        fail(path);
    *length = (size_t)ftell(file);
    rewind(file);
    bytes = room_for(*length + 1, 1);
    if (fread(bytes, 1, *length, file) != *length)
        fail(path);
    fclose(file);
    return bytes;
}

int main(int count, char **arguments)
{
    struct rusage before, after;
    struct timespec start, end;
    size_t length, at = 0, messages = 0, each;
    unsigned char *recording;
    struct message *all;
    double user, system, exact;

    if (count != 3)
        return 2;
    recording = read_file(arguments[2], &length);
    all = room_for(length / 5 + 1, sizeof *all);
    open_connection(arguments[1]);
    while (at < length) {
        uint32_t bytes;
        struct message *message = all + messages;
        memcpy(&bytes, recording + at, 4);
        message->body = recording + at + 4;
        message->length = bytes;
        read_message(message, messages == 0);
        if (message->kind == PREPARE)
            prepare(message);
        at += 4 + (size_t)bytes;
        messages++;
    }
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    for (each = 0; each < messages; each++)
        if (all[each].kind == EXECUTE || all[each].kind == QUERY)
            run(all + each);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    getrusage(RUSAGE_SELF, &after);
#define MICROSECONDS(of) ((double)(after.of.tv_sec - before.of.tv_sec) * 1e6 + (double)(after.of.tv_usec - before.of.tv_usec))
    user = MICROSECONDS(ru_utime);
    system = MICROSECONDS(ru_stime);
    exact = (double)(end.tv_sec - start.tv_sec) * 1e6 + (double)(end.tv_nsec - start.tv_nsec) * 1e-3;
    /* The total is from the exact clock; the user and system shares are from the kernel. */
    printf("%zu %.0f %.0f\n", messages, exact * user / (user + system), exact * system / (user + system));
    return 0;
}
