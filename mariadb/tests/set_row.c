// SPDX-License-Identifier: GPL-2.0-only
//
// Writes one row of a closed database, for tests of damage, and prints its old value:
//
//   set_row FOLDER KEYSPACE KEY VALUE      KEY, VALUE: hexadecimal digits

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <alluvium.h>

static size_t from_hex(const char *text, unsigned char *bytes, size_t room) {
    size_t count = 0;
    unsigned byte;
    for (; text[0] && text[1] && count < room && sscanf(text, "%2x", &byte) == 1; text += 2)
        bytes[count++] = (unsigned char)byte;
    return count;
}

static void check(alluvium_code code, alluvium_error *error) {
    if (code == ALLUVIUM_CODE_OK) return;
    fprintf(stderr, "set_row: %s\n", alluvium_error_message(error, NULL));
    exit(1);
}

int main(int count, char **arguments) {
    static unsigned char key[1000], value[1000];
    alluvium_database *database;
    alluvium_keyspace *keyspace;
    alluvium_value *old;
    alluvium_error *error;
    if (count != 5) return 2;
    alluvium_options options = {.struct_size = sizeof options, .must_exist = 1};
    check(alluvium_open(arguments[1], strlen(arguments[1]), &options, &database, &error), error);
    check(alluvium_keyspace_open(database, arguments[2], strlen(arguments[2]), NULL, &keyspace,
                                 &error),
          error);
    size_t key_size = from_hex(arguments[3], key, sizeof key);
    size_t value_size = from_hex(arguments[4], value, sizeof value);
    check(alluvium_get(alluvium_keyspace_reader(keyspace), key, key_size, &old, &error), error);
    size_t old_size = 0;
    const uint8_t *old_bytes = alluvium_value_data(old, &old_size);
    for (size_t i = 0; i < old_size; i++) printf("%02x", old_bytes[i]);
    check(alluvium_put(alluvium_keyspace_writer(keyspace), key, key_size, value, value_size,
                       &error),
          error);
    check(alluvium_close(database, &error), error);
    return 0;
}
