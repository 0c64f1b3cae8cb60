/*
 * Minimal client of a server: sends recorded messages over a Unix socket, one after the other, and
 * reads each answer to its end. It decodes no values, generates nothing and reads no clock between
 * messages, so its CPU time is the cost of the kernel and of the protocol's format. It is the
 * baseline for the laboratory's client.
 *
 * Usage: bare_client mariadb|postgresql SOCKET RECORDING
 * RECORDING contains messages, each after its length in 4 bytes, little-endian. The first message
 * answers the server's greeting.
 * Output: number of messages, microseconds of CPU in user mode and in system mode.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int server;
static unsigned char *received;
static size_t room = 1 << 16, from, to;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Returns the next bytes of the answer, valid until the next call. */
static const unsigned char *take(size_t bytes)
{
    if (to - from < bytes) {
        memmove(received, received + from, to - from);
        to -= from;
        from = 0;
        if (room < bytes) {
            room = bytes * 2;
            received = realloc(received, room);
            if (!received)
                fail("memory");
        }
        /* Ends: each iteration receives at least one byte. */
        while (to < bytes) {
            ssize_t more = read(server, received + to, room - to);
            if (more <= 0)
                fail("the connection broke");
            to += (size_t)more;
        }
    }
    from += bytes;
    return received + from - bytes;
}

/* Returns the next packet of MariaDB and its length. */
static const unsigned char *packet(size_t *length)
{
    const unsigned char *header = take(4);
    *length = header[0] | (size_t)header[1] << 8 | (size_t)header[2] << 16;
    return *length ? take(*length) : header;
}

/* Reads the answer to a command; command 0 is the login. */
static void mariadb_answer(unsigned char command)
{
    size_t length;
    const unsigned char *body = packet(&length);
    unsigned columns, definitions;

    if (body[0] == 0xff) {
        unsigned error = length < 3 ? 0 : body[1] | (unsigned)body[2] << 8;
        /* Expected: a duplicate key (1062), and with several clients a lock timeout (1205) or a
         * deadlock (1213). After any other error, such as an unknown statement number, the server
         * has not done the work. */
        if (error != 1062 && error != 1205 && error != 1213) {
            fprintf(stderr, "bare_client: the server refuses: %.*s\n", (int)(length > 3 ? length - 3 : 0), (const char *)body + 3);
            exit(1);
        }
        return;
    }
    if (command == 0)
        return;
    if (command == 0x16) {
        definitions = (body[5] | body[6] << 8) + (body[7] | body[8] << 8);
        while (definitions--)
            packet(&length);
        return;
    }
    if (body[0] == 0)
        return;
    /* A result set: column definitions, then rows up to the end packet. */
    for (columns = body[0]; columns; columns--)
        packet(&length);
    do
        body = packet(&length);
    while (body[0] != 0xff && !(body[0] == 0xfe && length < 0xffffff));
}

/* Reads PostgreSQL's answer: all messages up to ReadyForQuery ('Z'). */
static void postgresql_answer(void)
{
    unsigned char kind;
    do {
        const unsigned char *header = take(5);
        size_t length = (size_t)header[1] << 24 | header[2] << 16 | header[3] << 8 | header[4];
        kind = header[0];
        take(length - 4);
    } while (kind != 'Z');
}

static unsigned char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes;
    if (!file || fseek(file, 0, SEEK_END))
        fail(path);
    *length = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*length + 1);
    if (!bytes || fread(bytes, 1, *length, file) != *length)
        fail(path);
    fclose(file);
    return bytes;
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int count, char **arguments)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct rusage before, after;
    size_t length, at = 0;
    unsigned long messages = 0;
    double start, all, user, system;
    unsigned char *recording;
    int is_mariadb;

    if (count != 4)
        return 2;
    is_mariadb = !strcmp(arguments[1], "mariadb");
    recording = read_file(arguments[3], &length);
    received = malloc(room);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", arguments[2]);
    server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (!received || server < 0 || connect(server, (struct sockaddr *)&address, sizeof address))
        fail(arguments[2]);
    getrusage(RUSAGE_SELF, &before);
    start = seconds();
    if (is_mariadb)
        mariadb_answer(0);
    while (at < length) {
        uint32_t bytes;
        const unsigned char *message = recording + at + 4;
        memcpy(&bytes, recording + at, 4);
        at += 4 + (size_t)bytes;
        if (write(server, message, bytes) != (ssize_t)bytes)
            fail("cannot send");
        if (is_mariadb)
            mariadb_answer(messages ? message[4] : 0);
        else
            postgresql_answer();
        messages++;
    }
    all = seconds() - start;
    getrusage(RUSAGE_SELF, &after);
#define MICROSECONDS(of) ((double)(after.of.tv_sec - before.of.tv_sec) * 1e6 + (double)(after.of.tv_usec - before.of.tv_usec))
    user = MICROSECONDS(ru_utime);
    system = MICROSECONDS(ru_stime);
    /* The total is from the exact clock; the user and system shares are from the kernel. */
    printf("%lu %.0f %.0f\n", messages, all * 1e6 * user / (user + system), all * 1e6 * system / (user + system));
    return 0;
}
