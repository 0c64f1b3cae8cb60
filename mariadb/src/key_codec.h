// SPDX-License-Identifier: GPL-2.0-only
//
// Key parts as bytes whose order as bytes is the order of their values, and back into the record.
//
// A key is the images of its parts, one after another; each image ends itself. Bytes and rules are
// in `docs/format/sql-key.md`. An image does not always give its value back: then `append_part`
// returns an `Extra`, which the caller keeps in the entry's value. `append_key` and `take_key` do
// this for all parts of an index.
//
// A part is a plain structure without the server's types, so these functions are tested alone.
// Kinds for the column types of the server:
//
//   Signed     TINYINT to BIGINT; old DATE (4 bytes), TIME (3) and DATETIME (8)
//   Unsigned   UNSIGNED integers, ENUM, SET, YEAR, DATE (3 bytes), old TIMESTAMP (4)
//   Float      FLOAT and DOUBLE, by `length`
//   Binary     BINARY(n), DECIMAL, TIME, DATETIME and TIMESTAMP of 5.6 and of MariaDB with
//              fractions, UUID, INET4, INET6, BIT as bytes: their bytes in the record sort already
//   VarBinary  VARBINARY
//   BlobBinary BLOB, GEOMETRY: a prefix
//   Char       CHAR with a collation
//   VarChar    VARCHAR with a collation
//   BlobText   TEXT: a prefix

#pragma once

#include <string>
#include <vector>

#include "bytes.h"
#include "text_image.h"

namespace alluvium_sql {

enum class KeyKind : uint8_t {
    Signed,
    Unsigned,
    Float,
    Binary,
    VarBinary,
    BlobBinary,
    Char,
    VarChar,
    BlobText,
};

struct KeyPart {
    KeyKind kind = KeyKind::Binary;
    bool nullable = false;
    // DESC: all bytes of the image are inverted.
    bool descending = false;
    // Offset in the record of the byte with the null bit, and that bit as a mask.
    uint32_t null_offset = 0;
    uint8_t null_mask = 0;
    // Offset in the record of the value; for VARCHAR and BLOB of its length bytes.
    uint32_t offset = 0;
    // Bytes of the value in a key tuple of the server (KEY_PART_INFO::length): for a number or CHAR
    // its size, for VARCHAR and BLOB the most bytes, without the length bytes.
    uint32_t length = 0;
    // Bytes of the value in the record: more than `length` for a prefix of CHAR or BINARY. For
    // VARCHAR the most bytes of the column.
    uint32_t column_length = 0;
    // Only this many characters (bytes for binary kinds) are in the key; 0: the whole value. A part
    // of a BLOB or TEXT always has a prefix.
    uint32_t prefix_characters = 0;
    // Bytes of the length in the record: 1 or 2 for VARCHAR, 1 to 4 for BLOB, else 0.
    uint8_t length_bytes = 0;
    // For Char, VarChar and BlobText; never null there.
    const Collation *collation = nullptr;
};

// Bytes that an image does not give back: a copy of the text (a reference into the record, or into
// the blob that the record names), the flag of -0.0, or the number of cut spaces.
class Extra {
public:
    Extra() = default;
    static Extra reference(const uint8_t *data, size_t length);
    static Extra number(uint64_t value);

    const uint8_t *data() const { return data_ ? data_ : own_; }
    size_t length() const { return length_; }
    bool empty() const { return length_ == 0; }

private:
    const uint8_t *data_ = nullptr;
    size_t length_ = 0;
    uint8_t own_[10] = {};
};

// Appends the image of a part of a record.
Extra append_part(const KeyPart &part, const uint8_t *record, std::string &out);

// Appends the image of a part of a key tuple of the server, as handler::index_read_map gets it, and
// moves `tuple` to the next part: null byte if nullable, 2 length bytes for VARCHAR and BLOB, then
// `length` bytes. Returns true if the value is NULL. A low limit may be lower than its value: a
// reader of its range sees all rows that the server's LIKE finds without an index.
enum class KeyUse { Exact, LowLimit };
bool append_key_part(const KeyPart &part, const uint8_t *&tuple, std::string &out,
                     KeyUse use = KeyUse::Exact);

// Moves past the image of a part. False: damage.
bool skip_part(const KeyPart &part, Bytes &cursor);

// Takes the image of a part and restores its column in the record, null bit included. Only for a
// part that `restores`. A BLOB is never restored. False: damage.
bool take_part(const KeyPart &part, Bytes &cursor, Bytes extra, uint8_t *record);

// Takes the null byte of a part and skips the rest. Sets `null` to true if the value is NULL.
bool skip_part(const KeyPart &part, Bytes &cursor, bool &null);

// Returns true if image and extra give the column back. False for prefixes, BLOB and TEXT.
bool restores(const KeyPart &part);

// Returns true if `append_part` can return an extra that is not empty.
bool may_have_extra(const KeyPart &part);

// Upper bound of the bytes of an image, whatever bytes the value has. For buffers only: for
// collations of the Unicode algorithm it is many times the size of real images. So refuse a key
// that is too long for the engine when it is written, and not an index whose bound is too long.
size_t key_part_bytes_max(const KeyPart &part);

// Smallest key greater than every key with this prefix. Empty if there is none, because the prefix
// is empty or all its bytes are 0xff.
std::string key_successor(std::string prefix);

// All parts of an index: appends the key to `key`, and to `extras` the extras of those parts that
// may have one: length (varint) and bytes each. Empty ones at the end are left out, so extras have
// to be the last bytes of an entry's value. Returns true if a part is NULL.
bool append_key(const std::vector<KeyPart> &parts, const uint8_t *record, std::string &key,
                std::string &extras);

// Restores in the record all columns of an index that can be restored, and skips the others.
// `key` moves past the parts; `extras` moves past theirs, and is empty then unless it is damaged or
// holds those of further parts. False: damage.
bool take_key(const std::vector<KeyPart> &parts, Bytes &key, Bytes &extras, uint8_t *record);

} // namespace alluvium_sql
