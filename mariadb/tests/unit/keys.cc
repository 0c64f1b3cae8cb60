// SPDX-License-Identifier: GPL-2.0-only
//
// Key parts: golden bytes equal to `docs/format/sql-key.md`, then properties of random values.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "check.h"
#include "key_codec.h"

using namespace alluvium_sql;

namespace {

// Collation whose order a test can compute: weights are given for each byte. Byte 0x07 has none and
// 0xdf has two, as in collations that ignore and expand.
class TestCollation final : public Collation {
public:
    enum Weights { Text, Folded, Wide, Compact, TwoLevels };

    TestCollation(Weights weights, TextForm text_form) : weights_(weights) {
        levels = weights == TwoLevels ? 2 : 1;
        unit_bytes = weights == Wide || weights == TwoLevels ? 2 : 1;
        compact = weights == Compact;
        restores = weights == Text;
        for (unsigned level = 0; level < levels; level++) {
            form[level] = text_form;
            space_weight[level] = weight(level, ' ');
        }
        trims_char = text_form == TextForm::Spaces;
    }

    size_t prefix_bytes(const uint8_t *, size_t length, size_t characters) const override {
        return std::min(length, characters);
    }
    bool is_plain(const uint8_t *, size_t) const override { return true; }
    size_t weights_max(size_t length) const override { return 2 * length; }

    void append_weights(unsigned level, const uint8_t *text, size_t length,
                        std::vector<uint32_t> &weights) const override {
        for (size_t i = 0; i < length; i++) {
            if (weights_ != Text && text[i] == 0x07) continue;
            weights.push_back(weight(level, text[i]));
            if (weights_ != Text && text[i] == 0xdf) weights.push_back(weight(level, 's'));
        }
    }

    uint32_t weight(unsigned level, uint8_t byte) const {
        const uint8_t folded = byte >= 'a' && byte <= 'z' ? byte - 32 : byte;
        switch (weights_) {
        case Text: return byte;
        case Folded: return folded;
        case Wide: return folded * 257u;
        case Compact: return compact_weight(folded);
        default: return level == 0 ? folded : (byte != folded) + 2u;
        }
    }

    // Order by definition: weights, and with padding endless spaces after them.
    int compare(const std::string &a, const std::string &b) const {
        int order = 0;
        for (unsigned level = 0; level < levels && !order; level++) order = compare(level, a, b);
        return order;
    }

private:
    // Weights of 1, 2, 3 and 6 bytes.
    static uint32_t compact_weight(uint32_t folded) {
        if (folded < 0x80) return folded;
        if (folded < 0x90) return folded * 0x10;
        return folded < 0xf0 ? folded * 0x110 : folded << 16;
    }

    int compare(unsigned level, const std::string &a, const std::string &b) const {
        std::vector<uint32_t> x, y;
        append_weights(level, bytes_of(a), a.size(), x);
        append_weights(level, bytes_of(b), b.size(), y);
        if (form[level] == TextForm::Spaces) {
            const size_t longer = std::max(x.size(), y.size());
            x.resize(longer, space_weight[level]);
            y.resize(longer, space_weight[level]);
        }
        return x < y ? -1 : x > y;
    }

    Weights weights_;
};

const TestCollation padded(TestCollation::Text, TextForm::Spaces);
const TestCollation folded(TestCollation::Folded, TextForm::Spaces);
const TestCollation not_padded(TestCollation::Folded, TextForm::Escaped);
const TestCollation counted(TestCollation::Text, TextForm::Counted);
const TestCollation wide(TestCollation::Wide, TextForm::Spaces);
const TestCollation wide_not_padded(TestCollation::Wide, TextForm::Escaped);
const TestCollation wide_counted(TestCollation::Wide, TextForm::Counted);
const TestCollation compact(TestCollation::Compact, TextForm::Spaces);
const TestCollation compact_not_padded(TestCollation::Compact, TextForm::Escaped);
const TestCollation two_levels(TestCollation::TwoLevels, TextForm::Spaces);

constexpr uint32_t null_offset = 0;
constexpr uint8_t null_mask = 4;
constexpr uint32_t value_offset = 1;

KeyPart part_of(KeyKind kind, uint32_t length, const Collation *collation = nullptr) {
    KeyPart part;
    part.kind = kind;
    part.offset = value_offset;
    part.null_offset = null_offset;
    part.null_mask = null_mask;
    part.length = part.column_length = length;
    part.collation = collation;
    if (kind == KeyKind::VarBinary || kind == KeyKind::VarChar) part.length_bytes = 2;
    if (kind == KeyKind::BlobBinary || kind == KeyKind::BlobText) {
        part.length_bytes = 4;
        part.prefix_characters = length;
    }
    return part;
}

bool is_blob(const KeyPart &part) {
    return part.kind == KeyKind::BlobBinary || part.kind == KeyKind::BlobText;
}

// Record with this value, given without its length. Blobs point into `value`.
std::string record_of(const KeyPart &part, const std::string &value) {
    std::string record(value_offset, '\x03');
    char length[8];
    store_little(reinterpret_cast<uint8_t *>(length), 8, value.size());
    record.append(length, part.length_bytes);
    if (is_blob(part)) {
        const char *data = value.data();
        record.append(reinterpret_cast<const char *>(&data), sizeof data);
        return record;
    }
    record += value;
    record.resize(value_offset + part.length_bytes + part.column_length,
                  part.kind == KeyKind::Char ? ' ' : '\0');
    return record;
}

std::string null_record(const KeyPart &part) {
    std::string record = record_of(part, "");
    if (part.kind != KeyKind::Char) std::fill(record.begin() + value_offset, record.end(), '\0');
    record[null_offset] = static_cast<char>(3 | null_mask);
    return record;
}

std::string image_of(const KeyPart &part, const std::string &record, std::string *extra = nullptr) {
    const ExactCopy copy(record);
    std::string image;
    const Extra left = append_part(part, copy.data(), image);
    if (extra) extra->assign(reinterpret_cast<const char *>(left.data()), left.length());
    CHECK(image.size() <= key_part_bytes_max(part));
    return image;
}

// Image and extra as text, for golden bytes.
std::string golden(const KeyPart &part, const std::string &value) {
    std::string extra;
    const std::string image = image_of(part, record_of(part, value), &extra);
    return extra.empty() ? hex(image) : hex(image) + " + " + hex(extra);
}

std::string little(uint64_t value, size_t length) {
    std::string bytes(length, '\0');
    store_little(bytes_of(bytes), length, value);
    return bytes;
}

std::string float_bytes(double value) {
    std::string bytes(8, '\0');
    memcpy(&bytes[0], &value, 8);
    return bytes;
}

// Text with many spaces, zeros, and bytes around a space.
std::string random_text(Random &random, size_t longest) {
    static const char common[] = {' ', ' ', ' ', 'a', 'A', 'b', 's', 'S', '\0', '\x01', '\x1f', '!',
                                  '\x07', '\xdf', '\xff', '\xfe', '\x80'};
    std::string text;
    for (size_t left = below(random, longest + 1); left > 0; left--) {
        text.push_back(below(random, 8) ? common[below(random, sizeof common)]
                                        : static_cast<char>(random()));
    }
    if (below(random, 10) == 0) text.append(below(random, 300), ' ');
    return text.substr(0, longest);
}

// Random value without its length; values often share a beginning.
std::string random_value(Random &random, const KeyPart &part) {
    const bool is_fixed = part.kind < KeyKind::VarBinary;
    if (!is_fixed) return random_text(random, below(random, 4) ? 6 : part.column_length);
    if (part.kind == KeyKind::Float && below(random, 4) == 0) {
        return little(below(random, 2) << (8 * part.length - 1), part.length);
    }
    std::string value(part.column_length, '\0');
    const uint64_t filler = below(random, 2) ? 0 : 0xff;
    for (char &byte : value) byte = static_cast<char>(below(random, 3) ? filler : random());
    return value;
}

template <class Number> int compare_as(const std::string &a, const std::string &b) {
    Number x, y;
    memcpy(&x, a.data(), sizeof x);
    memcpy(&y, b.data(), sizeof y);
    return x < y ? -1 : x > y;
}

int64_t signed_of(const std::string &bytes) {
    const size_t shift = 64 - 8 * bytes.size();
    const uint64_t value = load_little(bytes_of(bytes), bytes.size());
    return static_cast<int64_t>(value << shift) >> shift;
}

// Order of two values by their meaning.
int compare_values(const KeyPart &part, std::string a, std::string b) {
    switch (part.kind) {
    case KeyKind::Signed: return signed_of(a) < signed_of(b) ? -1 : signed_of(a) > signed_of(b);
    case KeyKind::Unsigned:
        std::reverse(a.begin(), a.end());
        std::reverse(b.begin(), b.end());
        return sign(a.compare(b));
    case KeyKind::Float:
        return part.length == 4 ? compare_as<float>(a, b) : compare_as<double>(a, b);
    default: break;
    }
    if (part.kind == KeyKind::Char) {
        a.resize(part.column_length, ' ');
        b.resize(part.column_length, ' ');
    }
    const size_t cut = part.prefix_characters ? part.prefix_characters : part.length;
    a = a.substr(0, cut);
    b = b.substr(0, cut);
    if (!part.collation) return sign(a.compare(b));
    return static_cast<const TestCollation *>(part.collation)->compare(a, b);
}

bool is_number_without_order(const KeyPart &part, const std::string &value) {
    if (part.kind != KeyKind::Float) return false;
    if (part.length == 8) {
        double number;
        memcpy(&number, value.data(), sizeof number);
        return std::isnan(number);
    }
    float number;
    memcpy(&number, value.data(), sizeof number);
    return std::isnan(number);
}

// A key tuple of the server with this value.
std::string tuple_of(const KeyPart &part, const std::string &record, const std::string &value) {
    std::string tuple;
    const bool null = part.nullable && record[null_offset] & null_mask;
    if (part.nullable) tuple.push_back(null);
    const std::string key = value.substr(0, part.length);
    if (part.length_bytes) tuple += little(key.size(), 2);
    tuple += key;
    const char filler = part.kind == KeyKind::Char ? ' ' : '\0';
    tuple.resize(part.nullable + 2 * (part.length_bytes > 0) + part.length, filler);
    return tuple;
}

void check_round_trip(const KeyPart &part, const std::string &record, const std::string &value) {
    std::string extra;
    const std::string image = image_of(part, record, &extra);
    CHECK(may_have_extra(part) || extra.empty());
    const ExactCopy copy(image), extra_copy(extra);
    Bytes cursor = copy.bytes();
    CHECK(skip_part(part, cursor) && cursor.empty());
    if (restores(part)) {
        std::string back(record.size(), '\x55');
        // The null bit has to be written, too.
        const int wrong = part.nullable ? ~record[null_offset] & null_mask : 0;
        back[null_offset] = static_cast<char>(3 | wrong);
        cursor = copy.bytes();
        CHECK(take_part(part, cursor, extra_copy.bytes(), bytes_of(back)) && cursor.empty());
        // Bytes of a VARCHAR after its end are not restored.
        size_t end = record.size();
        if (part.length_bytes) {
            end = value_offset + part.length_bytes;
            end += load_little(bytes_of(back) + value_offset, part.length_bytes);
        }
        CHECK(back.compare(0, end, record, 0, end) == 0);
    }
    const ExactCopy tuple(tuple_of(part, record, value));
    const uint8_t *at = tuple.data();
    std::string other;
    const bool null = append_key_part(part, at, other);
    CHECK(at == tuple.data() + tuple.size() && other == image);
    CHECK(null == (part.nullable && record[null_offset] & null_mask));
}

// Cut, changed and random bytes: no crash, and no bytes past the end are read.
void check_damage(const KeyPart &part, const std::string &image, const std::string &extra,
                  Random &random) {
    const auto decode = [&](const std::string &bytes, const std::string &left) {
        const ExactCopy copy(bytes), extra_copy(left);
        Bytes cursor = copy.bytes();
        const bool skipped = skip_part(part, cursor);
        std::string back = record_of(part, "");
        cursor = copy.bytes();
        if (restores(part)) take_part(part, cursor, extra_copy.bytes(), bytes_of(back));
        return skipped;
    };
    for (size_t cut = 0; cut < image.size(); cut++) CHECK(!decode(image.substr(0, cut), extra));
    for (int i = 0; i < 4 && !image.empty(); i++) {
        std::string changed = image, left = extra;
        changed[below(random, changed.size())] = static_cast<char>(random());
        if (below(random, 2)) left = random_text(random, part.column_length + 8);
        decode(changed, left);
    }
}

void check_pair(const KeyPart &part, const std::string &a, const std::string &b) {
    if (is_number_without_order(part, a) || is_number_without_order(part, b)) return;
    const int order = compare_values(part, a, b);
    // A tail shows that the shorter image decides before the next part does.
    const std::string x = image_of(part, record_of(part, a)) + "\xff";
    const std::string y = image_of(part, record_of(part, b)) + std::string(1, '\0');
    const int images = sign(x.compare(y));
    CHECK(images == (order == 0 ? 1 : part.descending ? -order : order));
}

void check_part(const KeyPart &part, Random &random) {
    std::string previous = random_value(random, part);
    for (int i = 0; i < 300; i++) {
        std::string value = random_value(random, part);
        if (part.kind >= KeyKind::VarBinary && below(random, 2)) {
            value = previous.substr(0, below(random, previous.size() + 1)) + value;
            value = value.substr(0, is_blob(part) ? value.size() : part.column_length);
        }
        const std::string record = record_of(part, value);
        check_round_trip(part, record, value);
        check_pair(part, previous, value);
        std::string extra;
        const std::string image = image_of(part, record, &extra);
        if (i % 10 == 0) check_damage(part, image, extra, random);
        previous = value;
    }
    if (!part.nullable) return;
    const std::string null = null_record(part);
    check_round_trip(part, null, "");
    const int order = sign(image_of(part, null).compare(image_of(part, record_of(part, previous))));
    CHECK(order == (part.descending ? 1 : -1));
}

std::vector<KeyPart> all_parts() {
    std::vector<KeyPart> parts;
    for (uint32_t length : {1, 2, 3, 4, 5, 8}) {
        parts.push_back(part_of(KeyKind::Signed, length));
        parts.push_back(part_of(KeyKind::Unsigned, length));
    }
    parts.push_back(part_of(KeyKind::Float, 4));
    parts.push_back(part_of(KeyKind::Float, 8));
    parts.push_back(part_of(KeyKind::Binary, 7));
    KeyPart prefix = part_of(KeyKind::Binary, 7);
    prefix.length = prefix.prefix_characters = 3;
    parts.push_back(prefix);
    for (const Collation *collation :
         std::initializer_list<const Collation *>{&padded, &folded, &not_padded, &wide,
                                                  &wide_not_padded, &compact, &compact_not_padded,
                                                  &two_levels, nullptr}) {
        parts.push_back(part_of(collation ? KeyKind::VarChar : KeyKind::VarBinary, 400, collation));
        prefix = parts.back();
        prefix.length = prefix.prefix_characters = 5;
        parts.push_back(prefix);
        parts.push_back(part_of(collation ? KeyKind::BlobText : KeyKind::BlobBinary, 6, collation));
    }
    for (const Collation *collation : std::initializer_list<const Collation *>{
             &padded, &folded, &counted, &wide, &wide_counted, &compact, &two_levels}) {
        parts.push_back(part_of(KeyKind::Char, 9, collation));
        prefix = parts.back();
        prefix.length = prefix.prefix_characters = 4;
        parts.push_back(prefix);
    }
    return parts;
}

// Whole keys of several parts, with the extras in one value.
void check_key(const std::vector<KeyPart> &parts, const std::string &record, size_t fixed_end) {
    std::string key, extras;
    const bool has_null = append_key(parts, bytes_of(record), key, extras);
    CHECK(has_null == ((record[0] & 1) != 0));
    std::string back(record.size(), '\0');
    const ExactCopy key_copy(key), extras_copy(extras);
    Bytes cursor = key_copy.bytes(), left = extras_copy.bytes();
    CHECK(take_key(parts, cursor, left, bytes_of(back)) && cursor.empty() && left.empty());
    CHECK(back.compare(0, fixed_end, record, 0, fixed_end) == 0);
    for (size_t cut = 0; cut < key.size(); cut++) {
        const ExactCopy part_copy(key.substr(0, cut));
        cursor = part_copy.bytes();
        left = extras_copy.bytes();
        CHECK(!take_key(parts, cursor, left, bytes_of(back)));
    }
    for (size_t cut = 1; cut < extras.size(); cut++) {
        const ExactCopy part_copy(extras.substr(0, cut));
        cursor = key_copy.bytes();
        left = part_copy.bytes();
        take_key(parts, cursor, left, bytes_of(back));
    }
}

void check_keys(Random &random) {
    std::vector<KeyPart> parts{part_of(KeyKind::Float, 8), part_of(KeyKind::Char, 6, &folded),
                               part_of(KeyKind::VarChar, 20, &padded)};
    parts[1].offset = 9;
    parts[1].nullable = true;
    parts[1].null_mask = 1;
    parts[2].offset = 15;
    for (int i = 0; i < 200; i++) {
        std::string record(1, static_cast<char>(below(random, 2)));
        record += float_bytes(below(random, 2) ? -0.0 : 1.5);
        std::string text = record[0] & 1 ? "" : random_text(random, 6);
        text.resize(6, ' ');
        record += text;
        text = random_text(random, 20);
        record += little(text.size(), 2) + text;
        const size_t fixed_end = record.size();
        record.resize(37, '\0');
        check_key(parts, record, fixed_end);
    }
}

void check_successors(Random &random) {
    CHECK(key_successor("").empty() && key_successor("\xff\xff").empty());
    CHECK(key_successor("a\xff") == "b" && key_successor("ab") == "ac");
    for (int i = 0; i < 1000; i++) {
        std::string prefix = random_text(random, 3), key = random_text(random, 5);
        const std::string end = key_successor(prefix);
        const bool has_prefix = key.compare(0, prefix.size(), prefix) == 0;
        const bool is_inside = key >= prefix && (end.empty() || key < end);
        CHECK(is_inside == has_prefix || (end.empty() && !prefix.empty()));
        if (has_prefix) CHECK(is_inside);
    }
}

// Bytes that no value has.
void check_refused_images() {
    const auto skips = [](const KeyPart &part, const std::string &image) {
        const ExactCopy copy(image);
        Bytes cursor = copy.bytes();
        return skip_part(part, cursor) && cursor.empty();
    };
    KeyPart number = part_of(KeyKind::Unsigned, 1);
    number.nullable = true;
    CHECK(skips(number, "\x01x") && !skips(number, "\x02x"));
    const KeyPart binary = part_of(KeyKind::VarBinary, 20);
    CHECK(skips(binary, std::string("a\0\xff\0\x01", 5)));
    CHECK(!skips(binary, std::string("a\0\2\0\1", 5)));
    const KeyPart text = part_of(KeyKind::VarChar, 20, &padded);
    CHECK(skips(text, "a \x01 \x80") && skips(text, std::string("a \x7e\0 \x80", 6)));
    CHECK(!skips(text, std::string("a \0 \x80", 5)) && !skips(text, "a \x7f \x80"));
    // A compact weight that has a shorter form.
    const KeyPart small = part_of(KeyKind::VarChar, 20, &compact);
    CHECK(skips(small, "\xff\x1f\xe0 \x80") && !skips(small, "\xff\x1f\xdf \x80"));
    CHECK(skips(small, std::string("\xff\xff\xff\0\xff\xff \x80", 8)));
    CHECK(!skips(small, std::string("\xff\xff\xff\0\xff\xfe \x80", 8)));
}

} // namespace

void test_keys(Random &random) {
    for (KeyPart part : all_parts()) {
        for (int variant = 0; variant < 4; variant++) {
            part.nullable = variant & 1;
            part.descending = variant & 2;
            check_part(part, random);
        }
    }
    check_refused_images();
    check_keys(random);
    check_successors(random);
}

void test_key_golden_bytes() {
    CHECK(golden(part_of(KeyKind::Signed, 4), little(5, 4)) == "80 00 00 05");
    CHECK(golden(part_of(KeyKind::Signed, 4), little(~uint64_t{0}, 4)) == "7f ff ff ff");
    CHECK(golden(part_of(KeyKind::Unsigned, 2), little(258, 2)) == "01 02");
    CHECK(golden(part_of(KeyKind::Float, 8), float_bytes(1.0)) == "bf f0 00 00 00 00 00 00");
    CHECK(golden(part_of(KeyKind::Float, 8), float_bytes(-1.0)) == "40 0f ff ff ff ff ff ff");
    CHECK(golden(part_of(KeyKind::Float, 8), float_bytes(0.0)) == "80 00 00 00 00 00 00 00");
    CHECK(golden(part_of(KeyKind::Float, 8), float_bytes(-0.0)) == "80 00 00 00 00 00 00 00 + 01");
    CHECK(golden(part_of(KeyKind::Binary, 3), "abc") == "61 62 63");
    CHECK(golden(part_of(KeyKind::VarBinary, 9), std::string("a\0b", 3)) == "61 00 ff 62 00 01");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &padded), "") == "20 80");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &padded), "ab") == "61 62 20 80");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &padded), "ab  ") == "61 62 20 80 + 02");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &padded), "a  b") == "61 20 fd 62 20 80");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &padded), "a \t") == "61 20 01 09 20 80");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &padded), "a" + std::string(126, ' ') + "b") ==
          "61 20 81 ff 62 20 80");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &folded), "aB ") == "41 42 20 80 + 61 42 20");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &not_padded), "a ") == "41 20 00 01 + 61 20");
    CHECK(golden(part_of(KeyKind::Char, 4, &counted), "a") == "61 20 03 00 01");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &wide), "a") == "41 41 20 20 80 + 61");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &compact), "a\x80") == "41 e7 20 20 80 + 61 80");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &compact), "\x90") == "ff 99 00 20 80 + 90");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &compact), "\xf1") ==
          "ff ff ff f1 00 00 20 80 + f1");
    CHECK(golden(part_of(KeyKind::VarChar, 300, &two_levels), "aB") ==
          "00 41 00 42 00 20 80 00 03 00 02 80 + 61 42");
    KeyPart part = part_of(KeyKind::Unsigned, 1);
    part.nullable = true;
    CHECK(golden(part, "\x05") == "01 05" && hex(image_of(part, null_record(part))) == "00");
    part.descending = true;
    CHECK(golden(part, "\x05") == "fe fa" && hex(image_of(part, null_record(part))) == "ff");
}
