// Finds and damages stored files, for the tests of damage detection.
#include <dirent.h>

#include "check.h"

static bool ends_with(const char *name, const char *end) {
    return strlen(name) >= strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0;
}

static void damage_file(const char *path) {
    char bytes[16];
    FILE *file = fopen(path, "r+b");
    CHECK(file != NULL && fseek(file, -(long)sizeof bytes, SEEK_END) == 0);
    CHECK(fread(bytes, 1, sizeof bytes, file) == sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)~bytes[i];
    }
    CHECK(fseek(file, -(long)sizeof bytes, SEEK_END) == 0);
    CHECK(fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && fclose(file) == 0);
}

int damage_files(const char *name, const char *ending) {
    int damaged = 0;
    DIR *directory = opendir(path_of(name));
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (ends_with(entry->d_name, ending)) {
            char path[8192];
            CHECK(snprintf(path, sizeof path, "%s/%s", path_of(name), entry->d_name) < (int)sizeof path);
            damage_file(path);
            damaged++;
        }
    }
    closedir(directory);
    return damaged;
}

bool first_file(const char *name, const char *ending, char *file, size_t size) {
    DIR *directory = opendir(path_of(name));
    CHECK(directory != NULL && size > 0);
    file[0] = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (ends_with(entry->d_name, ending) && (file[0] == 0 || strcmp(entry->d_name, file) < 0)) {
            CHECK(snprintf(file, size, "%s", entry->d_name) < (int)size);
        }
    }
    closedir(directory);
    return file[0] != 0;
}
