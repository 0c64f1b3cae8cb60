// SPDX-License-Identifier: GPL-2.0-only
//
// Compares images with the server's own comparison for every collation that the server has.
//
//   collations [PAIRS] [SEED] [NAME]     pairs for each collation (20,000), collations with NAME in
//                                        their name
//
// Links the server's library for its tables only; no server runs.

#include <my_global.h>

#include <m_ctype.h>
#include <my_sys.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "key_codec.h"
#include "server_collation.h"

using namespace alluvium_sql;

namespace {

constexpr size_t characters_max = 12;

using Random = std::mt19937_64;

struct Case {
    CHARSET_INFO *cs;
    TextColumn column;
    const Collation *collation;
};

size_t below(Random &random, size_t end) { return random() % end; }

uint32_t random_code(Random &random) {
    // Letters that collations contract or expand, spaces, and characters that are ignored.
    static const char common[] = "aabcChHlLnNsSzZ jJdDgyYtTeE-.0 1AaBB   ";
    static const uint32_t special[] = {0xdf,   0xe4,   0xc4,   0x1c6,  0x301,  0x30a,  0x3b1,
                                       0x430,  0xe01,  0xe40,  0xe48,  0xe49,  0x3042, 0x30a2,
                                       0x4e00, 0xac00, 0xfdfa, 0xfb01, 0xffff, 0xfffd, 0x1f600,
                                       0x10400, 0x10ffff, 0x2003, 0xa0, 0x200b, 0xad, 0x149, 0x390};
    switch (below(random, 10)) {
    case 0: return special[below(random, std::size(special))];
    case 1: return static_cast<uint32_t>(below(random, 0x20));
    case 2: return static_cast<uint32_t>(below(random, 0x250));
    case 3: return static_cast<uint32_t>(below(random, 0x10000));
    default: return static_cast<uint8_t>(common[below(random, sizeof common - 1)]);
    }
}

// Whether bytes that are no character are tested. Not in a CHAR whose characters have at least two
// bytes: the server never stores them, and they would shift all bytes that fill the column.
bool may_be_bad(const Case &c) { return c.column == TextColumn::Varying || c.cs->mbminlen == 1; }

void append_character(Random &random, const Case &c, std::string &text) {
    CHARSET_INFO *cs = c.cs;
    uchar bytes[8];
    const int length = my_ci_wc_mb(cs, random_code(random), bytes, bytes + sizeof bytes);
    if (length > 0) text.append(reinterpret_cast<char *>(bytes), static_cast<size_t>(length));
    // Characters of sets that have no Unicode table, and bytes that are no character.
    const bool wants_bytes = may_be_bad(c) && (length <= 0 || below(random, 12) == 0);
    for (size_t i = wants_bytes ? below(random, 3) : 0; i > 0; i--) {
        text.push_back(static_cast<char>(random()));
    }
}

std::string random_text(Random &random, const Case &c) {
    std::string text;
    const size_t characters = below(random, 3) ? below(random, 5) : below(random, 9);
    for (size_t i = 0; i < characters; i++) append_character(random, c, text);
    return text;
}

void append_spaces(CHARSET_INFO *cs, size_t count, std::string &text) {
    const size_t from = text.size();
    text.resize(from + count * cs->mbminlen);
    my_ci_fill(cs, &text[from], text.size() - from, ' ');
}

// Another text that shares a beginning with this one.
std::string similar_text(Random &random, const Case &c, const std::string &text) {
    CHARSET_INFO *cs = c.cs;
    const size_t cut = my_ci_charpos(cs, text.data(), text.data() + text.size(),
                                     below(random, text.size() + 1));
    std::string other = text.substr(0, std::min(cut, text.size()));
    if (below(random, 2)) append_spaces(cs, below(random, 4), other);
    if (below(random, 2)) append_character(random, c, other);
    if (below(random, 2)) other += text.substr(std::min(cut, text.size()));
    if (below(random, 4) == 0) append_spaces(cs, below(random, 200), other);
    return other;
}

KeyPart part_of(const Case &c) {
    KeyPart part;
    part.collation = c.collation;
    if (c.column == TextColumn::Char) {
        part.kind = KeyKind::Char;
        part.length = part.column_length = static_cast<uint32_t>(characters_max * c.cs->mbmaxlen);
    } else {
        part.kind = KeyKind::VarChar;
        part.length = part.column_length = 4000;
        part.length_bytes = 2;
    }
    return part;
}

// The record with this text; CHAR is cut and filled as the server does.
std::string record_of(const Case &c, const KeyPart &part, const std::string &text) {
    std::string record(part.length_bytes + part.column_length, '\0');
    size_t length = text.size();
    if (c.column == TextColumn::Varying) {
        store_little(reinterpret_cast<uint8_t *>(&record[0]), 2, length);
    } else {
        my_ci_fill(c.cs, &record[0], record.size(), ' ');
        length = std::min(
            length, my_ci_charpos(c.cs, text.data(), text.data() + text.size(), characters_max));
        length = std::min<size_t>(length, part.column_length);
    }
    memcpy(&record[part.length_bytes], text.data(), length);
    return record;
}

int sign(int number) { return (number > 0) - (number < 0); }

// Tone marks move to the end of a Thai text, so its spaces count.
bool is_thai(const Case &c) { return !strncmp(c.cs->coll_name.str, "tis620_thai", 11); }

bool pads(const Case &c) { return !(c.cs->state & MY_CS_NOPAD) && !is_thai(c); }

int server_order(const Case &c, const std::string &a, const std::string &b) {
    const auto *x = reinterpret_cast<const uchar *>(a.data());
    const auto *y = reinterpret_cast<const uchar *>(b.data());
    if (c.column == TextColumn::Char && pads(c)) {
        // As InnoDB calls it. Without the flag, a full column that ends with characters that are
        // ignored sorts below one that ends with spaces.
        return sign(c.cs->coll->strnncollsp_nchars(
            c.cs, x, my_ci_lengthsp(c.cs, a.data(), a.size()), y,
            my_ci_lengthsp(c.cs, b.data(), b.size()), characters_max,
            MY_STRNNCOLLSP_NCHARS_EMULATE_TRIMMED_TRAILING_SPACES));
    }
    if (c.column == TextColumn::Char) {
        return sign(
            c.cs->coll->strnncollsp_nchars(c.cs, x, a.size(), y, b.size(), characters_max, 0));
    }
    return sign(my_ci_strnncollsp(c.cs, x + 2, load_little(x, 2), y + 2, load_little(y, 2)));
}

void print_bytes(const char *name, const std::string &bytes) {
    std::printf("  %s:", name);
    for (unsigned char byte : bytes) std::printf(" %02x", byte);
    std::printf("\n");
}

struct Image {
    std::string bytes;
    std::string extra;
};

// Image and extra; checks bound and round trip.
bool make_image(const KeyPart &part, const std::string &record, Image &image, const char *&fault) {
    const auto *at = reinterpret_cast<const uint8_t *>(record.data());
    const Extra extra = append_part(part, at, image.bytes);
    image.extra.assign(reinterpret_cast<const char *>(extra.data()), extra.length());
    fault = "image is longer than its bound";
    if (image.bytes.size() > key_part_bytes_max(part)) return false;
    fault = "image does not end itself";
    Bytes cursor(image.bytes);
    if (!skip_part(part, cursor) || !cursor.empty()) return false;
    fault = "value is not restored";
    std::string back(record.size(), '\0');
    cursor = Bytes(image.bytes);
    return take_part(part, cursor, Bytes(image.extra), reinterpret_cast<uint8_t *>(&back[0])) &&
           cursor.empty() && back == record;
}

struct Totals {
    size_t pairs = 0, equal = 0, collations = 0, faults = 0;
};

bool check_pair(const Case &c, const KeyPart &part, const std::string &a, const std::string &b,
                Totals &totals) {
    const std::string x = record_of(c, part, a), y = record_of(c, part, b);
    Image first, second;
    const char *fault = nullptr;
    const bool made = make_image(part, x, first, fault) && make_image(part, y, second, fault);
    const int order = server_order(c, x, y);
    totals.pairs++;
    totals.equal += order == 0;
    if (made && sign(first.bytes.compare(second.bytes)) == order) return true;
    std::printf("%s %s: %s (server's order %d)\n", c.cs->coll_name.str,
                c.column == TextColumn::Char ? "CHAR" : "VARCHAR", made ? "order" : fault, order);
    print_bytes("text", a);
    print_bytes("text", b);
    print_bytes("image", first.bytes);
    print_bytes("image", second.bytes);
    return false;
}

void check_collation(const Case &c, size_t pairs, uint64_t seed, Totals &totals) {
    const KeyPart part = part_of(c);
    Random random(seed * 4096 + c.cs->number);
    for (size_t i = 0; i < pairs; i++) {
        const std::string a = random_text(random, c);
        const std::string b =
            below(random, 4) ? similar_text(random, c, a) : random_text(random, c);
        if (check_pair(c, part, a, b, totals)) continue;
        totals.faults++;
        return;
    }
}

// Image and extra of a text, as `docs/format/sql-key.md` shows them: the weights and forms of the
// server's collations are part of the format.
struct Golden {
    const char *collation;
    TextColumn column;
    std::string text;
    const char *image;
};

void append_hex(const std::string &bytes, std::string &text) {
    char digits[4];
    for (unsigned char byte : bytes) {
        std::snprintf(digits, sizeof digits, "%02x ", byte);
        text += digits;
    }
}

size_t check_golden_bytes() {
    const TextColumn varying = TextColumn::Varying, fixed = TextColumn::Char;
    const Golden all[] = {
        {"latin1_swedish_ci", varying, "aB  c ", "41 42 20 fd 43 20 80 + 61 42 20 20 63 20"},
        {"latin1_swedish_nopad_ci", varying, "a ", "41 20 00 01 + 61 20"},
        {"latin1_swedish_nopad_ci", fixed, "a", "41 20 0b 00 01 + 61"},
        {"latin1_bin", varying, "aB  ", "61 42 20 80 + 02"},
        {"utf8mb4_general_ci", varying, "aB", "41 42 20 80 + 61 42"},
        {"utf8mb4_general_ci", varying, "\xe4\xb8\x80", "ff 4e 00 20 80 + e4 b8 80"},
        {"utf8mb4_general_ci", varying, "\xff", "ff ff ff ff 00 ff 20 80 + ff"},
        {"utf8mb4_bin", varying, "aB\xc3\xa4 ", "61 42 c3 a4 20 80 + 01"},
        {"utf8mb4_bin", fixed, "aB", "61 42 20 80"},
        {"utf8mb4_bin", varying, "\x80", "ff 80 20 80"},
        {"utf8mb4_nopad_bin", varying, "a ", "61 20 00 01"},
        {"utf8mb4_nopad_bin", fixed, "a", "61 20 0b 00 01"},
        {"utf8mb4_unicode_ci", varying, "aB", "0e 33 0e 4a 02 09 80 + 61 42"},
        {"utf8mb4_unicode_nopad_ci", varying, "aB", "0e 33 0e 4a 00 00 01 + 61 42"},
        {"utf8mb4_uca1400_as_cs", varying, "aB",
         "20 75 20 8f 02 09 80 00 20 80 00 02 fe 00 08 00 02 80 + 61 42"},
        {"utf8mb4_uca1400_nopad_as_cs", varying, "aB",
         "20 75 20 8f 00 00 01 00 20 80 00 02 fe 00 08 00 02 80 + 61 42"},
        {"utf8mb4_uca1400_nopad_as_cs", fixed, "aB",
         "20 75 20 8f 02 09 0a 00 00 01 00 20 0c 00 00 01 00 02 fe 00 08 00 02 0a 00 00 01 "
         "+ 61 42"},
        {"ucs2_bin", varying, std::string("\0a", 2), "61 20 80 + 00 61"},
        {"utf16_bin", varying, std::string("\xd8\0\xdc\0", 4),
         "ff ff ff 01 00 00 20 80 + d8 00 dc 00"},
        {"sjis_japanese_ci", varying, "a\x82\xa0", "41 82 a0 20 80 + 61 82 a0"},
        {"big5_chinese_ci", varying, "a\xa4\x41", "41 a4 41 20 80 + 61 a4 41"},
        {"latin2_czech_cs", varying, "a", "03 01 03 01 03 01 03 00 ff 00 01 + 61"},
        {"cp1250_czech_cs", varying, "a", "a4 02 00 01 + 61"},
        {"tis620_thai_nopad_ci", varying, "a", "61 00 01 + 61"},
    };
    size_t faults = 0;
    for (const Golden &golden : all) {
        CHARSET_INFO *cs = get_charset_by_name(golden.collation, MYF(0));
        const Case c{cs, golden.column, server_collation(cs, golden.column)};
        const KeyPart part = part_of(c);
        const std::string record = record_of(c, part, golden.text);
        Image image;
        const char *fault = nullptr;
        const bool made = make_image(part, record, image, fault);
        std::string shown;
        append_hex(image.bytes, shown);
        if (!image.extra.empty()) shown += "+ ";
        append_hex(image.extra, shown);
        shown.pop_back();
        if (made && shown == golden.image) continue;
        std::printf("%s: %s, expected %s\n", golden.collation, shown.c_str(), golden.image);
        faults++;
    }
    return faults;
}

} // namespace

int main(int count, char **arguments) {
    MY_INIT(arguments[0]);
    const size_t pairs = count > 1 ? std::stoul(arguments[1]) : 20000;
    const uint64_t seed = count > 2 ? std::stoull(arguments[2]) : 1;
    const std::string name = count > 3 ? arguments[3] : "";
    Totals totals;
    totals.faults = check_golden_bytes();
    for (uint number = 1; number < MY_ALL_CHARSETS_SIZE; number++) {
        CHARSET_INFO *cs = get_charset(number, MYF(0));
        if (!cs || std::string(cs->coll_name.str).find(name) == std::string::npos) continue;
        totals.collations++;
        for (TextColumn column : {TextColumn::Varying, TextColumn::Char}) {
            const Case c{cs, column, server_collation(cs, column)};
            if (c.collation) check_collation(c, pairs, seed, totals);
        }
    }
    std::printf("%zu collations, %zu pairs, %zu of them equal, %zu faults\n", totals.collations,
                totals.pairs, totals.equal, totals.faults);
    my_end(0);
    return totals.faults || !totals.collations;
}
